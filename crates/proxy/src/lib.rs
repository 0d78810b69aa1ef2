//! An emulated link between UDP sockets in real time: the [`Link`](tidewire_sim::link::Link) of the simulator
//! with real sockets at its ends. It needs no privileges.
//!
//! `tidewire demo`, `tidewire-lab link` and the tests of the command run a [`Proxy`]. [`carrier`] is the
//! thread of any link in real time, and [`punctual`] has the system wake a thread on time; the laboratory's
//! links between network namespaces use both. Invariant: the wall clock is mapped to the link's time once,
//! when a link starts.
//!
//! ```
//! use std::net::UdpSocket;
//! use std::time::Duration;
//! use tidewire_proxy::Proxy;
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

pub mod carrier;
mod datagrams;
mod proxy;
pub mod punctual;

pub use proxy::{Proxy, ProxyStats};
