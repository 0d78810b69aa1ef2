//! The codec as its users see it: what is encoded comes out again, within the promised memory and work,
//! whatever is lost, and whatever a peer sends.
//!
//! One binary, because cargo would compile the codec's generic code into each. Two are of their own:
//! `kernels`, which Miri runs too, and `raptorq_memory`, which measures a whole process.
#![cfg(not(miri))]

mod bounded;
mod bounds;
mod codes;
mod contradictions;
mod decoder;
mod generation;
mod memory;
mod peeling;
mod progress;
mod rank;
#[cfg(feature = "raptorq")]
mod raptorq;
mod recoder;
mod redundancy;
mod reference;
mod rfc8681;
mod rlc16;
#[cfg(feature = "rs-fft")]
mod rs_fft;
mod setup;
mod short;
