//! Paths with relays: what joins the hops of a relay, and what an end puts over its hop (docs/wire.md section
//! 8, `docs/relay.md`).
//!
//! A driver owns the endpoints. A relay has two, one that listens and one that connects, and a [`Relay`]. An
//! end has one for its hop, and an [`End`], which has the endpoint of the end-to-end session inside. After
//! each change of an endpoint the driver calls `drive`. Invariants: a relay opens hops only to the address it
//! was given; it never decodes; rows of one pair of hops never reach another. No owner of hops keeps out one
//! that has two pairs fewer.

mod decoding;
mod end;

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::collections::VecDeque;

use crate::Time;
use crate::config::{Config, ConfigError};
use crate::connection::{CloseCode, CloseReason, Connection, Event};
use crate::crypto::PublicKey;
use crate::endpoint::{ConnectionHandle, Endpoint};
use crate::profile::{self, Profile};
use crate::recode::{MOST_REDUNDANCY, RelayStats, Relaying};
use crate::redundancy::{Proactive, Ratio};

pub use end::{End, PEER, Suspects, end_to_end};

/// Pairs of hops that a relay has at once. With the default settings a pair takes at most 12 MB. Chosen.
pub const MOST_PAIRS: usize = 64;
/// Reports that wait for [`Relay::poll_report`]; older ones are dropped. Chosen: two for each pair.
const MOST_REPORTS: usize = 2 * MOST_PAIRS;

/// The configuration of a hop that recodes as `config` says ([`Config::relaying`], by default
/// [`Relaying::default`]). Lanes of its own have no use there, so no code and no repairs of `config` apply.
///
/// # Errors
/// A choice of `config` does not fit these.
pub fn hop(config: &Config) -> Result<Config, ConfigError> {
    let profile = Profile { rate_control: config.rate_control(), ..profile::ARQ };
    let relaying = relaying(config)?;
    let builder = config.to_builder().profile(profile).asks_peer(false).follows_peer(false).workers(0);
    builder.relaying(Some(relaying)).build()
}

/// How the hop of an end recodes: as [`Config::relaying`] says. Without it, the profile `pipeline:G,R` means
/// generations of G symbols and R packets for each; each symbol joins the open generation at once, as there.
///
/// # Errors
/// The profile codes in another way, which no hop does.
pub fn relaying(config: &Config) -> Result<Relaying, ConfigError> {
    let (profile, usual) = (config.profile(), Profile::default());
    let redundancy = match profile.redundancy.proactive {
        _ if config.relaying().is_some() => return Ok(config.relaying().unwrap_or_default()),
        Proactive::Pipeline(blocks) if !blocks.systematic => match blocks.ratio {
            Ratio::Fixed(ratio) if ratio <= MOST_REDUNDANCY => Some((blocks.symbols, Some(ratio))),
            Ratio::Least => Some((blocks.symbols, None)),
            _ => None,
        },
        _ if (profile.code, profile.layout, profile.redundancy) == (usual.code, usual.layout, usual.redundancy) => {
            return Ok(Relaying::default());
        }
        _ => None,
    };
    let allowed = "the default over relays, which repair each hop by themselves, or pipeline:G,R with G from 1 to 64 \
                   symbols and R from 1 to 2 or min";
    let (length, redundancy) = redundancy.ok_or(ConfigError::Range { field: "profile", allowed })?;
    Ok(Relaying { length: u8::try_from(length).unwrap_or(u8::MAX), redundancy, ..Relaying::default() })
}

/// What happened to a path through a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// A hop was accepted from this address, and the next hop is being opened.
    Opened {
        /// Address of the end, or of the relay before.
        from: SocketAddr,
    },
    /// A hop was closed because the relay has [`MOST_PAIRS`] pairs and its owner has its part of them, or
    /// because the next hop cannot be opened.
    NoRoom {
        /// Address of the end, or of the relay before.
        from: SocketAddr,
    },
    /// A hop of the path is over, and the other was closed.
    Over {
        /// Address of the end, or of the relay before.
        from: SocketAddr,
        /// The address at the other end of the hop that was over first.
        at: SocketAddr,
        /// Why that hop is over.
        reason: CloseReason,
    },
}

