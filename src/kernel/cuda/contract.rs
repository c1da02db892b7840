//! Contracts: what an entry of a source takes, in its order and by the names it has there.
//!
//! [`arguments!`] makes a struct of an entry's parameters; launch, bench and scenario fill it in by name. A test reads the sources and
//! holds every struct to the entry's own parameters: order, names and types.

use super::launch::{Arg, Buffer, Launch, LaunchShape};

/// What a parameter is for the driver.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pointer,
    Int,
    Long,
    Float,
    Map,
    Struct,
}

/// An address on the device; null where there is nothing.
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub struct Pointer(pub u64);

impl Pointer {
    pub const NULL: Self = Pointer(0);
}
impl From<&Buffer> for Pointer {
    fn from(buffer: &Buffer) -> Self {
        Pointer(buffer.pointer())
    }
}
impl From<Option<&Buffer>> for Pointer {
    fn from(buffer: Option<&Buffer>) -> Self {
        buffer.map_or(Pointer::NULL, Pointer::from)
    }
}

/// A tensor map by value ([`super::launch::tensor_map`]).
pub type Map = Box<cudarc::driver::sys::CUtensorMap>;

/// A parameter's type on this side.
pub trait Parameter {
    #[cfg(test)]
    const KIND: Kind;
    fn arg(self) -> Arg;
}

impl Parameter for Pointer {
    #[cfg(test)]
    const KIND: Kind = Kind::Pointer;
    fn arg(self) -> Arg {
        Arg::Pointer(self.0)
    }
}
/// An `int`.
impl Parameter for usize {
    #[cfg(test)]
    const KIND: Kind = Kind::Int;
    fn arg(self) -> Arg {
        Arg::Int(i32::try_from(self).expect("check() refuses what an int does not hold"))
    }
}
/// An `int` that may be negative.
impl Parameter for i32 {
    #[cfg(test)]
    const KIND: Kind = Kind::Int;
    fn arg(self) -> Arg {
        Arg::Int(self)
    }
}
/// A `long long`.
impl Parameter for u64 {
    #[cfg(test)]
    const KIND: Kind = Kind::Long;
    fn arg(self) -> Arg {
        Arg::Long(self as i64)
    }
}
impl Parameter for f32 {
    #[cfg(test)]
    const KIND: Kind = Kind::Float;
    fn arg(self) -> Arg {
        Arg::Float(self)
    }
}
impl Parameter for Map {
    #[cfg(test)]
    const KIND: Kind = Kind::Map;
    fn arg(self) -> Arg {
        Arg::Map(self)
    }
}

/// The arguments of an entry, or of several that take the same.
pub trait Contract: Sized {
    const SOURCE: &'static str;
    const ENTRIES: &'static [&'static str];
    #[cfg(test)]
    const PARAMETERS: &'static [(&'static str, Kind)];

    fn args(self) -> Vec<Arg>;

    /// Of the first entry.
    fn launch(self, defines: &[String], shape: LaunchShape) -> Launch<'_> {
        self.entry(Self::ENTRIES[0], defines, shape)
    }
    fn entry<'a>(self, entry: &'static str, defines: &'a [String], shape: LaunchShape) -> Launch<'a> {
        Launch { source: Self::SOURCE, entry, defines, shape, args: self.args() }
    }
}

/// `arguments!(Name = "source.cu" "entry" | "entry" { parameter: Type, … })`: the struct of a contract.
macro_rules! arguments {
    ($(#[$doc:meta])* $name:ident = $source:literal $($entry:literal)|+ { $($parameter:ident: $kind:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub(crate) struct $name { $(pub $parameter: $kind),* }

        impl $crate::kernel::cuda::contract::Contract for $name {
            const SOURCE: &'static str = $source;
            const ENTRIES: &'static [&'static str] = &[$($entry),+];
            #[cfg(test)]
            const PARAMETERS: &'static [(&'static str, $crate::kernel::cuda::contract::Kind)] =
                &[$((stringify!($parameter), <$kind as $crate::kernel::cuda::contract::Parameter>::KIND)),*];

            fn args(self) -> Vec<$crate::kernel::cuda::launch::Arg> {
                vec![$($crate::kernel::cuda::contract::Parameter::arg(self.$parameter)),*]
            }
        }
    };
}
pub(crate) use arguments;

