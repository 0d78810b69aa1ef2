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
    pub(crate) fn bind(&self, address: SocketAddr, count: usize) -> Vec<Box<dyn Socket>> {
        let queues: Vec<_> = (0..count).map(|_| Arc::<Queue>::default()).collect();
        self.places.lock().unwrap().push(Place { address, full: 0, queues: queues.clone(), turn: 0 });
        let socket = |queue| Simulated { network: self.clone(), address, queue, came: None };
        queues.into_iter().map(|queue| Box::new(socket(queue)) as Box<dyn Socket>).collect()
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

/// What the driver needs of a socket; see `crate::socket` of the library.
pub(crate) trait Socket: Send {
    fn max_segments(&self, largest: usize) -> usize;
    fn poll_send(&mut self, cx: &mut Context<'_>, transmit: &Transmit, bytes: &[u8]) -> Poll<Result<(), SendFailure>>;
    fn poll_receive(&mut self, cx: &mut Context<'_>, asks: bool) -> Poll<io::Result<()>>;
    fn is_drained(&self) -> bool;
    fn take(&mut self, each: &mut dyn FnMut(Train<'_>));
}

struct Simulated {
    network: Network,
    address: SocketAddr,
    queue: Arc<Queue>,
    came: Option<(SocketAddr, Vec<u8>)>,
}

impl Socket for Simulated {
    fn max_segments(&self, _: usize) -> usize {
        1
    }

    fn poll_send(&mut self, _: &mut Context<'_>, transmit: &Transmit, bytes: &[u8]) -> Poll<Result<(), SendFailure>> {
        self.network.send(self.address, transmit.destination, bytes);
        Poll::Ready(Ok(()))
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, _: bool) -> Poll<io::Result<()>> {
        let mut queue = self.queue.0.lock().unwrap();
        self.came = queue.datagrams.pop_front();
        if self.came.is_some() {
            return Poll::Ready(Ok(()));
        }
        queue.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn is_drained(&self) -> bool {
        self.came.is_none()
    }

    fn take(&mut self, each: &mut dyn FnMut(Train<'_>)) {
        if let Some((from, mut datagram)) = self.came.take() {
            let whole = datagram.len().max(1);
            each(Train { from, to: None, ecn: None, stamp: None, dropped: 0, datagrams: datagram.chunks_mut(whole) });
        }
    }
}

pub(crate) struct Train<'a> {
    pub from: SocketAddr,
    pub to: Option<IpAddr>,
    pub ecn: Option<Ecn>,
    pub stamp: Option<Duration>,
    pub dropped: u32,
    pub datagrams: std::slice::ChunksMut<'a, u8>,
}
