//! Attacks of strangers and of authenticated peers on an endpoint: every byte stays correct, nothing panics,
//! and memory stays within its bounds.
//!
//! They cover malformed datagrams, memory per connection, and the rows S10, S14 and S17 of docs/survival.md.
#![cfg(feature = "aws-lc-rs")]

mod blocks;
mod caps;
mod first;
mod flapping;
mod flow;
mod host;
mod looks;
mod lying;
mod malformed;
mod many;
mod memory;
mod meter;
mod pairs;
mod parts;
mod peer;
mod pieces;
mod relayed;
mod replay;
mod timers;
