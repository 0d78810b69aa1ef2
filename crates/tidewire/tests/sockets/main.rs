//! Endpoints over real sockets, all of them the kernel's on loopback.
//!
//! A file for each subject has the tests. `xdp.rs` includes the same files, and runs them over AF_XDP: the
//! module `places` of each of the two says where endpoints are bound.

mod connections;
mod hostile;
mod loopback;
mod messages;
#[cfg(target_os = "linux")]
mod multihomed;
mod pair;
mod rebinding;
mod refusals;
mod relay;
#[cfg(target_os = "linux")]
mod routes;
mod silence;
mod streams;
mod turns;

use loopback as places;
