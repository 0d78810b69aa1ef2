//! The sending half: takes segments of TCP, and makes combinations of them.
//!
//! The caller hands in acknowledgements, wakes it at [`Coder::poll_timeout`] and takes combinations until
//! there are none. Invariants: a bucket is kept until all of its degrees are confirmed; each symbol adds
//! `Gamma` combinations, whatever the buckets are, and so does each segment that TCP sends again.

use core::time::Duration;
use std::collections::VecDeque;

use tidewire_proto::Time;

use super::super::{Ack, Segment, Sender, SenderStats, Window};
use super::{Coding, Combination, DegreeAck, LENGTH, MOST_SYMBOLS, Offer, RECEIVE_WINDOW, Rule, generation};
use crate::load::fill;

/// Tolerance of sums of Gamma, so that rounding does not cost a combination.
const ROUNDING: f64 = 1e-9;

/// What a sender counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoderStats {
    /// Combinations sent.
    pub combinations: u64,
    /// Of these, for segments that TCP sent again.
    pub repeats: u64,
    /// Zero-payload packets that were put into buckets.
    pub empty: u64,
    /// Segments sent although the window had no room for them.
    pub beyond: u64,
    /// Buckets by their size.
    pub sizes: Vec<u64>,
}

/// A bucket that is not confirmed.
#[derive(Debug)]
struct Bucket {
    number: u64,
    /// Degrees of freedom of all buckets before it.
    degree: u64,
    symbols: Vec<Vec<u8>>,
    /// First byte, and the end of each segment.
    start: u64,
    ends: Vec<u64>,
    /// Zero-payload packets, and those of them that count in the window.
    empty: u16,
    padding: u16,
    next_seed: u16,
    confirmed: u16,
}

impl Bucket {
    fn size(&self) -> u16 {
        self.symbols.len() as u16
    }

    fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(self.start)
    }

    /// Zero-payload packets whose degrees are not confirmed.
    fn unconfirmed_empty(&self) -> u16 {
        self.empty.saturating_sub(self.confirmed)
    }

    /// The first byte that is not confirmed.
    fn next(&self) -> u64 {
        let segments = usize::from(self.confirmed.saturating_sub(self.empty));
        segments.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(self.start)
    }
}

/// The sender; see the module.
#[derive(Debug)]
pub struct Coder {
    sender: Sender,
    coding: Coding,
    /// Decides the bytes of the flow.
    seed: u64,
    open: VecDeque<Bucket>,
    buckets: u64,
    /// Degrees of all buckets so far, and those that are confirmed.
    degrees: u64,
    confirmed: u64,
    /// Bytes that were put into buckets.
    taken: u64,
    /// Combinations that are owed.
    owed: f64,
    leaving: VecDeque<Combination>,
    stats: CoderStats,
}

impl Coder {
    /// The code below `sender`. `seed` decides the bytes of the flow.
    pub fn new(sender: Sender, coding: Coding, seed: u64) -> Self {
        let coding = Coding { cap: coding.cap.clamp(1, MOST_SYMBOLS), ..coding };
        Self {
            sender,
            coding,
            seed,
            open: VecDeque::new(),
            buckets: 0,
            degrees: 0,
            confirmed: 0,
            taken: 0,
            owed: 0.0,
            leaving: VecDeque::new(),
            stats: CoderStats { sizes: vec![0; usize::from(coding.cap) + 1], ..CoderStats::default() },
        }
    }

    /// The counts.
    pub fn stats(&self) -> &CoderStats {
        &self.stats
    }

    /// What TCP counted.
    pub fn tcp_stats(&self) -> SenderStats {
        self.sender.stats()
    }

    /// TCP's window.
    pub fn window(&self) -> Window {
        self.sender.window()
    }

    /// TCP's smoothed round trip.
    pub fn rtt(&self) -> Option<Duration> {
        self.sender.rtt()
    }

    /// Whether all bytes of a finite source are confirmed.
    pub fn is_done(&self) -> bool {
        self.sender.is_done()
    }

