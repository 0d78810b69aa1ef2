//! Placement: one shard answers a HELLO, and the shard with the least load gets the session.
//!
//! The driver chooses that shard. The connection id in the REPLY names it, so all later datagrams of the peer
//! lead to it. Cookies and cached REPLYs stay where the HELLO came, and where copies of it come. Without a
//! driver that chooses, a session stays at its endpoint.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{Endpoint, Shard};
use crate::Time;
use crate::connection::Received;
use crate::handshake::{Accepted, Route, Terms};
use crate::wire::{Datagram, LongKind};

/// A half-open session on its way from the shard that answered its HELLO to the shard that its id names.
pub struct Handover {
    accepted: Accepted,
    route: Route,
    at: Time,
    /// Set when the REPLY was sent to a second address.
    spread: Arc<AtomicBool>,
}

impl Endpoint {
    /// Handles a HELLO that came to this shard. `full` is whether no shard has room. The session that the
    /// HELLO makes belongs to the shard that `place` chooses, which is asked only then. If that is another
    /// one, returns what that shard has to [take](Self::take_over) before this one sends anything.
    /// Otherwise, and for every other datagram, this is [`Self::handle_datagram`].
    pub fn handle_placed(
        &mut self,
        received: Received<'_>,
        full: bool,
        place: impl FnOnce() -> Shard,
    ) -> Option<Handover> {
        let Ok(Datagram::Long(header)) = Datagram::parse(received.datagram) else {
            self.handle_datagram(received);
            return None;
        };
        if header.kind != LongKind::Hello {
            self.handle_datagram(received);
            return None;
        }
        let known = self.knows(&header.destination);
        self.stats.received += 1;
        self.dropped.forget(received.at);
        self.handle_hello(&received, known, full, place)
    }

    /// Takes a half-open session from the shard that answered its HELLO.
    pub fn take_over(&mut self, Handover { accepted, route, at, spread }: Handover) {
        self.half_open.expire(at);
        // Its id is random, and this shard has none like it.
        let id = accepted.local();
        if !self.knows(&id) {
            self.stats.displaced += self.half_open.insert(accepted, route, at);
            self.half_open.answered_elsewhere(id, spread);
        }
    }

    /// Number of connections and half-open sessions; `None` if there is no room for another connection.
    pub fn load(&self) -> Option<usize> {
        (!self.is_full()).then(|| self.connections.len() + self.half_open.len())
    }

