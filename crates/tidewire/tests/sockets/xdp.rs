//! Endpoints over AF_XDP, on veth pairs between network namespaces: the tests of `main.rs`, and those that
//! only make sense past the kernel (`bypass/`).
//!
//! The tests need root. Two files of `main.rs` are missing here, with these reasons:
//!
//! - `relay.rs`: relays, and ends that a relay connects, have the kernel's sockets only.
//! - `routes.rs` removes the routes of loopback, which has no AF_XDP. `bypass/outages.rs` takes the interface
//!   down instead.
//!
//! Of the included tests, `rebinding.rs` ends on the kernel's sockets, because [`tidewire::Endpoint::rebind`]
//! gives such ones, and an ICMP refusal (`refusals.rs`) reaches the kernel's socket only.

#![cfg(all(feature = "xdp", target_os = "linux"))]

mod bypass;
mod connections;
mod hostile;
mod loopback;
mod messages;
mod multihomed;
mod namespaces;
mod pair;
mod rebinding;
mod refusals;
mod silence;
mod streams;
mod veth;

use veth as places;
