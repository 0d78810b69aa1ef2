//! The Tidewire protocol as a state machine: no socket, no clock, no thread.
//!
//! An [`endpoint::Endpoint`] has any number of connections. A *driver* connects it to the world. The driver
//! passes in datagrams, the time and calls of the application, and takes out datagrams to send, events and
//! the next timer. The crate `tidewire` is such a driver for tokio, `tidewire-sim` one for virtual time.
//!
//! # The driving contract
//! After each call that takes `&mut self`, the driver
//! 1. sends what [`poll_transmit`](endpoint::Endpoint::poll_transmit) returns, until it returns `None`,
//! 2. handles what [`poll_event`](endpoint::Endpoint::poll_event) returns, until it returns `None`,
//! 3. waits for a datagram, or until the time of [`poll_timeout`](endpoint::Endpoint::poll_timeout), and then
//!    calls [`handle_datagram`](endpoint::Endpoint::handle_datagram) or
//!    [`handle_timeout`](endpoint::Endpoint::handle_timeout).
//!
//! A driver that reads a batch at a time tells how far it has read
//! ([`handle_read`](endpoint::Endpoint::handle_read)).
//!
//! If [`config::Config::workers`] is above 0, it also runs what
//! [`poll_job`](endpoint::Endpoint::poll_job) returns, on any thread. Times must not go backwards, with one
//! exception: a datagram has the time at which it arrived, which may lie
//! before other times that the endpoint was given, but not before that of an earlier datagram.
//!
//! Two endpoints in one loop, over a link of 10 ms that loses every tenth datagram:
//!
//! ```
//! # #[cfg(feature = "aws-lc-rs")] {
//! use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};
//!
//! use tidewire_proto::Time;
//! use tidewire_proto::config::Config;
//! use tidewire_proto::connection::{Event, Received};
//! use tidewire_proto::crypto::{AwsLc, Secret};
//! use tidewire_proto::endpoint::{Endpoint, EndpointConfig};
//!
//! let end = |listen, seed| {
//!     let credentials = Secret::new([7; 32]).into();
//!     let (connection, provider) = (Config::default(), Arc::new(AwsLc));
//!     Endpoint::new(EndpointConfig { credentials, listen, connection, provider }, [seed; 32])
//! };
//! let (mut ends, mut now) = ([end(false, 1), end(true, 2)], Time::from_millis(1));
//! let address = |end: usize| SocketAddr::from(([10, 0, 0, end as u8], 7_700));
//! ends[0].connect(now, address(1)).expect("a shared secret needs no peer key");
//! // Datagrams under way: arrival time, receiver, bytes.
//! let (mut link, mut sent) = (VecDeque::<(Time, usize, Vec<u8>)>::new(), 0);
//! let (mut buffer, mut received, mut left) = (vec![0; 65_527], 0, &[42; 100_000][..]);
//! while received < 100_000 {
//!     for this in [0, 1] {
//!         while let Some(transmit) = ends[this].poll_transmit(now, 1, &mut buffer) {
//!             sent += 1;
//!             if sent % 10 != 0 {
//!                 let arrival = now + Duration::from_millis(10);
//!                 link.push_back((arrival, 1 - this, buffer[..transmit.len].to_vec()));
//!             }
//!         }
//!         while let Some((handle, event)) = ends[this].poll_event() {
//!             let Some(connection) = ends[this].connection_mut(handle) else { continue };
//!             let writable = match event {
//!                 Event::Connected if this == 0 => connection.open_stream().ok(),
//!                 Event::Writable(stream) => Some(stream),
//!                 Event::Readable(stream) => {
//!                     while let Ok(n @ 1..) = connection.read(now, stream, &mut buffer) {
//!                         assert!(buffer[..n].iter().all(|&byte| byte == 42));
//!                         received += n;
//!                     }
//!                     None
//!                 }
//!                 Event::Closed(reason) => panic!("{reason}"),
//!                 _ => None,
//!             };
//!             // A write takes what can be sent soon. `Writable` tells when it takes more.
//!             while let Some(stream) = writable
//!                 && let Ok(n @ 1..) = connection.write(stream, left)
//!             {
//!                 left = &left[n..];
//!             }
//!         }
//!     }
//!     // Wait for the next datagram or timer.
//!     let timers = ends.iter_mut().filter_map(|end| end.poll_timeout().map(|(at, _)| at));
//!     let next = timers.chain(link.front().map(|&(at, ..)| at)).min().expect("a connection has a timer");
//!     now = now.max(next);
//!     while link.front().is_some_and(|&(at, ..)| at <= now) {
//!         let (at, to, mut datagram) = link.pop_front().expect("there is one");
//!         let from = address(1 - to);
//!         ends[to].handle_datagram(Received { at, from, to: None, ecn: None, datagram: &mut datagram });
//!     }
//!     ends.iter_mut().for_each(|end| end.handle_timeout(now));
//! }
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::exhaustive_enums, unreachable_pub)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod close;
pub mod codel;
pub mod config;
pub mod connection;
mod counts;
pub mod crypto;
mod custom;
pub mod endpoint;
mod event;
pub mod handshake;
#[cfg(test)]
mod hex;
mod ids;
mod lane;
pub mod path;
pub mod profile;
pub mod rate;
pub mod recode;
pub mod redundancy;
pub mod relay;
pub mod stats;
mod time;
pub mod trace;
pub mod tunnel;
pub mod wire;

pub use custom::Custom;
pub use time::Time;
