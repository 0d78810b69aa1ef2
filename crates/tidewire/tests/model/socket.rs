//! The model's `socket`: queues of datagrams in memory, one for each socket, that lose nothing unless they
//! are told to.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shuttle::sync::{Arc, Mutex};
use tidewire_proto::connection::{SendFailure, Transmit};
use tidewire_proto::path::Ecn;

/// Where datagrams to an address go: in turns to its sockets, as after changes of the sender's port.
#[derive(Clone, Default)]
pub(crate) struct Network {
    places: Arc<Mutex<Vec<Place>>>,
    /// The port whose datagrams full of data are partly lost.
    losing: Option<u16>,
}

/// The sockets of one address, and whose turn it is.
struct Place {
    address: SocketAddr,
    /// Datagrams full of data that came.
    full: u64,
    queues: Vec<Arc<Queue>>,
    turn: usize,
}

/// What waits for one socket.
#[derive(Default)]
struct Queue(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    datagrams: VecDeque<(SocketAddr, Vec<u8>)>,
    reader: Option<Waker>,
}

/// A datagram of at least this many bytes is full of data. Of three such, the first is lost.
const FULL: usize = 1_000;
const LOST: u64 = 3;

impl Network {
    /// One that loses every third datagram full of data to this port.
    pub(crate) fn losing(port: u16) -> Self {
        Self { losing: Some(port), ..Self::default() }
    }

    /// Sockets of one address.
    pub(crate) fn bind(&self, address: SocketAddr, count: usize) -> Vec<Socket> {
        let queues: Vec<_> = (0..count).map(|_| Arc::<Queue>::default()).collect();
        self.places.lock().unwrap().push(Place { address, full: 0, queues: queues.clone(), turn: 0 });
        queues.into_iter().map(|queue| Socket { network: self.clone(), address, queue }).collect()
    }

    fn send(&self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        let queue = {
            let mut places = self.places.lock().unwrap();
            let Some(place) = places.iter_mut().find(|place| place.address == to) else { return };
            if self.losing == Some(to.port()) && datagram.len() >= FULL {
                place.full += 1;
                if place.full % LOST == 1 {
                    return;
                }
            }
            place.turn += 1;
            Arc::clone(&place.queues[place.turn % place.queues.len()])
        };
        let waker = {
            let mut queue = queue.0.lock().unwrap();
            queue.datagrams.push_back((from, datagram.to_vec()));
            queue.reader.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

pub(crate) struct Socket {
    network: Network,
    address: SocketAddr,
    queue: Arc<Queue>,
}

impl Socket {
    pub(crate) fn max_segments(&self, _: usize) -> usize {
        1
    }

    pub(crate) fn poll_send(
        &self,
        _: &mut Context<'_>,
        transmit: &Transmit,
        bytes: &[u8],
    ) -> Poll<Result<(), SendFailure>> {
        self.network.send(self.address, transmit.destination, bytes);
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_receive(&self, cx: &mut Context<'_>, inbox: &mut Inbox) -> Poll<io::Result<()>> {
        let mut queue = self.queue.0.lock().unwrap();
        inbox.0 = queue.datagrams.pop_front();
        if inbox.0.is_some() {
            return Poll::Ready(Ok(()));
        }
        queue.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

pub(crate) struct Inbox(Option<(SocketAddr, Vec<u8>)>);

pub(crate) struct Train<'a> {
    pub from: SocketAddr,
    pub to: Option<IpAddr>,
    pub ecn: Option<Ecn>,
    pub stamp: Option<Duration>,
    pub datagrams: std::slice::ChunksMut<'a, u8>,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self(None)
    }

    pub(crate) fn trains(&mut self) -> impl Iterator<Item = Train<'_>> {
        self.0.iter_mut().map(|(from, datagram)| {
            let whole = datagram.len().max(1);
            Train { from: *from, to: None, ecn: None, stamp: None, datagrams: datagram.chunks_mut(whole) }
        })
    }
}
