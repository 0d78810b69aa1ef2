//! The segments of a sender that are not acknowledged, and the counts that Linux keeps of them.
//!
//! Without SACK a sender knows only how many duplicate ACKs came. Linux counts each as one segment that left
//! the network (`sacked_out`), without knowing which. Invariant: the segments in the network are those sent,
//! less those arrived or lost, plus those sent again; none of the counts is larger than the queue.

use std::collections::VecDeque;

use tidewire_proto::Time;

use super::content;

/// `sysctl_tcp_reordering`: duplicate ACKs that mean a loss (RFC 5681 section 3.2).
pub(super) const REORDERING: u32 = 3;
/// `sysctl_tcp_max_reordering`.
const MOST_REORDERING: u32 = 300;

/// A segment in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub start: u64,
    pub bytes: u32,
    /// When it was sent last.
    pub at: Time,
    /// Taken for lost (`TCPCB_LOST`).
    lost: bool,
    /// Sent again, and this copy is not taken for lost (`TCPCB_SACKED_RETRANS`).
    again: bool,
    /// Sent again at some time (`TCPCB_EVER_RETRANS`).
    ever_again: bool,
}

impl Sent {
    fn end(&self) -> u64 {
        self.start + u64::from(self.bytes)
    }

    /// The oracle's digest of its bytes.
    pub fn digest(&self) -> u64 {
        content(self.start, self.end())
    }
}

/// What one acknowledgement took out of the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    /// Number of segments.
    pub segments: u32,
    /// When the first of those that were sent once was sent.
    pub first: Option<Time>,
    /// Whether one of them was sent again (`FLAG_RETRANS_DATA_ACKED`).
    pub again: bool,
    /// Whether the acknowledgement shows that a segment that was sent once had arrived although it was taken
    /// for lost (`FLAG_ORIG_SACK_ACKED`). Without SACK it cannot, if it also covers a segment sent again.
    pub original: bool,
}

/// The queue; see the module.
#[derive(Clone, Debug)]
pub(super) struct Board {
    queue: VecDeque<Sent>,
    /// First byte that is not acknowledged, and the first that was not sent.
    pub acked: u64,
    pub next: u64,
    /// Duplicate ACKs (`sacked_out`), segments taken for lost, and segments sent again.
    pub arrived: u32,
    pub lost: u32,
    pub again: u32,
    /// Duplicate ACKs that mean a loss.
    pub reordering: u32,
    /// Packets in the network that carry no segment: zero-payload packets of a code below.
    pub padding: u32,
    /// Segments that left the network by arriving, and segments ever taken for lost, in total.
    pub delivered: u64,
    pub losses: u64,
}

