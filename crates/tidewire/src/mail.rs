//! What the shards of an endpoint pass to each other: sessions, and datagrams that came to the wrong socket.
//!
//! A connection lives at the shard that its id names (wire.md section 1.2). A HELLO is answered by the shard
//! that its destination id names: that one knows the connection that it may ask about, and gets all copies.
//! The shard with the least load gets the session ([`crate::placement`]). If its mailbox has no room, the
//! shard that answers keeps the session, so none is lost.
//!
//! On Linux the kernel gives datagrams to the socket that the id names. Where it does not, the shard whose
//! socket got the HELLO gets the session, since later datagrams of that sender come there too. What comes to
//! another socket, as after a change of the peer's address, goes into the mailbox of the right shard. Nothing
//! waits in this module, which drivers call. A full mailbox drops datagrams, as a full socket does, and
//! counts them.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_proto::Time;
use tidewire_proto::connection::Received;
use tidewire_proto::endpoint::{Handover, Shard};
use tidewire_proto::path::Ecn;
use tidewire_proto::wire::{Datagram, LongKind};

use crate::placement::Loads;
use crate::shared::{Shared, State};
use crate::sync::mpsc;

/// Maximum number of datagrams in one mailbox: about 1.5 MB of Ethernet size. Chosen.
pub(crate) const MAILBOX: usize = 1_024;
/// Datagrams taken out before the socket has its turn: as many as one system call returns.
const TURN: usize = 32;

/// What one shard passes to another.
enum Letter {
    /// A datagram that came to the socket of shard `by`.
    Datagram {
        by: u16,
        from: SocketAddr,
        to: Option<IpAddr>,
        ecn: Option<Ecn>,
        datagram: Box<[u8]>,
    },
    Session(Box<Handover>),
}

/// The mailbox of one shard, and access to those of the others.
pub(crate) struct Mail {
    index: u16,
    boxes: Arc<[mpsc::Sender<Letter>]>,
    mine: mpsc::Receiver<Letter>,
    loads: Arc<Loads>,
    /// Our load as we told it last.
    told: Option<usize>,
    /// Length of the longest datagram that we announced to accept. Longer ones are not copied to another
    /// shard.
    largest: usize,
}

impl Mail {
    /// Creates the mailboxes of `shards` shards, which have these loads.
    pub fn new(shards: NonZeroU16, largest: usize, loads: &Arc<Loads>) -> Vec<Self> {
        let (boxes, mine): (Vec<_>, Vec<_>) = (0..shards.get()).map(|_| mpsc::channel(MAILBOX)).unzip();
        let boxes: Arc<[_]> = boxes.into();
        let mail = |(index, mine)| {
            let (boxes, loads) = (Arc::clone(&boxes), Arc::clone(loads));
            Self { index, boxes, mine, loads, told: Some(0), largest }
        };
        (0..shards.get()).zip(mine).map(mail).collect()
    }

    /// Handles a datagram of our own socket, or passes it to the shard that owns it.
    pub fn sort(&mut self, state: &mut State, received: Received<'_>) {
        let (id, hello) = match Datagram::parse(received.datagram) {
            Ok(Datagram::Short { destination }) => (destination, false),
            Ok(Datagram::Long(header)) => (header.destination, header.kind == LongKind::Hello),
            // The endpoint counts it.
            Err(_) => return state.endpoint.handle_datagram(received),
        };
        let owner = Shard::of_id(&id, self.shards());
        if owner != self.index && received.datagram.len() <= self.largest {
            let Received { from, to, ecn, datagram, .. } = received;
            let letter = Letter::Datagram { by: self.index, from, to, ecn, datagram: (&*datagram).into() };
            let passed = self.boxes.get(usize::from(owner)).is_some_and(|mailbox| mailbox.try_send(letter).is_ok());
            *(if passed { &mut state.passed_on } else { &mut state.overrun }) += 1;
        } else if hello {
            self.answer(state, received, self.index);
        } else {
            if !self.mine.is_empty() && !state.endpoint.knows(&id) {
                // Its session may have come since we looked, since that is sent before the REPLY.
                while let Ok(letter) = self.mine.try_recv() {
                    self.read(state, received.at, letter);
                }
            }
            state.endpoint.handle_datagram(received);
        }
    }

    /// Handles what other shards put into our mailbox. Returns whether there may be more.
    pub fn take(&mut self, cx: &mut Context<'_>, shared: &Shared) -> bool {
        for _ in 0..TURN {
            let Poll::Ready(Some(letter)) = self.mine.poll_recv(cx) else { return false };
            let mut state = shared.lock();
            self.read(&mut state, shared.clock.now(), letter);
        }
        true
    }

    /// Tells our load if it has changed.
    pub fn tell(&mut self, state: &State) {
        let load = state.endpoint.load();
        if std::mem::replace(&mut self.told, load) != load {
            self.loads.tell(self.index.into(), load, None);
        }
    }

    fn read(&mut self, state: &mut State, at: Time, letter: Letter) {
        match letter {
            Letter::Session(session) => {
                state.endpoint.take_over(*session);
                self.told = state.endpoint.load();
                self.loads.tell(self.index.into(), self.told, Some(self.index.into()));
            }
            Letter::Datagram { by, from, to, ecn, mut datagram } => {
                let received = Received { at, from, to, ecn, datagram: &mut datagram };
                match Datagram::parse(received.datagram) {
                    Ok(Datagram::Long(header)) if header.kind == LongKind::Hello => self.answer(state, received, by),
                    _ => state.endpoint.handle_datagram(received),
                }
            }
        }
    }

    /// Answers a HELLO that came to the socket of shard `by`, and hands its session to the shard that gets a
    /// place for it.
    fn answer(&mut self, state: &mut State, received: Received<'_>, by: u16) {
        let (index, shards) = (self.index, self.shards());
        let own = Shard::new(index, shards).unwrap_or(Shard::ALONE);
        let (mut place, mut room) = (None, None);
        let session = state.endpoint.handle_placed(received, self.loads.are_full(), || {
            let chosen = self.loads.choose(by.into());
            place = Some(chosen);
            if chosen == usize::from(index) {
                return own;
            }
            room = self.boxes.get(chosen).and_then(|mailbox| mailbox.try_reserve().ok());
            let other = u16::try_from(chosen).ok().and_then(|chosen| Shard::new(chosen, shards));
            other.filter(|_| room.is_some()).unwrap_or(own)
        });
        match (session, room) {
            (Some(session), Some(room)) => room.send(Letter::Session(Box::new(session))),
            _ if place.is_some() => {
                self.told = state.endpoint.load();
                self.loads.tell(index.into(), self.told, place);
            }
            _ => {}
        }
    }

    fn shards(&self) -> NonZeroU16 {
        u16::try_from(self.boxes.len()).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MIN)
    }
}

impl Drop for Mail {
    /// The driver has ended, so nobody would take a session.
    fn drop(&mut self) {
        self.loads.tell(self.index.into(), None, None);
    }
}
