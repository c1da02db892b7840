//! A large result judged on the GPU (`kernels/judge.cu`), where its references and bounds lie: what comes back are counts, extremes and
//! sums, to the bits of [`crate::compare`]'s.

pub(crate) mod bound;
pub(crate) mod cast;
pub(crate) mod counted;
pub(crate) mod elements;
pub(crate) mod product;
pub(crate) mod references;
