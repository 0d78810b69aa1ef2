//! The transport under asyncio: the crate `tidewire`, polled by Python's event loop.
//!
//! `tidewire.transport` wraps these classes. tokio's thread drives the sockets and never takes the GIL. What
//! has to wait is a Rust future that the event loop polls ([`operation`]); its waker rings a bell
//! ([`bell`]), a descriptor that the event loop watches. So a result is taken only on the thread of the event
//! loop, and a cancelled `await` takes nothing: that makes cancellation safe. `docs/python.md` has the
//! reasons against the crate pyo3-async-runtimes. Invariant: no lock of the transport is waited for in a
//! child of `fork` ([`runtime`]).

pub mod bell;
pub mod connection;
pub mod endpoint;
mod fault;
pub mod files;
pub mod operation;
mod runtime;
mod settings;
pub mod stats;
pub mod stream;
