//! Datagrams that came by another shard's socket than their own.
//!
//! The kernel spreads senders over the sockets of an endpoint by their addresses, and a connection lives
//! where its HELLO came. What comes elsewhere later, since its sender's address changed, is put into the
//! mailbox of the shard that its connection id names (wire.md section 1.2). So is a HELLO, which may ask
//! after a connection; if it does not, it is sent back to where it came. Drivers call this and nothing waits
//! here: a full mailbox loses what comes, as a full socket does, and counts it.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_proto::connection::Received;
use tidewire_proto::endpoint::Shard;
use tidewire_proto::path::Ecn;
use tidewire_proto::wire::{ConnectionId, Datagram, LongKind};

use crate::shared::{Shared, State};
use crate::sync::mpsc;

/// Datagrams that wait in one mailbox, at most: some 1.5 MB of those of an Ethernet. Chosen.
pub(crate) const MAILBOX: usize = 1_024;
/// Datagrams that are taken out before the socket has its turn: what the socket gives at once.
const TURN: usize = 32;

/// A datagram under way to its shard.
struct Letter {
    from: SocketAddr,
    to: Option<IpAddr>,
    ecn: Option<Ecn>,
    datagram: Box<[u8]>,
    /// Of a HELLO: the connection that it asks after, if there is such a one, and where it goes back to if
    /// not.
    asks: Option<(ConnectionId, u16)>,
}

/// One shard's mailbox, and the way to those of the others.
pub(crate) struct Mail {
    index: u16,
    boxes: Arc<[mpsc::Sender<Letter>]>,
    mine: mpsc::Receiver<Letter>,
    /// Of the datagrams that we announce to take: no longer one is copied for anybody.
    largest: usize,
}

impl Mail {
    /// A mailbox for each of so many shards.
    pub fn new(shards: NonZeroU16, largest: usize) -> Vec<Self> {
        let (boxes, mine): (Vec<_>, Vec<_>) = (0..shards.get()).map(|_| mpsc::channel(MAILBOX)).unzip();
        let boxes: Arc<[_]> = boxes.into();
        let mail = |(index, mine)| Self { index, boxes: Arc::clone(&boxes), mine, largest };
        (0..shards.get()).zip(mine).map(mail).collect()
    }

    /// Handles a datagram of our own socket, or passes it on. The owner handles it at once, whichever socket
    /// it came by.
    pub fn sort(&self, state: &mut State, received: Received<'_>) {
        let (id, hello) = match Datagram::parse(received.datagram) {
            Ok(Datagram::Short { destination }) => (destination, false),
            Ok(Datagram::Long(header)) => (header.destination, header.kind == LongKind::Hello),
            // To be counted.
            Err(_) => return state.endpoint.handle_datagram(received),
        };
        let shards = u16::try_from(self.boxes.len()).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MIN);
        let owner = Shard::of_id(&id, shards);
        if owner == self.index || received.datagram.len() > self.largest {
            return state.endpoint.handle_datagram(received);
        }
        let Received { from, to, ecn, datagram, .. } = received;
        let asks = hello.then_some((id, self.index));
        self.pass(state, owner, Letter { from, to, ecn, datagram: (&*datagram).into(), asks });
    }

    /// Handles what the others have put into our mailbox. Returns whether there may be more.
    pub fn take(&mut self, cx: &mut Context<'_>, shared: &Shared) -> bool {
        for _ in 0..TURN {
            let Poll::Ready(Some(mut letter)) = self.mine.poll_recv(cx) else { return false };
            let mut state = shared.lock();
            match letter.asks.take() {
                Some((id, home)) if !state.endpoint.knows(&id) => self.pass(&mut state, home, letter),
                _ => {
                    let Letter { from, to, ecn, mut datagram, .. } = letter;
                    let at = shared.clock.now();
                    state.endpoint.handle_datagram(Received { at, from, to, ecn, datagram: &mut datagram });
                }
            }
        }
        true
    }

    fn pass(&self, state: &mut State, to: u16, letter: Letter) {
        let passed = self.boxes.get(usize::from(to)).is_some_and(|mailbox| mailbox.try_send(letter).is_ok());
        *(if passed { &mut state.passed_on } else { &mut state.overrun }) += 1;
    }
}