    /// When [`Self::handle_timeout`] or [`Self::poll_transmit`] has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.sender.poll_timeout()
    }

    /// Handles an expired retransmission timer.
    pub fn handle_timeout(&mut self, now: Time) {
        let before = self.sender.stats().timeouts;
        self.sender.handle_timeout(now);
        if self.sender.stats().timeouts > before {
            // TCP takes everything in flight for lost, so the zero-payload packets are lost too.
            self.open.iter_mut().for_each(|bucket| bucket.padding = 0);
            self.count_padding();
        }
    }

    /// Takes an acknowledgement that arrived.
    pub fn handle_ack(&mut self, now: Time, ack: &DegreeAck) {
        if ack.degrees < self.confirmed || ack.degrees > self.degrees {
            return;
        }
        let before = core::mem::replace(&mut self.confirmed, ack.degrees);
        let mut next = self.open.front().map_or(self.taken, Bucket::next);
        let reached = next;
        while let Some(bucket) = self.open.front_mut().filter(|bucket| bucket.degree < ack.degrees) {
            bucket.confirmed = u16::try_from(ack.degrees - bucket.degree).unwrap_or(u16::MAX).min(bucket.size());
            bucket.padding = bucket.padding.min(bucket.unconfirmed_empty());
            next = bucket.next();
            if bucket.confirmed < bucket.size() {
                break;
            }
            next = bucket.end();
            self.open.pop_front();
        }
        self.count_padding();
        // The degree of a zero-payload packet is news, but not of any byte: no duplicate acknowledgement.
        if next > reached || ack.degrees == before {
            let ack = Ack { next, window: RECEIVE_WINDOW, echo: ack.echo, echoes_mark: false };
            self.sender.handle_ack(now, &ack);
        }
    }

    /// The next combination to send now. Call until `None`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Combination> {
        if self.leaving.is_empty() {
            self.fill(now);
        }
        self.leaving.pop_front()
    }

    fn count_padding(&mut self) {
        self.sender.set_padding(self.open.iter().map(|bucket| u32::from(bucket.padding)).sum());
    }

    /// Takes from TCP all that it may send, bucket by bucket.
    fn fill(&mut self, now: Time) {
        loop {
            let size = self.size(now);
            let mut segments = Vec::new();
            let mut is_dry = false;
            while segments.len() < usize::from(size.unwrap_or(1)) {
                match self.sender.poll_transmit(now) {
                    Some(segment) if segment.start < self.taken => self.repeat(now, &segment),
                    Some(segment) => segments.push(segment),
                    None => {
                        is_dry = true;
                        break;
                    }
                }
            }
            if self.coding.rule == Rule::Printed && is_dry {
                let missing = usize::from(size.unwrap_or(0)).saturating_sub(segments.len());
                let before = segments.len();
                segments.extend((0..missing).map_while(|_| self.sender.poll_beyond(now)));
                self.stats.beyond += (segments.len() - before) as u64;
            }
            if !segments.is_empty() {
                self.close(now, &segments);
            }
            if is_dry {
                return;
            }
        }
    }

    /// What the rule says now. The first bucket has one symbol, until something is acknowledged (section
    /// 3.3).
    fn size(&self, now: Time) -> Option<u16> {
        let packet = u64::from(self.sender.segment_bytes());
        let unacked = packet * u64::from(self.sender.flight());
        let window = packet * u64::from(self.sender.window().segments);
        let offer = Offer { window, buffered: unacked + self.sender.unsent(now), unacked, packet };
        let size = self.coding.rule.size(offer, self.coding.cap)?;
        Some(if self.confirmed == 0 && self.coding.rule != Rule::Fixed { 1 } else { size })
    }

    /// Makes a bucket of new segments and sends its combinations.
    fn close(&mut self, now: Time, segments: &[Segment]) {
        let empty = if self.coding.rule == Rule::Fixed { usize::from(self.coding.cap) - segments.len() } else { 0 };
        let symbols = segments.iter().map(|segment| self.symbol(segment));
        let symbols: Vec<_> = symbols.chain(core::iter::repeat_n(vec![0; LENGTH], empty)).collect();
        let bucket = Bucket {
            number: self.buckets,
            degree: self.degrees,
            start: self.taken,
            ends: segments.iter().map(Segment::end).collect(),
            empty: empty as u16,
            padding: empty as u16,
            next_seed: 0,
            confirmed: 0,
            symbols,
        };
        let size = bucket.size();
        self.buckets += 1;
        self.degrees += u64::from(size);
        self.taken = bucket.end();
        self.stats.empty += empty as u64;
        self.stats.sizes[usize::from(size)] += 1;
        self.open.push_back(bucket);
        self.count_padding();
        self.send(now, self.open.len() - 1, size, false);
    }

    /// The symbol of a segment: its length and its bytes.
    fn symbol(&self, segment: &Segment) -> Vec<u8> {
        let mut symbol = vec![0; LENGTH + segment.bytes as usize];
        symbol[..LENGTH].copy_from_slice(&(segment.bytes as u16).to_be_bytes());
        fill(self.seed, 0, segment.start, &mut symbol[LENGTH..]);
        symbol
    }

    /// Answers for a segment that TCP sends again: by one combination of its bucket, and by one for each
    /// zero-payload packet that may be missing too.
    fn repeat(&mut self, now: Time, segment: &Segment) {
        let place = self.open.partition_point(|bucket| bucket.end() <= segment.start);
        let Some(bucket) = self.open.get(place) else { return };
        let is_first = bucket.next() == segment.start;
        let count = 1 + if is_first { bucket.unconfirmed_empty() } else { 0 };
        self.send(now, place, count, true);
    }

    /// Sends combinations of a bucket in the place of `count` symbols.
    fn send(&mut self, now: Time, place: usize, count: u16, is_repeat: bool) {
        self.owed += f64::from(count) * self.coding.gamma;
        let whole = (self.owed + ROUNDING).floor().max(0.0);
        self.owed -= whole;
        let count = whole as u16;
        let bucket = &mut self.open[place];
        let longest = bucket.symbols.iter().map(Vec::len).max().unwrap_or_default().next_multiple_of(2);
        let mut combinations = vec![vec![0; longest]; usize::from(count)];
        let (first, number, size) = (bucket.next_seed, bucket.number, bucket.size());
        let encoded = generation(number, size).map(|code| code.encode(&bucket.symbols, first, &mut combinations));
        assert!(matches!(encoded, Some(Ok(()))), "bucket {number} of {size} cannot be coded: {encoded:?}");
        bucket.next_seed += count;
        self.stats.combinations += u64::from(count);
        self.stats.repeats += if is_repeat { u64::from(count) } else { 0 };
        let seeds = first..first + count;
        let packet = |(seed, bytes)| Combination { bucket: number, size, seed, is_repeat, stamp: now, bytes };
        self.leaving.extend(seeds.zip(combinations).map(packet));
    }
}
