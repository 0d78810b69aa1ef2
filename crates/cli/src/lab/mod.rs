//! The namespace lab: two hosts of this machine, each a network namespace, joined by our emulated link. Needs root, and Linux.
//!
//! The verbs `lab up`, `run`, `check` and `contest` are the callers. [`hosts`] makes the namespaces and their devices,
//! [`emulator`] carries packets between them through the same [`Link`](tidewire_sim::link::Link) as the simulator, so that real kernel
//! TCP, our transport and others cross the same scenario. [`check`] holds the lab against the link it claims to be; [`contest`] has
//! flows of kernel TCP ([`tcp`]) and of [`ours`] compete for its queue. A [`trial`] runs one [`peer`] alone and measures each record's
//! delay, a [`comparison`] makes a table of several; a [`pair`] is two endpoints of our library with settings that no option has, for
//! [`papers`](crate::papers). Invariant: the wall clock is mapped to the link's time once, when the emulator starts.

pub mod check;
pub mod comparison;
pub mod contest;
mod crossing;
pub mod emulator;
pub mod hosts;
pub mod late;
mod opening;
pub mod ours;
pub mod pair;
pub mod peer;
pub mod processes;
pub mod processor;
mod records;
pub mod tcp;
pub mod trial;
mod tun;
