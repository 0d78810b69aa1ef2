//! Finite fields: the arithmetic of single elements. Whole symbols are the business of
//! [`kernel`](crate::kernel).

pub mod gf256;
pub mod gf65536;