    pub(super) fn handle_hello(
        &mut self,
        received: &Received<'_>,
        known: bool,
        full: bool,
        place: impl FnOnce() -> Shard,
    ) -> Option<Handover> {
        // An inquiry about a connection of this endpoint is answered even when the endpoint is full.
        if !known && full {
            self.stats.full += 1;
            return None;
        }
        let (at, route) = (received.at, Route { remote: received.from, local: received.to });
        self.half_open.expire(at);
        let mut source = self.fresh_id();
        let Some(responder) = &mut self.responder else {
            self.stats.strangers += 1;
            return None;
        };
        let (own, mut owner, spread) = (self.shard, self.shard, Arc::<AtomicBool>::default());
        let accepted = responder.handle_hello_on(at, route, received.datagram, || {
            // What asks about a connection of this shard makes none elsewhere.
            owner = if known { own } else { place() };
            if owner != own {
                owner.mark(&mut source);
            }
            let elsewhere = (owner != own).then(|| Arc::clone(&spread));
            (Terms { parameters: self.parameters, source, known }, elsewhere)
        });
        if let Some(session) = responder.take_spread() {
            self.half_open.spread(&session);
        }
        let accepted = accepted?;
        if owner != own {
            return Some(Handover { accepted, route, at, spread });
        }
        self.stats.displaced += self.half_open.insert(accepted, route, at);
        None
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;
    use core::num::NonZeroU16;

    use super::*;
    use crate::config::Config;
    use crate::crypto::{AwsLc, Secret};
    use crate::endpoint::EndpointConfig;
    use crate::handshake::{Initiator, Parameters};
    use crate::wire::{ConnectionId, HELLO_LEN};

    fn shard(index: u16) -> Endpoint {
        let config = EndpointConfig {
            credentials: Secret::new([7; 32]).into(),
            listen: true,
            connection: Config::default(),
            provider: Arc::new(AwsLc),
        };
        let shard = Shard::new(index, NonZeroU16::new(2).expect("not 0")).expect("one of two");
        Endpoint::new(config, [index as u8; 32]).with_shard(shard)
    }

    /// A different HELLO for each `nth`, which may ask about a connection.
    fn hello(nth: u8, asks: Option<ConnectionId>) -> [u8; HELLO_LEN] {
        let (secret, id, parameters) = (Secret::new([7; 32]), ConnectionId([nth; 8]), Parameters::default());
        let (provider, now) = (Arc::new(AwsLc), Time::ZERO);
        let mut initiator = match asks {
            None => Initiator::new(&secret, id, &parameters, provider, [nth; 32], now),
            Some(asks) => Initiator::asking_after(asks, &secret, id, &parameters, provider, [nth; 32], now),
        };
        let mut hello = [0; HELLO_LEN];
        initiator.poll_transmit(now, &mut hello).expect("a HELLO");
        hello
    }

    /// Shard 0 gets the HELLO from an address, and places it at shard 1.
    fn give(first: &mut Endpoint, host: u8, hello: &[u8]) -> Option<Handover> {
        let from = SocketAddr::from(([192, 0, 2, host], 4_000));
        let received = Received { at: Time::ZERO, from, to: None, ecn: None, datagram: &mut hello.to_vec() };
        let other = Shard::new(1, NonZeroU16::new(2).expect("not 0")).expect("one of two");
        first.handle_placed(received, false, || other)
    }

    /// What is sent to a second address by one shard, before or after the hand-over, is known to the other.
    #[test]
    fn a_reply_to_a_second_address_proves_neither() {
        for (nth, before, after) in [(1, 1, 1), (2, 2, 1), (3, 1, 2)] {
            let (mut first, mut second, hello) = (shard(0), shard(1), hello(nth, None));
            let session = give(&mut first, 1, &hello).expect("placed at the other");
            let spread = Arc::clone(&session.spread);
            assert!(give(&mut first, before, &hello).is_none(), "a copy makes no session");
            let id = session.accepted.local();
            second.take_over(session);
            assert!(give(&mut first, after, &hello).is_none());
            let (_, asked) = second.half_open.get(&id).expect("half-open");
            assert_eq!(asked.alone, before == 1 && after == 1);
            assert_eq!((first.half_open.len(), second.load()), (0, Some(1)));
            // What both shards keep of it goes when it expires.
            let later = Time::from_millis(60_000);
            for shard in [&mut first, &mut second] {
                shard.handle_timeout(later);
            }
            assert_eq!(Arc::strong_count(&spread), 1);
        }
    }

    /// A listener that is full at every shard answers nobody, but questions about a connection of its own.
    #[test]
    fn a_full_listener_answers_questions_alone() {
        let mut first = shard(0);
        let from = SocketAddr::from(([192, 0, 2, 1], 4_000));
        let mut come = |hello: [u8; HELLO_LEN], full, place: &dyn Fn() -> Shard| {
            let received = Received { at: Time::ZERO, from, to: None, ecn: None, datagram: &mut hello.to_vec() };
            let placed = first.handle_placed(received, full, place);
            assert!(placed.is_none());
            let stats = first.stats();
            (stats.full, stats.hellos.accepted, first.half_open.newest())
        };
        let own = Shard::new(0, NonZeroU16::new(2).expect("not 0")).expect("one of two");
        let nowhere = || panic!("no place is asked for");
        assert_eq!(come(hello(1, None), true, &nowhere), (1, 0, None));
        let (.., id) = come(hello(1, None), false, &|| own);
        assert!(id.is_some());
        // Its session stays here as well.
        let (full, accepted, _) = come(hello(2, id), true, &nowhere);
        assert_eq!((full, accepted), (1, 2));
    }
}
