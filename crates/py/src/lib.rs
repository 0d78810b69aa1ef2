//! The native part of the Python package `tidewire`: the extension module `tidewire._native`.
//!
//! Python imports it through `tidewire.codec`, `tidewire.model` and their neighbours in `python/tidewire`.
//! `_native.pyi` beside them documents every function for users; the docs here say how it is made. One file
//! for each part: `codec/` and `symbols.rs` over `buffer.rs`, which has all unsafe code; `model.rs` over
//! arrays of numbers; `simulator.rs`; and `transport/` under asyncio. Invariant: whatever Python passes, the
//! answer is a result or an exception of `tidewire.errors`.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod buffer;
mod codec;
mod error;
mod interrupt;
mod model;
mod simulator;
mod symbols;
mod transport;

use pyo3::prelude::*;

/// `tidewire._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::codec::{
        decoder::Decoder,
        encoder::Encoder,
        generation::{DecodePlan, Generation},
        recoder::Recoder,
    };
    #[pymodule_export]
    use crate::model::{asking, fairness, gilbert, least_redundancy, sphinx, streaming};
    #[pymodule_export]
    use crate::simulator::{grid_cells, simulate, simulate_network};
    #[pymodule_export]
    use crate::transport::{
        bell::Bell,
        connection::Connection,
        endpoint::{Listener, connect},
        files::{Destination, Tally, receive_files, send_files},
        operation::Operation,
        stream::Stream,
    };
}
