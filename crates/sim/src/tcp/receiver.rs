//! The receiving half: puts segments in order, and acknowledges them as Linux does.
//!
//! Invariants: every byte is delivered once and in order; a segment out of order, a repeated one and one that
//! fills the last gap are acknowledged at once (RFC 5681 section 4.2); no byte waits longer than the delayed
//! ACK for its acknowledgement.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use tidewire_proto::Time;

use super::{Ack, Segment};

/// `TCP_DELACK_MIN`: how long an acknowledgement waits for a second segment.
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// `TCP_MAX_QUICKACKS`: ACKs sent at once at the start, after a long silence and after a repeated segment.
const MOST_QUICK: u32 = 16;
/// ACKs sent at once after a congestion mark (`tcp_ecn_check_ce`).
const QUICK_AFTER_MARK: u32 = 2;
/// A silence that is longer is a new start. Linux compares with the receiver's own retransmission timeout,
/// which is 200 ms and a round trip of the handshake; a typical round trip is chosen here.
const SILENCE: Duration = Duration::from_millis(240);

/// The window that Linux offers at first, with its usual buffers (`tcp_rmem`: 131,072 bytes, half of them for
/// data).
const FIRST_WINDOW: u64 = 65_536;
/// Largest window in bytes, by default: what the kernel offered in the lab after ten seconds at 10 Mbit/s.
/// The congestion window is the smaller one there.
const LARGEST_WINDOW: u64 = 2_629_632;

/// What a receiver counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Bytes delivered in order.
    pub bytes: u64,
    /// Digest of these bytes. It is [`content(0, bytes)`](super::content) if each came once and unchanged.
    pub digest: u64,
    /// Segments that had arrived before.
    pub repeated: u64,
    /// Segments that arrived before an earlier one.
    pub early: u64,
    /// Segments that overlap others in part, which no sender here makes, or lie outside of the window.
    pub refused: u64,
    /// Acknowledgements sent.
    pub acks: u64,
}

/// Rules of the next acknowledgement.
#[derive(Clone, Debug)]
struct Pace {
    /// ACKs that are sent at once from here on (`icsk_ack.quick`).
    quick: u32,
    /// When the delayed ACK is sent.
    due: Option<Time>,
    /// Largest segment so far (`rcv_mss`).
    segment: u32,
    /// The byte that was acknowledged last (`rcv_wup`).
    acked: u64,
    /// When the last segment arrived.
    last: Option<Time>,
}

/// The receiver; see the module.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// Bytes behind `next` that it has room for, and the most that this grows to.
    window: u64,
    most: u64,
    next: u64,
    /// Segments behind a gap: their ends and digests by their starts.
    held: BTreeMap<u64, (u64, u64)>,
    /// The stamp to echo (`ts_recent`).
    echo: Time,
    echoes_mark: bool,
    pace: Pace,
    acks: VecDeque<Ack>,
    stats: ReceiverStats,
}

impl Default for Receiver {
    fn default() -> Self {
        Self::new(LARGEST_WINDOW)
    }
}

impl Receiver {
    /// A receiver whose window grows up to `most` bytes. Its application reads at once.
    ///
    /// Like Linux without SACK it begins with at most 64 KiB, and each byte that arrives in order makes room
    /// for one more (`tcp_grow_window`; in a trace of the lab the window grew so). Bytes that arrive early do
    /// not. So a long recovery is bounded by this window.
    pub fn new(most: u64) -> Self {
        Self {
            window: most.min(FIRST_WINDOW),
            most,
            next: 0,
            held: BTreeMap::new(),
            echo: Time::ZERO,
            echoes_mark: false,
            pace: Pace { quick: MOST_QUICK, due: None, segment: 0, acked: 0, last: None },
            acks: VecDeque::new(),
            stats: ReceiverStats::default(),
        }
    }

    /// The counts.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// Bytes delivered in order.
    pub fn delivered(&self) -> u64 {
        self.next
    }

    /// The present window in bytes.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Takes a segment that arrived.
    pub fn handle_segment(&mut self, now: Time, segment: &Segment) {
        if segment.start <= self.pace.acked && segment.end() >= self.pace.acked {
            // RFC 7323 section 4.3: the stamp of the first segment that is not acknowledged.
            self.echo = self.echo.max(segment.stamp);
        }
        self.note_marks(segment);
        if segment.end() <= self.next {
            self.stats.repeated += 1;
            self.hurry(MOST_QUICK);
            self.acknowledge();
            return;
        }
        if segment.start < self.next || segment.end() > self.next + self.window {
            self.stats.refused += 1;
            self.hurry(MOST_QUICK);
            self.acknowledge();
            return;
        }
        self.pace.segment = self.pace.segment.max(segment.bytes);
        if self.pace.last.replace(now).is_some_and(|last| now.since(last) > SILENCE) {
            self.hurry(MOST_QUICK);
        }
        if segment.start > self.next {
            self.hold(segment);
            self.acknowledge();
            return;
        }
        self.deliver(segment.end(), segment.digest);
        self.window = self.most.min(self.window + u64::from(segment.bytes));
        let had_gap = !self.held.is_empty();
        while let Some(first) = self.held.first_entry().filter(|first| *first.key() == self.next) {
            let (end, digest) = first.remove();
            self.deliver(end, digest);
        }
        let waits = self.next - self.pace.acked;
        if had_gap || self.pace.quick > 0 || waits > u64::from(self.pace.segment) {
            self.acknowledge();
        } else if self.pace.due.is_none() {
            self.pace.due = Some(now + DELAYED_ACK);
        }
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.pace.due
    }

    /// Sends the delayed ACK if its time has come.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.pace.due.is_some_and(|due| due <= now) {
            self.acknowledge();
        }
    }

    /// The next acknowledgement to send. Call until `None`.
    pub fn poll_transmit(&mut self) -> Option<Ack> {
        self.acks.pop_front()
    }

    fn note_marks(&mut self, segment: &Segment) {
        if segment.reduced {
            self.echoes_mark = false;
        }
        if segment.marked {
            self.echoes_mark = true;
            self.hurry(QUICK_AFTER_MARK);
        }
    }

    fn hold(&mut self, segment: &Segment) {
        let (start, end) = (segment.start, segment.end());
        if self.held.get(&start).is_some_and(|&(held, _)| held == end) {
            self.stats.repeated += 1;
            return;
        }
        let before = self.held.range(..end).next_back();
        if before.is_some_and(|(_, &(held, _))| held > start) {
            self.stats.refused += 1;
            return;
        }
        self.stats.early += 1;
        self.held.insert(start, (end, segment.digest));
    }

    fn deliver(&mut self, end: u64, digest: u64) {
        self.stats.bytes += end - self.next;
        self.stats.digest = self.stats.digest.wrapping_add(digest);
        self.next = end;
    }

    /// Sends at least the next `acks` acknowledgements at once (`tcp_enter_quickack_mode`).
    fn hurry(&mut self, acks: u32) {
        self.pace.quick = self.pace.quick.max(acks);
    }

    fn acknowledge(&mut self) {
        self.pace.quick = self.pace.quick.saturating_sub(1);
        self.pace.due = None;
        self.pace.acked = self.next;
        self.stats.acks += 1;
        self.acks.push_back(Ack {
            next: self.next,
            window: self.window,
            echo: self.echo,
            echoes_mark: self.echoes_mark,
        });
    }
}