impl Board {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            acked: 0,
            next: 0,
            arrived: 0,
            lost: 0,
            again: 0,
            reordering: REORDERING,
            padding: 0,
            delivered: 0,
            losses: 0,
        }
    }

    /// Number of segments that are not acknowledged (`packets_out`).
    pub(super) fn out(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    /// Segments in the network (`tcp_packets_in_flight`).
    pub(super) fn flight(&self) -> u32 {
        (self.out() + self.again).saturating_sub(self.arrived + self.lost) + self.padding
    }

    /// Appends a new segment.
    pub(super) fn push(&mut self, now: Time, bytes: u32) -> Sent {
        let sent = Sent { start: self.next, bytes, at: now, lost: false, again: false, ever_again: false };
        self.next = sent.end();
        self.queue.push_back(sent);
        sent
    }

    /// Takes out what is acknowledged below `next`. `high` is the end of the present recovery.
    pub(super) fn acknowledge(&mut self, next: u64, high: u64) -> Taken {
        let mut taken = Taken::default();
        self.acked = next;
        while let Some(sent) = self.queue.front().copied().filter(|sent| sent.end() <= next) {
            self.queue.pop_front();
            taken.segments += 1;
            self.lost -= u32::from(sent.lost);
            self.again -= u32::from(sent.again);
            if sent.ever_again {
                taken.again = true;
            } else {
                taken.first = taken.first.or(Some(sent.at));
                taken.original |= sent.end() <= high;
            }
        }
        if taken.segments > 0 {
            // One of them filled the hole; the others had caused duplicate ACKs (`tcp_remove_reno_sacks`).
            self.delivered += u64::from(taken.segments.saturating_sub(self.arrived).max(1));
            self.arrived = self.arrived.saturating_sub(taken.segments - 1);
            self.check_reordering(taken.segments);
        }
        taken.original &= !taken.again;
        taken
    }

    /// Counts `duplicates` duplicate ACKs (`tcp_add_reno_sack`).
    pub(super) fn add_duplicates(&mut self, duplicates: u32) {
        if duplicates == 0 {
            return;
        }
        let before = self.arrived;
        self.arrived += duplicates;
        self.check_reordering(0);
        self.delivered += u64::from(self.arrived.saturating_sub(before));
    }

    /// More duplicate ACKs than segments behind the hole show reordering (`tcp_check_reno_reordering`).
    fn check_reordering(&mut self, taken: u32) {
        let holes = self.lost.max(1).min(self.out());
        if self.arrived + holes > self.out() {
            self.arrived = self.out() - holes;
            self.reordering = (self.out() + taken).min(MOST_REORDERING);
        }
    }

    /// A hole was filled by a late segment: at least so many segments overtook it
    /// (`tcp_check_sack_reordering`).
    pub(super) fn on_late(&mut self, acked_before: u64, segment_bytes: u32) {
        let high = if self.arrived > 0 { self.next } else { self.acked };
        let segments = (high - acked_before).div_ceil(u64::from(segment_bytes));
        let segments = u32::try_from(segments).unwrap_or(u32::MAX);
        self.reordering = self.reordering.max(segments.min(MOST_REORDERING));
    }

    /// Takes the first segment for lost (`tcp_newreno_mark_lost`).
    pub(super) fn lose_first(&mut self) {
        if let Some(first) = self.queue.front_mut().filter(|first| !first.lost) {
            first.lost = true;
            self.lost += 1;
            self.losses += 1;
            self.again -= u32::from(core::mem::take(&mut first.again));
        }
    }

    /// Takes everything for lost (`tcp_timeout_mark_lost`).
    pub(super) fn lose_all(&mut self) {
        self.arrived = 0;
        for sent in &mut self.queue {
            self.losses += u64::from(!sent.lost);
            (sent.lost, sent.again) = (true, false);
        }
        (self.lost, self.again) = (self.out(), 0);
    }

    /// Takes nothing for lost any more (`tcp_undo_cwnd_reduction`).
    pub(super) fn lose_none(&mut self) {
        self.queue.iter_mut().for_each(|sent| sent.lost = false);
        self.lost = 0;
    }

    /// Sends the first lost segment that was not sent again; `None` if there is none.
    pub(super) fn repeat_lost(&mut self, now: Time) -> Option<Sent> {
        if self.again >= self.lost {
            return None;
        }
        let index = self.queue.iter().position(|sent| sent.lost && !sent.again)?;
        self.repeat(index, now)
    }

    /// Sends the first segment again.
    pub(super) fn repeat_first(&mut self, now: Time) -> Option<Sent> {
        self.repeat(0, now)
    }

    fn repeat(&mut self, index: usize, now: Time) -> Option<Sent> {
        let sent = self.queue.get_mut(index)?;
        self.again += u32::from(!sent.again);
        (sent.again, sent.ever_again, sent.at) = (true, true, now);
        Some(*sent)
    }

    /// Number of the first byte of the queue.
    pub(super) fn first(&self) -> Option<u64> {
        self.queue.front().map(|sent| sent.start)
    }

    /// Whether a segment that was sent again may still be in the network (`tcp_any_retrans_done`).
    pub(super) fn has_repeated(&self) -> bool {
        self.again > 0 || self.queue.front().is_some_and(|sent| sent.ever_again)
    }
}
