//! Blocks whose size follows what is ready to be sent (Bhat and McNair, "Delivering Low Latency Video using
//! TCP with Network Coding over Wireless Network", section 3.3).
//!
//! A block of k source symbols, a *bucket*, leaves as `Gamma k` combinations of all of them; the fraction is
//! carried. Source symbols are not sent themselves. k is as many symbols as wait and the window has room for,
//! at least 1 and at most the cap. So no block waits for symbols that the application has not written, and
//! none is filled with empty symbols.
//!
//! The bucket begins at 1. Each combination that arrives raises it by 1, as slow start raises a window. A
//! block that lost more combinations than it can spare halves it, once for the blocks that were under way
//! then. A probe timeout resets it to 1. The paper sets it from TCP's window alone, which moves at the same
//! events; our window also moves at losses that the combinations hide.
//!
//! The fixed form is the paper's baseline (section 3.2): each block has exactly the cap, and the lane adds
//! empty symbols if the sender has fewer.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use tidewire_codec::{RepairId, SourceId};

use crate::Time;
use crate::redundancy::{Closed, CodingContext, GenerationRow, ProactivePolicy, Repair, RepairInFlight};

/// The text of [`BucketBlocks::is_fixed`].
const FIXED: &str = "fixed";

/// Maximum of the cap. Chosen: the largest generation of `pipeline`. The paper's header has room for 255, and
/// its cap is 15.
const MOST_SYMBOLS: u16 = 64;
/// Maximum of Gamma (section 1: "anywhere between 1 and 1.5").
const MOST_GAMMA: f64 = 1.5;

/// What the text of a bucket may say.
pub(crate) const BUCKET_RANGE: &str = "bucket:CAP,GAMMA takes CAP from 1 to 64 symbols, and GAMMA from 1 to 1.5; \
                                       ,fixed may follow";

/// If the path limits the sender, an unfinished block waits for so long for the application to write more:
/// the time within which a lane takes more than it can send at once. Chosen: the granularity of timers.
const GRACE: Duration = Duration::from_millis(1);

/// Tolerance of sums of Gamma, so that rounding does not cost a combination.
const ROUNDING: f64 = 1e-9;

/// The parameters of the policy `bucket`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketBlocks {
    /// Maximum number of source symbols of a block, 1 to 64.
    pub cap: u16,
    /// Combinations per source symbol, 1 to 1.5.
    pub gamma: f64,
    /// Whether each block has `cap` symbols, empty ones included.
    pub is_fixed: bool,
}

impl BucketBlocks {
    /// Parses `CAP,GAMMA` or `CAP,GAMMA,fixed`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (cap, rest) = text.split_once(',')?;
        let (gamma, is_fixed) = match rest.split_once(',') {
            None => (rest, false),
            Some((gamma, FIXED)) => (gamma, true),
            Some(_) => return None,
        };
        let cap = cap.parse().ok().filter(|cap| (1..=MOST_SYMBOLS).contains(cap))?;
        let gamma = gamma.parse().ok().filter(|gamma| (1.0..=MOST_GAMMA).contains(gamma))?;
        Some(Self { cap, gamma, is_fixed })
    }
}

impl fmt::Display for BucketBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bucket:{},{}{}", self.cap, self.gamma, if self.is_fixed { ",fixed" } else { "" })
    }
}

/// A closed block that the peer may lack.
#[derive(Debug)]
struct Open {
    closed: Closed,
    /// Combinations sent, and those of them that were lost.
    sent: u16,
    lost: u16,
}

impl Open {
    fn end(&self) -> SourceId {
        self.closed.first.plus(self.closed.count.into())
    }
}

/// The policy; see the module.
#[derive(Debug)]
pub(crate) struct Bucket {
    blocks: BucketBlocks,
    /// First source symbol of the block that is being filled.
    filling: SourceId,
    /// The bucket: maximum number of symbols of the next block.
    bucket: u16,
    /// Losses of blocks below this id have lowered the bucket already.
    lowered: SourceId,
    /// Closed blocks from the lowest that the peer may lack, in the order of their ids.
    open: VecDeque<Open>,
    /// Fraction of a combination that the closed blocks left over.
    fraction: f64,
    /// The newest closed block, until the lane has fetched it.
    news: Option<Closed>,
}

impl Bucket {
    /// `blocks` must be within the ranges of its fields.
    pub(crate) fn new(blocks: BucketBlocks) -> Self {
        let (filling, lowered, open) = (SourceId(0), SourceId(0), VecDeque::new());
        Self { blocks, filling, bucket: 1, lowered, open, fraction: 0.0, news: None }
    }

