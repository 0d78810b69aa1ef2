//! What strangers and authenticated peers can do to an endpoint, and what it costs: every byte right, no panic, memory within its bounds.
//!
//! Goals and rows are those of the founders' reliability list: G6 (malformed datagrams), T18 (memory), S10, S14, S17 (survival).
#![cfg(feature = "aws-lc-rs")]

mod caps;
mod first;
mod flapping;
mod flow;
mod host;
mod lying;
mod malformed;
mod many;
mod memory;
mod meter;
mod peer;
mod pieces;
mod replay;
mod timers;