/// Name, source and fields of a struct that is passed by value.
#[cfg(test)]
pub type Struct = (&'static str, &'static str, &'static [(&'static str, Kind)]);

/// `by_value!(Name = "source.cu" { field: Type, … })`: a struct that entries take by value, as `Name` of that source lies in memory: fields of 8
/// bytes, or of 4 in pairs.
macro_rules! by_value {
    ($(#[$doc:meta])* $name:ident = $source:literal { $($field:ident: $kind:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub(crate) struct $name { $(pub $field: $kind),* }

        impl $name {
            /// Its name, its source and its fields.
            #[cfg(test)]
            pub const STRUCT: $crate::kernel::cuda::contract::Struct = (
                stringify!($name),
                $source,
                &[$((stringify!($field), <$kind as $crate::kernel::cuda::contract::Parameter>::KIND)),*],
            );
        }

        impl $crate::kernel::cuda::contract::Parameter for $name {
            #[cfg(test)]
            const KIND: $crate::kernel::cuda::contract::Kind = $crate::kernel::cuda::contract::Kind::Struct;
            fn arg(self) -> $crate::kernel::cuda::launch::Arg {
                // Words of the fields' own alignment, and no padding.
                const WORDS: usize = std::mem::size_of::<$name>() / 8;
                const { assert!(0 $(+ std::mem::size_of::<$kind>())* == WORDS * 8) };
                // SAFETY: plain numbers without padding, as many words.
                let words = unsafe { std::mem::transmute::<$name, [u64; WORDS]>(self) };
                $crate::kernel::cuda::launch::Arg::Struct(words.into())
            }
        }
    };
}
pub(crate) use by_value;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cuda::source::SOURCES;
    use crate::kernel::cuda::*;
    use std::collections::BTreeMap;

    /// Entry (`source.cu entry`) and parameters, without a name where the source gives none.
    type Entries = BTreeMap<String, Vec<(Option<String>, Kind)>>;

    /// One parameter as the source writes it.
    fn parameter(text: &str) -> (Option<String>, Kind) {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let kind = match &text {
            t if t.contains('*') => Kind::Pointer,
            t if t.contains("TensorMap ") => Kind::Map,
            t if STRUCTS.iter().any(|(name, ..)| t.starts_with(&format!("const {name} "))) => Kind::Struct,
            t if t.contains("long long") || t.starts_with("u64") => Kind::Long,
            t if t.starts_with("int") => Kind::Int,
            t if t.starts_with("float ") => Kind::Float,
            other => panic!("{other}: no type that a contract has"),
        };
        let name = text.rsplit([' ', '*']).next().filter(|n| !["int", "long"].contains(n));
        (name.map(str::to_string), kind)
    }

    /// What the sources define.
    fn defined() -> Entries {
        let mut found = Entries::new();
        for source in SOURCES.iter() {
            for part in source.text.split("extern \"C\" __global__").skip(1) {
                let (head, _) = part.split_once('{').expect("a body");
                let (before, parameters) = head.trim_end().trim_end_matches(')').rsplit_once('(').expect("parameters");
                let name = before.split_whitespace().last().expect("a name");
                let parameters = parameters.split(',').map(parameter).collect();
                assert!(found.insert(format!("{} {name}", source.name), parameters).is_none(), "{name} twice");
            }
        }
        found
    }

    fn entries<C: Contract>() -> impl Iterator<Item = (String, &'static [(&'static str, Kind)])> {
        C::ENTRIES.iter().map(|e| (format!("{} {e}", C::SOURCE), C::PARAMETERS))
    }

    /// Every struct of a contract, and every entry of the sources.
    #[test]
    fn every_entry_takes_what_its_struct_says() {
        let ours: Vec<(String, &[(&str, Kind)])> = entries::<activation::Arguments>()
            .chain(entries::<afar::Halves>())
            .chain(entries::<afar::AmaxOf>())
            .chain(entries::<afar::CodesOf>())
            .chain(entries::<cast::Arguments>())
            .chain(entries::<cast::Amax>())
            .chain(entries::<cast_block::Rows>())
            .chain(entries::<cast_block::Tiles>())
            .chain(entries::<cast_mx::Arguments>())
            .chain(entries::<cast_mx::Groups>())
            .chain(entries::<cast_transpose::Arguments>())
            .chain(entries::<cast_transpose::WithSums>())
            .chain(entries::<cast_transpose::Several>())
            .chain(entries::<cast_transpose::Total>())
            .chain(entries::<dact::Arguments>())
            .chain(entries::<dact::Total>())
            .chain(entries::<fp8_gemm::Arguments>())
            .chain(entries::<grouped_gemm::Arguments>())
            .chain(entries::<fp8_gemm_mma::Arguments>())
            .chain(entries::<gemm_f64::Arguments>())
            .chain(entries::<group_scales::Rows>())
            .chain(entries::<group_scales::ColumnsAmax>())
            .chain(entries::<group_scales::ColumnsScale>())
            .chain(entries::<group_scales::Columns>())
            .chain(entries::<inputs::Arguments>())
            .chain(entries::<judge::bound::BoundOf>())
            .chain(entries::<judge::bound::AmaxOf>())
            .chain(entries::<judge::cast::CodesOf>())
            .chain(entries::<judge::elements::Widen>())
            .chain(entries::<judge::product::ModelOf>())
            .chain(entries::<judge::product::ModelCodes>())
            .chain(entries::<judge::counted::ElementsOf>())
            .chain(entries::<judge::counted::SumsOf>())
            .chain(entries::<judge::counted::DrawnOf>())
            .chain(entries::<judge::counted::RanksOf>())
            .chain(entries::<judge::counted::PowerOf>())
            .chain(entries::<reference::Width>())
            .chain(entries::<reference::LanesOf>())
            .chain(entries::<reference::DigitsOf>())
            .chain(entries::<reference::SumsOf>())
            .chain(entries::<reference::ExactOf>())
            .chain(entries::<reference::Mend>())
            .chain(entries::<int4_quant::Token8>())
            .chain(entries::<int4_quant::Groups>())
            .chain(entries::<int4_quant::Repack>())
            .chain(entries::<int4_quant::Unpack>())
            .chain(entries::<int4_quant::Dequantize>())
            .chain(entries::<mixed_gemm::Arguments>())
            .chain(entries::<mixed_gemm::Reorder>())
            .chain(entries::<mixed_stream::Arguments>())
            .chain(entries::<mixed_stream::Reorder>())
            .chain(entries::<model::PlanesOf>())
            .chain(entries::<model::Arguments>())
            .chain(entries::<model::Naive>())
            .chain(entries::<model::Scaled>())
            .chain(entries::<model::Added>())
            .chain(entries::<model_int::IntegersOf>())
            .chain(entries::<model::Mismatches>())
            .chain(entries::<norm::Arguments>())
            .chain(entries::<scale_inv::Inverse>())
            .chain(entries::<scale_inv::Hold>())
            .chain(entries::<w4a8::Arguments>())
            .chain(entries::<w4a8_wide::Arguments>())
            .collect();
        let mut defined = defined();
        for (entry, parameters) in ours {
            let there = defined.remove(&entry).unwrap_or_else(|| panic!("{entry} is in no source, or has two structs"));
            assert_eq!(there.len(), parameters.len(), "{entry}: {there:?}");
            for ((name, kind), (our_name, our_kind)) in there.iter().zip(parameters) {
                assert_eq!(kind, our_kind, "{entry}: {our_name}");
                assert!(name.as_deref().is_none_or(|n| n == *our_name), "{entry}: {name:?} is {our_name} in its struct");
            }
        }
        assert!(defined.is_empty(), "entries without a struct: {:?}", defined.keys());
    }

    const STRUCTS: [Struct; 3] = [judge::elements::Elements::STRUCT, reference::Factors::STRUCT, model_int::Integers::STRUCT];

    #[test]
    fn a_struct_by_value_has_the_fields_of_its_source() {
        for (name, file, ours) in STRUCTS {
            let source = SOURCES.iter().find(|s| s.name == file).expect("embedded");
            let (_, rest) = source.text.split_once(&format!("struct {name} {{")).expect("there");
            // Functions follow the fields, if any do.
            let (fields, _) = rest.split_once("};").expect("its end");
            let fields = fields.split("\n\n").next().expect("fields").split(';').map(str::trim).filter(|f| !f.is_empty());
            let found: Vec<_> = fields.map(parameter).map(|(name, kind)| (name.expect("a name"), kind)).collect();
            let ours: Vec<_> = ours.iter().map(|(name, kind)| (name.to_string(), *kind)).collect();
            assert_eq!(found, ours, "{name} of {file}");
        }
    }
}
