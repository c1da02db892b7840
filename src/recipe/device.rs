//! How our CUDA kernels choose a recipe's scales: the words of their options, with the numbers of `kernels/common/options.cuh`.

/// A word of an option, as CUDA counts it.
pub trait Numbered {
    fn number(&self) -> i64;
}

macro_rules! numbered {
    ($($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $word:ident = $number:literal),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
            pub enum $name { $($(#[$each])* $word = $number),* }

            impl $crate::recipe::device::Numbered for $name {
                fn number(&self) -> i64 {
                    *self as i64
                }
            }
        )*
        /// Every enum with its words and numbers.
        #[cfg(test)]
        pub(crate) const ENUMS: &[(&str, &[(&str, i64)])] = &[$((stringify!($name), &[$((stringify!($word), $number)),*])),*];
    };
}

#[cfg(feature = "cuda")]
pub(crate) use numbered;

numbered! {
    /// How the scale of floating-point codes comes about: RULE (`scale_rule.cuh`; from TeMxfp8 on `cast_mx.cu`).
    Rule {
        Given = 0, Te = 1, Torchao = 2, TorchaoInference = 3, Deepgemm = 4,
        TeMxfp8 = 5, MxFloor = 6, MxCeil = 7, MxEven = 8, MxRceil = 9, TeNvfp4 = 10, TorchaoNvfp4 = 11,
    }

    /// How a row is quantized to int8: TOKEN.
    TokenRule {
        /// Scale and products in the input's type.
        OwnType = 0,
        /// Scale and products in f32.
        InF32 = 1,
        /// With a zero point.
        Shifted = 2,
    }

    /// How a group of weights is quantized to integers: MAPPING.
    Mapping { Symmetric = 0, SymmetricNoClip = 1, Asymmetric = 2, Tinygemm = 3 }
}

/// The rule of a recipe, where the kernels have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeviceRule {
    Scale {
        rule: Rule,
        pow2: bool,
    },
    /// Scales in the input's own type only where the recipe stores them so.
    Token(TokenRule),
    Affine(Mapping),
}
