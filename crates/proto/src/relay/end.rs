//! An end of a path with relays: the end-to-end session whose datagrams are symbols of the relayed lane.
//!
//! The driver owns both endpoints: that of the hop, and that of the end-to-end session, which it treats like
//! any endpoint without a socket. It calls [`End::drive`] after each change of either. Invariant: a symbol
//! that does not belong to the session ends it, and nothing after that is delivered.

#[cfg(test)]
mod tests;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::decoding::Decoding;
use crate::Time;
use crate::config::{Config, ConfigError};
use crate::connection::{CloseCode, Connection, Received};
use crate::crypto::PublicKey;
use crate::endpoint::Endpoint;
use crate::path::BASE_DATAGRAM;
use crate::profile::{self, Profile};
use crate::rate::RateControl;
use crate::recode::{MAX_RELAYED_DATAGRAM, RELAYED_DATAGRAM, RELAYED_HEADER, RELAYED_SYMBOL};
use crate::wire::{Datagram, Recoded};

/// An address for the other end in the end-to-end session, where nobody looks at it.
pub const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Rate of the end-to-end session in bits per second: as much as its hop takes.
const UNLIMITED: u64 = 1 << 40;

/// The configuration of an end-to-end session, from one of ordinary sessions: no repairs and no rate control
/// of its own, because the hops have both. Its datagrams are at most `datagram` bytes long:
/// [`RELAYED_DATAGRAM`], which every hop carries, or from 1,200 to [`MAX_RELAYED_DATAGRAM`], and then every
/// hop must carry 103 bytes more.
///
/// # Errors
/// A choice of `config` does not fit these.
pub fn end_to_end(config: &Config, datagram: u16) -> Result<Config, ConfigError> {
    let rate_control = RateControl::Fixed { bits_per_second: UNLIMITED };
    let profile = Profile { rate_control, delivery: config.delivery(), ..profile::ARQ };
    // The limit holds for what probes find; 1,200 is the least that can be announced.
    let limit = datagram.clamp(BASE_DATAGRAM, MAX_RELAYED_DATAGRAM);
    let builder = config.to_builder().max_datagram(limit).probe_size(datagram >= limit).relaying(None);
    let builder = builder.profile(profile).asks_peer(false).follows_peer(false).max_rate(None).workers(0);
    Ok(builder.build()?.with_base(RELAYED_DATAGRAM))
}

/// Who may have changed symbols on their way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Suspects {
    /// Address of the relay of our hop.
    pub nearest: SocketAddr,
    /// Its public key, if keys authenticate the hop.
    pub key: Option<PublicKey>,
    /// Number of relays that symbols passed, the nearest included. With 1, the nearest did it.
    pub relays: u8,
}

impl fmt::Display for Suspects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.relays {
            0 | 1 => write!(f, "relay {} changed symbols", self.nearest),
            relays => write!(
                f,
                "one of {relays} relays changed symbols: {}, or one of the {} before it",
                self.nearest,
                relays - 1
            ),
        }
    }
}

/// An end; see the module.
#[derive(Debug)]
pub struct End {
    /// The address of the other end in the session.
    peer: SocketAddr,
    decoding: Decoding,
    buffer: Vec<u8>,
    suspects: Option<Suspects>,
    has_told: bool,
    delivered: u64,
    /// When the hop last had no room for all datagrams of the session; `None` if it had room.
    full: Option<Time>,
}

impl End {
    /// An end whose end-to-end session knows the other end as `peer`. No packet is sent there: the address is
    /// what the application sees. The endpoint of the session has the configuration of [`end_to_end`], and
    /// the end that begins connects it to `peer`.
    pub fn new(peer: SocketAddr) -> Self {
        let (decoding, buffer) = (Decoding::default(), vec![0; RELAYED_SYMBOL.next_multiple_of(64)]);
        Self { peer, decoding, buffer, suspects: None, has_told: false, delivered: 0, full: None }
    }

