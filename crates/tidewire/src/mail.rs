//! Datagrams that arrived at the socket of another shard.
//!
//! The kernel distributes senders over the sockets of an endpoint by their addresses, and a connection lives
//! in the shard that received its HELLO. After a peer's address changed, its datagrams may arrive at another
//! shard. That shard puts them into the mailbox of the shard that the connection id names (wire.md section
//! 1.2). The same holds for a HELLO that may ask about a connection; if no connection has that id, the HELLO
//! is sent back. Drivers call this module and nothing waits in it. A full mailbox drops datagrams, as a full
//! socket does, and counts them.

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

/// Maximum number of datagrams in one mailbox: about 1.5 MB of Ethernet size. Chosen.
pub(crate) const MAILBOX: usize = 1_024;
/// Datagrams taken out before the socket has its turn: as many as one system call returns.
const TURN: usize = 32;

/// A datagram on its way to its shard.
struct Letter {
    from: SocketAddr,
    to: Option<IpAddr>,
    ecn: Option<Ecn>,
    datagram: Box<[u8]>,
    /// Set for a HELLO that asks about a connection: the id, and the shard to which it goes back if nobody
    /// has the id.
    asks: Option<(ConnectionId, u16)>,
}

/// The mailbox of one shard, and access to those of the others.
pub(crate) struct Mail {
    index: u16,
    boxes: Arc<[mpsc::Sender<Letter>]>,
    mine: mpsc::Receiver<Letter>,
    /// Length of the longest datagram that we announced to accept. Longer ones are not copied to another
    /// shard.
    largest: usize,
}

impl Mail {
    /// Creates the mailboxes of `shards` shards.
    pub fn new(shards: NonZeroU16, largest: usize) -> Vec<Self> {
        let (boxes, mine): (Vec<_>, Vec<_>) = (0..shards.get()).map(|_| mpsc::channel(MAILBOX)).unzip();
        let boxes: Arc<[_]> = boxes.into();
        let mail = |(index, mine)| Self { index, boxes: Arc::clone(&boxes), mine, largest };
        (0..shards.get()).zip(mine).map(mail).collect()
    }

    /// Handles a datagram of our own socket, or passes it to the shard that owns it.
    pub fn sort(&self, state: &mut State, received: Received<'_>) {
        let (id, hello) = match Datagram::parse(received.datagram) {
            Ok(Datagram::Short { destination }) => (destination, false),
            Ok(Datagram::Long(header)) => (header.destination, header.kind == LongKind::Hello),
            // The endpoint counts it.
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

    /// Handles what other shards put into our mailbox. Returns whether there may be more.
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
