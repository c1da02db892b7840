//! placeholder
use super::super::arithmetic::Arithmetic;
use super::search::Case;
use crate::Result;
use crate::compare::Bound;

pub enum Size {
    Larger(String),
    Right(String),
    Unknown,
}
pub fn larger(_case: &Case, _arithmetic: &Arithmetic, _bound: &Bound) -> Result<Size> {
    Ok(Size::Unknown)
}