    /// Number of symbols that were passed to the session.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Who may have changed symbols; only once, when it was found.
    pub fn poll_polluted(&mut self) -> Option<Suspects> {
        let suspects = self.suspects.clone().filter(|_| !self.has_told);
        self.has_told |= suspects.is_some();
        suspects
    }

    /// When to call [`Endpoint::handle_timeout`] of the end-to-end session, and then [`Self::drive`]. While
    /// the hop has no room, datagrams that are due wait for it, and not for a timer.
    pub fn poll_timeout(&self, session: &mut Endpoint) -> Option<Time> {
        let (at, _) = session.poll_timeout()?;
        self.full.is_none_or(|full| at > full).then_some(at)
    }

    /// Takes symbols from the hop and gives it others.
    pub fn drive(&mut self, now: Time, hop: &mut Connection, session: &mut Endpoint) {
        hop.take_recoded(|row: Recoded<'_>| self.decoding.receive(&row));
        while self.suspects.is_none()
            && let Some(len) = self.decoding.poll(&mut self.buffer)
        {
            if self.deliver(now, len, session) {
                self.delivered += 1;
            } else {
                self.accuse(now, hop, session);
            }
        }
        hop.release_recoded(now, self.decoding.edge());
        self.fill(now, hop, session);
        if self.suspects.is_some() && session.connections().next().is_none() {
            hop.close(now, CloseCode::Polluted, "symbols were changed on the way");
        }
    }

    /// Passes a symbol to the session. Returns false if it shows pollution.
    fn deliver(&mut self, now: Time, len: usize, session: &mut Endpoint) -> bool {
        let is_established = session.connections().any(|(_, connection)| connection.is_established());
        let before = refused(session);
        let symbol = self.buffer.get_mut(..len).unwrap_or_default();
        let datagram = symbol.split_first_chunk_mut::<RELAYED_HEADER>().and_then(|(length, rest)| {
            let length = usize::from(u16::from_be_bytes(*length));
            rest.get_mut(..length)
        });
        let Some(datagram) = datagram else { return !is_established };
        // An end that heard nothing for long asks by a handshake (docs/wire.md section 3), and its answer may
        // come when nobody waits for it any more.
        let is_established = is_established && !matches!(Datagram::parse(datagram), Ok(Datagram::Long(_)));
        session.handle_datagram(Received { at: now, from: self.peer, to: None, ecn: None, datagram });
        !is_established || refused(session) == before
    }

    /// Ends the session because of pollution.
    fn accuse(&mut self, now: Time, hop: &Connection, session: &mut Endpoint) {
        let suspects = Suspects { nearest: hop.remote(), key: hop.peer_key(), relays: hop.relays() };
        let handles: Vec<_> = session.connections().map(|(handle, _)| handle).collect();
        for handle in handles {
            if let Some(connection) = session.connection_mut(handle) {
                connection.close(now, CloseCode::Polluted, &suspects.to_string());
            }
        }
        self.suspects = Some(suspects);
    }

    /// Makes symbols of the session's datagrams while the hop takes them.
    fn fill(&mut self, now: Time, hop: &mut Connection, session: &mut Endpoint) {
        self.full = None;
        loop {
            if !hop.has_relayed_room() {
                self.full = Some(now);
                return;
            }
            let Some(datagram) = self.buffer.get_mut(RELAYED_HEADER..RELAYED_SYMBOL) else { return };
            let Some(transmit) = session.poll_transmit(now, 1, datagram) else { return };
            let Some((head, _)) = self.buffer.split_first_chunk_mut::<RELAYED_HEADER>() else { return };
            *head = (transmit.len as u16).to_be_bytes();
            let pushed = hop.push_relayed(self.buffer.get(..RELAYED_HEADER + transmit.len).unwrap_or_default());
            debug_assert!(pushed, "the hop has room");
        }
    }
}

/// Number of datagrams that the session's endpoint refused, except handshake packets that came twice.
fn refused(session: &Endpoint) -> u64 {
    let stats = session.stats();
    let tags = session.connections().map(|(_, connection)| connection.refused_tags()).sum::<u64>();
    stats.malformed + stats.unknown + stats.strangers + tags
}
