//! Finite fields: the arithmetic of single elements. [`kernel`](crate::kernel) does it for whole symbols.

pub mod gf256;
pub mod gf65536;
