//! The namespace lab: two hosts of this machine, each a network namespace, joined by our emulated link. Needs root, and Linux.
//!
//! The verbs `lab up`, `run`, `check` and `contest` are the callers. [`hosts`] makes the namespaces and their devices,
//! [`emulator`] carries packets between them through the same [`Link`](tidewire_sim::link::Link) as the simulator, so that real kernel
//! TCP, our transport and others cross the same scenario. [`check`] holds the lab against the link it claims to be; [`contest`] has
//! flows of kernel TCP ([`tcp`]) and of [`ours`] compete for its queue. Invariant: the wall clock is mapped to the link's time once, when the emulator starts.

pub mod check;
pub mod contest;
mod crossing;
pub mod emulator;
pub mod hosts;
pub mod late;
pub mod ours;
pub mod tcp;
mod tun;
