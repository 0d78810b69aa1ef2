//! A TCP flow over a link in virtual time: sender, receiver and the link between them.
//!
//! Experiments make one [`TcpPair`] for each flow. Several of them, and [`Run`]s of ours, can share the
//! queues of one link; [`together`] then advances all in the order of events. Invariant: the samples of the
//! window are at most [`MOST_SAMPLES`](crate::series::MOST_SAMPLES), however long the flow lasts.

use core::time::Duration;

use tidewire_proto::Time;

use crate::duplex::{DuplexConfig, DuplexLink};
use crate::report::{self, Run};
use crate::series::Series;

use super::{Ack, Receiver, ReceiverStats, Segment, Sender, SenderConfig, SenderStats, Source, content};

/// Time between the first samples. Chosen: below any round trip that is simulated.
const FIRST_INTERVAL: Duration = Duration::from_millis(10);

/// A packet on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Forward.
    Segment(Segment),
    /// Back.
    Ack(Ack),
}

/// The window at one time, in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// The congestion window.
    pub window: u32,
}

/// A sender and a receiver over a link; see the module.
#[derive(Debug)]
pub struct TcpPair {
    link: DuplexLink<Packet>,
    /// Bytes that the link adds to each payload, forward and back.
    headers: [usize; 2],
    sender: Sender,
    receiver: Receiver,
    series: Series<Sample>,
}

/// The result of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// What the sender counted.
    pub sender: SenderStats,
    /// What the receiver counted.
    pub receiver: ReceiverStats,
    /// The window over time.
    pub window: Vec<Sample>,
}

impl TcpPair {
    /// A flow of `source` from the near to the far end of a new link, from `start` on.
    pub fn new(config: SenderConfig, source: Source, link: &DuplexConfig, start: Time) -> Self {
        let receiver = Receiver::default();
        let sender = Sender::new(config, source, receiver.window(), start);
        Self::with(sender, receiver, link)
    }

    /// A flow of these two ends.
    pub fn with(sender: Sender, receiver: Receiver, link: &DuplexConfig) -> Self {
        Self {
            link: DuplexLink::new(link),
            headers: [link.forward.headers, link.back.headers],
            sender,
            receiver,
            series: Series::new(FIRST_INTERVAL),
        }
    }

    /// From now on both directions use the queues of `other`; see
    /// [`Link::share_queue`](crate::link::Link::share_queue).
    pub fn share_queues<T>(&mut self, other: &DuplexLink<T>) {
        self.link.forward.share_queue(&other.forward);
        self.link.back.share_queue(&other.back);
    }

    /// The link, for its counts, its queues, or for changes during a run.
    pub fn link_mut(&mut self) -> &mut DuplexLink<Packet> {
        &mut self.link
    }

    /// The sending end.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The receiving end.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The result so far.
    ///
    /// # Panics
    /// Panics if a delivered byte was not the one that was sent there.
    pub fn outcome(&self) -> Outcome {
        let receiver = self.receiver.stats();
        assert_eq!(receiver.digest, content(0, receiver.bytes), "wrong bytes among the first {}", receiver.bytes);
        Outcome { sender: self.sender.stats(), receiver, window: self.series.samples().to_vec() }
    }

    /// When the next event happens; `None` if none will.
    pub fn next_moment(&self) -> Option<Time> {
        let timers = [self.sender.poll_timeout(), self.receiver.poll_timeout(), self.link.poll_timeout()];
        timers.into_iter().flatten().min()
    }

    /// Handles everything that is due by `now`.
    pub fn run(&mut self, now: Time) {
        while let Some(delivery) = self.link.forward.poll_delivery(now) {
            // A changed packet fails TCP's checksum.
            if let (Packet::Segment(mut segment), None) = (delivery.payload, delivery.corruption) {
                segment.marked = delivery.marked && segment.supports_marks;
                self.receiver.handle_segment(now, &segment);
                self.send_acks(now);
            }
        }
        self.receiver.handle_timeout(now);
        self.send_acks(now);
        while let Some(delivery) = self.link.back.poll_delivery(now) {
            if let (Packet::Ack(ack), None) = (delivery.payload, delivery.corruption) {
                self.sender.handle_ack(now, &ack);
                self.send_segments(now);
            }
        }
        self.sender.handle_timeout(now);
        self.send_segments(now);
        let window = self.sender.window().segments;
        self.series.note(now, || Sample { at: now, window });
    }

    /// Runs alone until `until`, or until nothing is left to happen.
    pub fn until(&mut self, until: Time) {
        while let Some(next) = self.next_moment().filter(|&next| next <= until) {
            self.run(next);
        }
    }

    fn send_acks(&mut self, now: Time) {
        while let Some(ack) = self.receiver.poll_transmit() {
            self.link.back.send(now, ack.ip_bytes().saturating_sub(self.headers[1]), Packet::Ack(ack));
        }
    }

    fn send_segments(&mut self, now: Time) {
        while let Some(segment) = self.sender.poll_transmit(now) {
            let payload = segment.ip_bytes().saturating_sub(self.headers[0]);
            self.link.forward.send_from(now, payload, segment.supports_marks, Packet::Segment(segment));
        }
    }
}

/// Advances flows and runs of ours that share a link to `until`, in the order of events.
pub fn together(flows: &mut [TcpPair], runs: &mut [Run], until: Time) {
    loop {
        let next = flows.iter_mut().filter_map(|flow| Some((flow.next_moment()?, flow))).min_by_key(|next| next.0);
        let Some((moment, flow)) = next.filter(|&(moment, _)| moment <= until) else { break };
        report::together(runs, moment);
        flow.run(moment);
    }
    report::together(runs, until);
}
