//! The simulator: links without clock or I/O, and the scenarios that describe them.
//!
//! - [`link`]: one direction of a link. Datagrams go in with a time and come out with a time.
//! - [`duplex`]: two such directions, forward and back.
//! - [`scenario`], [`settings`] and [`work`]: the same configuration as a TOML file and as options of a
//!   command line.
//! - [`pair`], [`load`] and [`report`]: two endpoints over a link, the bytes they carry, and the results.
//! - [`video`]: frames as a load, and the playback buffer of their receiver.
//! - [`nonces`]: an oracle that detects when a key seals twice under one nonce.
//! - [`grid`]: redundancy policies over many links, compared with the best of all policies.
//! - [`tcp`]: flows of TCP, alone or beside ours.
//! - [`chain`]: a path with relays that recode.
//! - [`network`]: nodes, links and routers, and flows of every kind between the nodes.
//! - [`crowd`] and [`host`]: many clients of one server, on machines that are slow, pause and drop.
//! - [`ideal`]: the papers' codes without a protocol, packet by packet.
//! - [`replay`]: a recorded flow over its recorded path, with other choices.
//! - [`rebinding`]: gives one of the ends another address from time to time.
//!
//! The caller owns the clock, virtual or real. After every [`Link::send`](link::Link::send) ask
//! [`poll_timeout`](link::Link::poll_timeout) when to come back, and then take deliveries until there are
//! none:
//!
//! ```
//! use std::path::Path;
//! use tidewire_proto::Time;
//! use tidewire_sim::duplex::DuplexLink;
//! use tidewire_sim::link::Fate;
//! use tidewire_sim::scenario::Scenario;
//!
//! let text = r#"
//!     seed = 7
//!     [link]
//!     rate = "8mbit"
//!     rtt = "60ms"
//!     [forward]
//!     loss = "gilbert:10%,4"
//! "#;
//! let scenario = Scenario::parse(text, Path::new("lossy.toml"))?;
//! let mut link = DuplexLink::new(&scenario.link);
//!
//! // 972 bytes and 28 of headers take 1 ms at 8 Mbit/s, and then 30 ms to arrive.
//! let datagram = vec![0; 972];
//! let fate = link.forward.send(Time::ZERO, datagram.len(), datagram);
//! assert_eq!(fate, Fate::Carried { arrives: Time::from_millis(31) });
//!
//! while let Some(now) = link.poll_timeout() {
//!     while let Some(mut delivery) = link.forward.poll_delivery(now) {
//!         if let Some(corruption) = delivery.corruption {
//!             corruption.apply(&mut delivery.payload);
//!         }
//!         // ... hand delivery.payload to the far end, which may send on link.back.
//!     }
//! }
//! assert_eq!(link.forward.stats().delivered, 1);
//! # Ok::<(), tidewire_sim::scenario::ScenarioError>(())
//! ```

#![forbid(unsafe_code)]

mod agenda;
pub mod chain;
pub mod clock;
pub mod crowd;
pub mod duplex;
pub mod grid;
pub mod host;
pub mod ideal;
mod jobs;
mod ledger;
pub mod link;
pub mod load;
pub mod network;
pub mod nonces;
pub mod pair;
pub mod pcap;
pub mod rebinding;
pub mod replay;
pub mod report;
pub mod scenario;
pub mod series;
pub mod settings;
pub mod tcp;
pub mod video;
pub mod work;