/// A hop from the end that connected, and the hop on to the configured address.
#[derive(Clone, Copy, Debug)]
struct Pair {
    near: ConnectionHandle,
    far: ConnectionHandle,
    from: SocketAddr,
    owner: Owner,
}

/// Who opened a hop. All who share a secret and an address are one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The key that it proved to have.
    Key(PublicKey),
    /// Its address when the hop was made: of IPv6 the /64, because a host has all of it.
    Address(IpAddr),
}

impl Owner {
    fn of(hop: &Connection) -> Self {
        match (hop.peer_key(), hop.remote().ip().to_canonical()) {
            (Some(key), _) => Self::Key(key),
            (None, IpAddr::V6(ip)) => Self::Address(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into()),
            (None, ip) => Self::Address(ip),
        }
    }
}

/// Joins each hop that was accepted with one to a fixed address; see the module.
#[derive(Debug)]
pub struct Relay {
    to: SocketAddr,
    key: Option<PublicKey>,
    pairs: Vec<Pair>,
    passed: RelayStats,
    polluted: u64,
    reports: VecDeque<Report>,
}

impl Relay {
    /// A relay to this address. `key` is the public key of the next hop, if keys authenticate the hops.
    pub fn new(to: SocketAddr, key: Option<PublicKey>) -> Self {
        Self { to, key, pairs: Vec::new(), passed: RelayStats::default(), polluted: 0, reports: VecDeque::new() }
    }

    /// Number of pairs of hops.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Number of paths that a neighbour closed because symbols were changed on the way.
    pub fn polluted(&self) -> u64 {
        self.polluted
    }

    /// What happened to a path since the last call.
    pub fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    /// Counts of the relayed lanes of all hops, those that are over included, with both directions together.
    pub fn stats(&self, near: &Endpoint, far: &Endpoint) -> RelayStats {
        let mut sum = self.passed;
        for pair in &self.pairs {
            let hops = [near.connection(pair.near), far.connection(pair.far)];
            hops.into_iter().flatten().for_each(|hop| sum += hop.relay_stats());
        }
        sum
    }

    /// Handles the events of both endpoints and moves rows. `near` listens, `far` connects.
    pub fn drive(&mut self, now: Time, near: &mut Endpoint, far: &mut Endpoint) {
        while let Some((handle, event)) = near.poll_event() {
            match event {
                Event::Connected => self.begin(now, handle, near, far),
                Event::Closed(reason) => {
                    let Some(index) = self.pairs.iter().position(|pair| pair.near == handle) else { continue };
                    let pair = self.pairs.swap_remove(index);
                    self.end(now, pair, pair.from, reason, near, far);
                }
                event => refuse(now, near, handle, &event),
            }
        }
        while let Some((handle, event)) = far.poll_event() {
            match event {
                Event::Closed(reason) => {
                    let Some(index) = self.pairs.iter().position(|pair| pair.far == handle) else { continue };
                    let pair = self.pairs.swap_remove(index);
                    self.end(now, pair, self.to, reason, near, far);
                }
                event => refuse(now, far, handle, &event),
            }
        }
        for &Pair { near: a, far: b, .. } in &self.pairs {
            pass(now, (near, a), (far, b));
            pass(now, (far, b), (near, a));
        }
    }

    /// Opens the next hop for a hop that was accepted.
    fn begin(&mut self, now: Time, handle: ConnectionHandle, near: &mut Endpoint, far: &mut Endpoint) {
        let Some((from, owner)) = near.connection(handle).map(|hop| (hop.remote(), Owner::of(hop))) else { return };
        if self.pairs.len() >= MOST_PAIRS {
            self.make_room(now, owner, near, far);
        }
        let opened = (self.pairs.len() < MOST_PAIRS).then(|| match &self.key {
            Some(key) => far.connect_to(now, self.to, key),
            None => far.connect(now, self.to),
        });
        if let Some(Ok(next)) = opened {
            self.pairs.push(Pair { near: handle, far: next, from, owner });
            self.report(Report::Opened { from });
        } else if let Some(hop) = near.connection_mut(handle) {
            hop.close(now, CloseCode::Refused, "the relay has no room for another path");
            self.report(Report::NoRoom { from });
        }
    }

