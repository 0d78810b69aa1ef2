//! UDP datagrams between two nodes, without acknowledgements: at a constant rate, or the frames of a video.
//!
//! The first bytes of a datagram are its number, the others those of its place in the flow.

use std::net::UdpSocket;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tidewire_sim::load::fill;
use tidewire_sim::network::{Content, FlowReport};

use super::content::{Run, pause};
use super::{Flow, Place};
use crate::nodes::Nodes;

/// Bytes of a datagram's number. A shorter datagram has a part of it, and is not checked further.
const NUMBER: usize = 8;
/// Longest time until the end of the run is noticed.
const STEP: Duration = Duration::from_millis(20);
/// Longest datagram that is received.
const LONGEST: usize = 65_535;
/// Errors that are kept.
const MOST_ERRORS: usize = 8;

/// A datagram as it is sent: when, its first byte in the flow, and its length.
#[derive(Clone, Copy, Debug)]
struct Planned {
    at: Duration,
    offset: u64,
    length: usize,
}

/// The datagrams of a content, in their order.
#[derive(Clone, Debug)]
struct Schedule {
    content: Content,
    start: Duration,
    next: u64,
    number: u64,
}

impl Iterator for Schedule {
    type Item = Planned;

    fn next(&mut self) -> Option<Planned> {
        let at = match &self.content {
            Content::Video { .. } => self.content.time_of(self.next)?,
            content => {
                content.time_of(self.next)?;
                content.made(self.number)
            }
        };
        let end = match &self.content {
            Content::Video { .. } => self.content.produced(at),
            content => content.bytes().unwrap_or(u64::MAX),
        };
        let length = self.content.record().min(end.saturating_sub(self.next)).max(1);
        let planned = Planned { at: self.start + at, offset: self.next, length: usize::try_from(length).ok()? };
        self.next += length;
        self.number += 1;
        Some(planned)
    }
}

/// What arrived.
#[derive(Debug, Default)]
struct Taken {
    report: FlowReport,
    last: Duration,
    arrived: Vec<bool>,
}

/// A running flow. Its threads end with the run.
#[derive(Debug)]
pub(super) struct Datagrams {
    kind: &'static str,
    content: Content,
    start: Duration,
    sent: Arc<Mutex<Vec<Planned>>>,
    taken: Arc<Mutex<Taken>>,
    run: Arc<Run>,
    threads: Vec<JoinHandle<()>>,
}

impl Datagrams {
    /// Makes both sockets. The flow begins `start` after the beginning of the run.
    pub(super) fn start(
        nodes: &Nodes,
        [from, to]: [Place; 2],
        content: &Content,
        start: Duration,
        seed: u64,
        run: &Arc<Run>,
    ) -> anyhow::Result<Self> {
        let [source, target] = [from, to].map(|place| (place.address, 0));
        let receiver = nodes.inside(to.node, || UdpSocket::bind(target))??;
        let sender = nodes.inside(from.node, || UdpSocket::bind(source))??;
        sender.connect(receiver.local_addr()?)?;
        Self::carry("udp", (sender, receiver), content, start, seed, run)
    }

    /// Sends a content from one socket, which is connected, until it arrives at the other.
    pub(super) fn carry(
        kind: &'static str,
        (sender, receiver): (UdpSocket, UdpSocket),
        content: &Content,
        start: Duration,
        seed: u64,
        run: &Arc<Run>,
    ) -> anyhow::Result<Self> {
        receiver.set_read_timeout(Some(STEP))?;
        let (sent, taken) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Taken>>::default());
        let schedule = Schedule { content: content.clone(), start, next: 0, number: 0 };
        let (sending, planned) = (Arc::clone(run), Arc::clone(&sent));
        let (reading, plans, taking) = (Arc::clone(run), Arc::clone(&sent), Arc::clone(&taken));
        let threads = vec![
            std::thread::spawn(move || send(&sender, schedule, seed, &sending, &planned)),
            std::thread::spawn(move || receive(&receiver, seed, &reading, &plans, &taking)),
        ];
        Ok(Self { kind, content: content.clone(), start, sent, taken, run: Arc::clone(run), threads })
    }
}

impl Flow for Datagrams {
    fn is_over(&self) -> bool {
        self.content.bytes() == Some(self.taken.lock().unwrap_or_else(PoisonError::into_inner).report.bytes)
    }

    fn end(mut self: Box<Self>) -> anyhow::Result<FlowReport> {
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let packets = self.sent.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        let age = self.run.wait().elapsed();
        let sent =
            self.content.bytes().is_some_and(|bytes| self.content.produced(age.saturating_sub(self.start)) >= bytes);
        let ended = if sent { taken.last } else { age };
        Ok(FlowReport {
            kind: self.kind,
            whole: self.content.bytes().map(|bytes| taken.report.bytes == bytes),
            seconds: ended.saturating_sub(self.start).as_secs_f64(),
            packets,
            ..taken.report.clone()
        })
    }
}

/// The bytes of a datagram.
fn bytes_of(number: u64, planned: &Planned, seed: u64, out: &mut Vec<u8>) {
    out.resize(planned.length, 0);
    fill(seed, 0, planned.offset, out);
    let head = planned.length.min(NUMBER);
    out[..head].copy_from_slice(&number.to_be_bytes()[..head]);
}

fn send(socket: &UdpSocket, schedule: Schedule, seed: u64, run: &Run, sent: &Mutex<Vec<Planned>>) {
    let (zero, mut bytes) = (run.wait(), Vec::new());
    for (number, planned) in (0..).zip(schedule) {
        while let Some(wait) = planned.at.checked_sub(zero.elapsed()).filter(|wait| !wait.is_zero()) {
            if run.has_ended() {
                return;
            }
            pause(wait.min(STEP));
        }
        if run.has_ended() {
            return;
        }
        bytes_of(number, &planned, seed, &mut bytes);
        sent.lock().unwrap_or_else(PoisonError::into_inner).push(planned);
        // A datagram that the system refuses is one that is lost.
        let _ = socket.send(&bytes);
    }
}

fn receive(socket: &UdpSocket, seed: u64, run: &Run, sent: &Mutex<Vec<Planned>>, taken: &Mutex<Taken>) {
    let zero = run.wait();
    let (mut datagram, mut wanted) = (vec![0; LONGEST], Vec::new());
    while !run.has_ended() {
        let Ok(length) = socket.recv(&mut datagram) else { continue };
        let age = zero.elapsed();
        let Some(number) = datagram[..length].first_chunk().map(|number| u64::from_be_bytes(*number)) else { continue };
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        let planned = sent.lock().unwrap_or_else(PoisonError::into_inner).get(index).copied();
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let Taken { report, last, arrived } = &mut *taken;
        let Some(planned) = planned else {
            report.damaged += 1;
            continue;
        };
        if arrived.len() <= index {
            arrived.resize(index + 1, false);
        }
        if core::mem::replace(&mut arrived[index], true) {
            continue;
        }
        bytes_of(number, &planned, seed, &mut wanted);
        // The link may change a byte. Another length is an error of the lab.
        report.damaged += u64::from(wanted != datagram[..length]);
        if wanted.len() != length && report.errors.len() < MOST_ERRORS {
            report.errors.push(format!("datagram {number} has {length} bytes and not {}", wanted.len()));
        }
        report.bytes += length as u64;
        report.latencies.add(age.saturating_sub(planned.at));
        *last = age;
    }
}
