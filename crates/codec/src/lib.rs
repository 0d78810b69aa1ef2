//! Erasure codes.
#![no_std]
extern crate alloc;