    /// Ends the newest pair of the owner that has the most, if `owner` has at least two fewer.
    fn make_room(&mut self, now: Time, owner: Owner, near: &mut Endpoint, far: &mut Endpoint) {
        let count = |owner: Owner| self.pairs.iter().filter(|pair| pair.owner == owner).count();
        let greediest = self.pairs.iter().enumerate().max_by_key(|(_, pair)| (count(pair.owner), pair.near));
        let Some((index, greediest)) = greediest else { return };
        if count(greediest.owner) < count(owner) + 2 {
            return;
        }
        let pair = self.pairs.swap_remove(index);
        self.close(now, pair, (CloseCode::Refused, "the relay gives this place to another peer"), near, far);
        self.report(Report::Over { from: pair.from, at: pair.from, reason: CloseReason::Local });
    }

    /// Closes the other hop of a pair whose hop to `at` is over, and tells the reason there.
    fn end(
        &mut self,
        now: Time,
        pair: Pair,
        at: SocketAddr,
        reason: CloseReason,
        near: &mut Endpoint,
        far: &mut Endpoint,
    ) {
        let (code, words) = told(&reason, at);
        self.close(now, pair, (code, &words), near, far);
        self.polluted += u64::from(code == CloseCode::Polluted);
        self.report(Report::Over { from: pair.from, at, reason });
    }

    /// Closes the hops of a pair that are there.
    fn close(
        &mut self,
        now: Time,
        pair: Pair,
        (code, words): (CloseCode, &str),
        near: &mut Endpoint,
        far: &mut Endpoint,
    ) {
        for (endpoint, handle) in [(near, pair.near), (far, pair.far)] {
            if let Some(hop) = endpoint.connection_mut(handle) {
                self.passed += hop.relay_stats();
                hop.close(now, code, words);
            }
        }
    }

    fn report(&mut self, report: Report) {
        if self.reports.len() >= MOST_REPORTS {
            self.reports.pop_front();
        }
        self.reports.push_back(report);
    }
}

/// The code and the words with which the other hop of a pair is closed, after the hop to `at` was over.
fn told(reason: &CloseReason, at: SocketAddr) -> (CloseCode, String) {
    match reason {
        CloseReason::Peer { code: code @ (CloseCode::Done | CloseCode::Polluted), reason } => (*code, reason.clone()),
        reason => (CloseCode::Refused, format!("the relay's hop to {at}: {reason}")),
    }
}

/// Closes a hop whose peer sends a stream or a message to the relay itself, which would keep it unread.
fn refuse(now: Time, endpoint: &mut Endpoint, handle: ConnectionHandle, event: &Event) {
    if let Event::StreamOpened(_) | Event::MessageReadable = event
        && let Some(hop) = endpoint.connection_mut(handle)
    {
        hop.close(now, CloseCode::Refused, "a relay takes no streams and no messages");
    }
}

/// Passes the rows that came over one hop on to the next, and the room that the next hop gave back.
fn pass(now: Time, (from, a): (&mut Endpoint, ConnectionHandle), (to, b): (&mut Endpoint, ConnectionHandle)) {
    let (Some(source), Some(target)) = (from.connection(a), to.connection(b)) else { return };
    if !source.has_recoded() && target.recoded_base() <= source.recoded_released() {
        return;
    }
    let (Some(source), Some(target)) = (from.connection_mut(a), to.connection_mut(b)) else { return };
    join(now, source, target);
    to.bound_memory(now, b);
}

/// Passes rows from one hop to the next.
fn join(now: Time, source: &mut Connection, target: &mut Connection) {
    source.take_recoded(|row| {
        let kept = target.forward_recoded(row);
        debug_assert!(kept, "a row that is innovative on one hop is so on the next");
    });
    source.release_recoded(now, target.recoded_base());
}
