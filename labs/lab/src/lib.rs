//! The namespace lab (`docs/lab.md`): nodes of this machine, each a network namespace, joined by the links of
//! the simulator in real time, with real programs and kernels at their ends. It needs Linux and root, and is
//! empty elsewhere. A link that needs neither is [`Proxy`](tidewire_proxy::Proxy).
//!
//! The command `tidewire-lab` and the experiments of `tidewire-papers` are the callers. Most of it needs two
//! hosts and one link.
//!
//! - `nodes` makes the namespaces and their TUN devices, `hosts` the two of one link; `emulator` carries
//!   packets between them through the same [`Link`](tidewire_sim::link::Link) as the simulator, so that the
//!   kernel's TCP, our transport and other programs cross the same scenario.
//! - `check` holds the lab against the link that it claims to be, `way` against several; `processor` says who
//!   had the processors meanwhile.
//! - `trial` runs one `peer` alone and measures the delay of each record; `contest` has flows of kernel TCP
//!   (`tcp`) and of ours (`ours`) compete for one queue; `pair` carries a file between two endpoints of the
//!   library, with settings that no option of the command has; `video` shows a video over our library or over
//!   kernel TCP, and measures the viewer's buffer.
//! - `network` runs the plan of a network: several flows at once, over any number of nodes and links.
//!
//! Where our transport runs as a program, the caller names the file of the `tidewire` command. Nothing here
//! prints: results are values. Invariant: the wall clock is mapped to the link's time once, when a link
//! starts.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg(target_os = "linux")]

pub mod check;
pub mod contest;
mod crossing;
pub mod emulator;
pub mod hosts;
pub mod late;
pub mod network;
pub mod nodes;
mod opening;
mod ours;
pub mod pair;
pub mod peer;
mod processes;
pub mod processor;
mod records;
mod shaping;
mod tcp;
pub mod trial;
mod tun;
pub mod video;
pub mod way;
