//! An end of a path with relays: the end-to-end session whose datagrams are symbols of the relayed lane.
//!
//! The driver of a hop's endpoint calls [`End::drive`] after each change of the hop, and treats
//! [`End::endpoint_mut`] like any endpoint without a socket: its events, its timer, its connections.
//! Invariant: a symbol that does not belong to the session ends it, and nothing after that is delivered.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::decoding::Decoding;
use crate::Time;
use crate::config::{Config, ConfigError};
use crate::connection::{CloseCode, Connection, Received};
use crate::crypto::PublicKey;
use crate::endpoint::Endpoint;
use crate::rate::RateControl;
use crate::recode::{MAX_RELAYED_DATAGRAM, RELAYED_DATAGRAM, RELAYED_HEADER, RELAYED_SYMBOL};
use crate::redundancy::Redundancy;
use crate::wire::{Datagram, Recoded};

/// The address of the other end in the end-to-end session, which has no address of its own.
pub const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Rate of the end-to-end session in bits per second: as much as its hop takes.
const UNLIMITED: u64 = 1 << 40;

/// The configuration of an end-to-end session, from one of ordinary sessions: no repairs and no rate control
/// of its own, because the hops have both. Its datagrams are at most `datagram` bytes long, from
/// [`RELAYED_DATAGRAM`] to [`MAX_RELAYED_DATAGRAM`]; every hop must carry 103 bytes more.
///
/// # Errors
/// A choice of `config` does not fit these.
pub fn end_to_end(config: &Config, datagram: u16) -> Result<Config, ConfigError> {
    let datagram = datagram.clamp(RELAYED_DATAGRAM, MAX_RELAYED_DATAGRAM);
    let probe = datagram > RELAYED_DATAGRAM;
    let builder = config.to_builder().max_datagram(datagram).probe_size(probe).relaying(None);
    builder.redundancy(Redundancy::ARQ).rate_control(RateControl::Fixed { bits_per_second: UNLIMITED }).build()
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
    session: Endpoint,
    decoding: Decoding,
    buffer: Vec<u8>,
    suspects: Option<Suspects>,
    has_told: bool,
    delivered: u64,
    /// When the hop last had no room for all datagrams of the session; `None` if it had room.
    full: Option<Time>,
}

impl End {
    /// An end with this endpoint for the end-to-end session, which has the configuration of [`end_to_end`].
    pub fn new(session: Endpoint) -> Self {
        let (decoding, buffer) = (Decoding::default(), vec![0; RELAYED_SYMBOL.next_multiple_of(64)]);
        Self { session, decoding, buffer, suspects: None, has_told: false, delivered: 0, full: None }
    }

    /// The endpoint of the end-to-end session.
    pub fn endpoint(&self) -> &Endpoint {
        &self.session
    }

    /// The endpoint of the end-to-end session. The one that begins it connects to [`PEER`].
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.session
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
    pub fn poll_timeout(&mut self) -> Option<Time> {
        let (at, _) = self.session.poll_timeout()?;
        self.full.is_none_or(|full| at > full).then_some(at)
    }

    /// Takes symbols from the hop and gives it others.
    pub fn drive(&mut self, now: Time, hop: &mut Connection) {
        hop.take_recoded(|row: Recoded<'_>| self.decoding.receive(&row));
        while self.suspects.is_none()
            && let Some(len) = self.decoding.poll(&mut self.buffer)
        {
            if self.deliver(now, len) {
                self.delivered += 1;
            } else {
                self.accuse(now, hop);
            }
        }
        hop.release_recoded(now, self.decoding.edge());
        self.fill(now, hop);
        if self.suspects.is_some() && self.session.connections().next().is_none() {
            hop.close(now, CloseCode::Polluted, "symbols were changed on the way");
        }
    }

    /// Passes a symbol to the session. Returns false if it shows pollution.
    fn deliver(&mut self, now: Time, len: usize) -> bool {
        let is_established = self.session.connections().any(|(_, connection)| connection.is_established());
        let before = self.refused();
        let symbol = self.buffer.get_mut(..len).unwrap_or_default();
        let datagram = symbol.split_first_chunk_mut::<RELAYED_HEADER>().and_then(|(length, rest)| {
            let length = usize::from(u16::from_be_bytes(*length));
            rest.get_mut(..length)
        });
        let Some(datagram) = datagram else { return !is_established };
        // An end that heard nothing for long asks by a handshake (docs/wire.md section 3), and its answer may
        // come when nobody waits for it any more.
        let is_established = is_established && !matches!(Datagram::parse(datagram), Ok(Datagram::Long(_)));
        self.session.handle_datagram(Received { at: now, from: PEER, to: None, ecn: None, datagram });
        !is_established || self.refused() == before
    }

    /// Number of datagrams that the session's endpoint refused, except handshake packets that came twice.
    fn refused(&self) -> u64 {
        let stats = self.session.stats();
        let tags = self.session.connections().map(|(_, connection)| connection.refused_tags()).sum::<u64>();
        stats.malformed + stats.unknown + stats.strangers + tags
    }

    /// Ends the session because of pollution.
    fn accuse(&mut self, now: Time, hop: &Connection) {
        let suspects = Suspects { nearest: hop.remote(), key: hop.peer_key(), relays: hop.relays() };
        let handles: Vec<_> = self.session.connections().map(|(handle, _)| handle).collect();
        for handle in handles {
            if let Some(connection) = self.session.connection_mut(handle) {
                connection.close(now, CloseCode::Polluted, &suspects.to_string());
            }
        }
        self.suspects = Some(suspects);
    }

    /// Makes symbols of the session's datagrams while the hop takes them.
    fn fill(&mut self, now: Time, hop: &mut Connection) {
        self.full = None;
        loop {
            if !hop.has_relayed_room() {
                self.full = Some(now);
                return;
            }
            let Some(datagram) = self.buffer.get_mut(RELAYED_HEADER..RELAYED_SYMBOL) else { return };
            let Some(transmit) = self.session.poll_transmit(now, 1, datagram) else { return };
            let Some((head, _)) = self.buffer.split_first_chunk_mut::<RELAYED_HEADER>() else { return };
            *head = (transmit.len as u16).to_be_bytes();
            let pushed = hop.push_relayed(self.buffer.get(..RELAYED_HEADER + transmit.len).unwrap_or_default());
            debug_assert!(pushed, "the hop has room");
        }
    }
}
