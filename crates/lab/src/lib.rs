//! Emulated links in real time: the links of the simulator, with real sockets, programs and kernels at their
//! ends.
//!
//! The command's verbs `lab` and `demo`, and the experiments of `tidewire-papers`, are the callers.
//! Everywhere there is the [`proxy`]: one link between UDP sockets, without privileges. On Linux, as root,
//! there is the namespace lab (`docs/lab.md`): nodes of this machine, each a network namespace, joined by
//! links. Most of it needs two hosts and one link.
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
//! - [`distribution`] holds measured delays; [`punctual`] has the system wake a thread on time.
//!
//! Where our transport runs as a program, the caller names the file of the `tidewire` command. Nothing here
//! prints: results are values. Invariant: the wall clock is mapped to the link's time once, when a link
//! starts.
//!
//! ```
//! use std::net::UdpSocket;
//! use std::time::Duration;
//! use tidewire_lab::proxy::Proxy;
//! use tidewire_sim::duplex::DuplexConfig;
//!
//! let (client, target) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
//! let mut link = DuplexConfig::default();
//! link.set_rtt(Duration::from_millis(20));
//! let proxy = Proxy::start(([127, 0, 0, 1], 0).into(), target.local_addr()?, &link)?;
//! client.send_to(b"hello", proxy.address())?;
//! let mut datagram = [0; 5];
//! assert_eq!(target.recv(&mut datagram)?, 5);
//! assert_eq!(proxy.stop()?.forward.delivered, 1);
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod carrier;
#[cfg(target_os = "linux")]
pub mod check;
#[cfg(target_os = "linux")]
pub mod contest;
#[cfg(target_os = "linux")]
mod crossing;
mod datagrams;
pub mod distribution;
#[cfg(target_os = "linux")]
pub mod emulator;
#[cfg(target_os = "linux")]
pub mod hosts;
#[cfg(target_os = "linux")]
pub mod late;
#[cfg(target_os = "linux")]
pub mod network;
#[cfg(target_os = "linux")]
pub mod nodes;
#[cfg(target_os = "linux")]
mod opening;
#[cfg(target_os = "linux")]
mod ours;
#[cfg(target_os = "linux")]
pub mod pair;
#[cfg(target_os = "linux")]
pub mod peer;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
pub mod processor;
pub mod proxy;
pub mod punctual;
#[cfg(target_os = "linux")]
mod records;
#[cfg(target_os = "linux")]
mod shaping;
#[cfg(target_os = "linux")]
mod tcp;
#[cfg(target_os = "linux")]
pub mod trial;
#[cfg(target_os = "linux")]
mod tun;
#[cfg(target_os = "linux")]
pub mod video;
#[cfg(target_os = "linux")]
pub mod way;