    /// Symbols of a full block.
    fn size(&self, cx: &CodingContext<'_>) -> u64 {
        let cap = self.blocks.cap.min(cx.limits.max_span);
        let size = if self.blocks.is_fixed { cap.into() } else { cx.path.room.clamp(1, cap.min(self.bucket).into()) };
        size.max(1)
    }

    /// Closes the block that is being filled, with `count` symbols.
    fn close(&mut self, cx: &CodingContext<'_>, count: u16) {
        let (first, code) = (self.filling, cx.limits.code);
        self.filling = first.plus(count.into());
        let wanted = self.fraction + self.blocks.gamma * f64::from(count) + ROUNDING;
        self.fraction = (wanted.fract() - ROUNDING).max(0.0);
        let has_row = |key: &u16| code.check(RepairId { first, count, key: *key }).is_ok();
        let repairs = (0..wanted as u16).take_while(has_row).count() as u16;
        let closed = Closed { first, count, code, repairs };
        self.open.push_back(Open { closed, sent: 0, lost: 0 });
        self.news = Some(closed);
    }

    /// Symbols in the block that is being filled.
    fn count(&self, cx: &CodingContext<'_>) -> u16 {
        cx.sent.since(self.filling) as u16
    }

    /// When an unfinished block is closed although the sender is expected to have more.
    fn deadline(&self, cx: &CodingContext<'_>) -> Option<Time> {
        (self.filling < cx.sent && !cx.flow.backlog).then(|| cx.flow.last + GRACE)
    }

    /// Closes the block that is being filled if no symbol waits for it.
    fn close_unfinished(&mut self, cx: &CodingContext<'_>) {
        let count = self.count(cx);
        let lacking = self.size(cx).saturating_sub(count.into());
        let is_padded = self.blocks.is_fixed && lacking <= cx.flow.credit;
        self.close(cx, if is_padded { count + lacking as u16 } else { count });
    }

    /// The open block that contains the symbol.
    fn block_of(&mut self, id: SourceId) -> Option<&mut Open> {
        let index = self.open.partition_point(|block| block.end() <= id);
        self.open.get_mut(index).filter(|block| block.closed.first <= id)
    }
}

impl ProactivePolicy for Bucket {
    fn withholds_sources(&self) -> bool {
        true
    }

    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        // A block was closed with empty symbols, and this symbol takes the place of one of them.
        if cx.sent <= self.filling {
            return;
        }
        // Symbols that were given up before they were sent are in no block.
        self.filling = self.filling.max(cx.base.min(SourceId(cx.sent.0 - 1)));
        if u64::from(self.count(cx)) >= self.size(cx) {
            let count = self.count(cx);
            self.close(cx, count);
        } else if !cx.flow.backlog && !cx.path.saturated {
            self.close_unfinished(cx);
        }
    }

    fn on_repair_settled(&mut self, repair: &RepairInFlight, arrived: bool) {
        if arrived {
            self.bucket = (self.bucket + 1).min(self.blocks.cap);
            return;
        }
        let (lowered, filling) = (self.lowered, self.filling);
        let Some(block) = self.block_of(repair.first).filter(|_| !repair.on_feedback) else { return };
        block.lost += 1;
        let is_short = block.lost > block.closed.repairs.saturating_sub(block.closed.count);
        if is_short && block.closed.first >= lowered {
            self.lowered = filling;
            self.bucket = (self.bucket / 2).max(1);
        }
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if cx.path.is_silent {
            self.bucket = 1;
        }
        if self.deadline(cx).is_some_and(|deadline| deadline <= cx.now) {
            self.close_unfinished(cx);
        }
        while self.open.front().is_some_and(|block| block.end() <= cx.base) {
            self.open.pop_front();
        }
        // Blocks leave in order.
        let index = self.open.partition_point(|block| block.sent >= block.closed.repairs);
        let Open { closed: Closed { first, count, code, .. }, sent, .. } = self.open.get_mut(index)?;
        let row = GenerationRow { code: *code, key: *sent };
        *sent += 1;
        Some(Repair::Coded { first: *first, count: *count, row: Some(row), on_feedback: false })
    }

    fn poll_closed(&mut self) -> Option<Closed> {
        self.news.take()
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        self.deadline(cx)
    }
}

#[cfg(test)]
mod tests;
