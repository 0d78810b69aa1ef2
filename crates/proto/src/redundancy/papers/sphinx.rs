//! Blocks whose repairs follow the measured loss rate (Li and others, "Sphinx", 2019, section III-B).
//!
//! The policy cuts the source symbols into blocks and chooses degree and number of the repairs for each block
//! when it closes the block ([`tidewire_model::sphinx`]). Under a code that is not sparse it chooses only the
//! number. It sends nothing for reported losses: that is the answer policy's part. If the application leaves
//! a block unfinished, it is closed after an eighth of a round trip.

use core::fmt;
use std::collections::VecDeque;

use tidewire_codec::{Code, RepairId, SourceId};
use tidewire_model::sphinx::{self, Form, Rounding};

use crate::Time;
use crate::path::{DEVIATION_BLOCK, LossEstimate};
use crate::redundancy::{Closed, CodingContext, GenerationRow, LONGEST_SPAN, ProactivePolicy, Repair};

/// Probability with which a block is decoded without an answer. Chosen: 99 % of the blocks then wait for no
/// round trip. At 6 % loss this takes 3 repairs of 100 symbols more than a probability of 0.95.
pub(in crate::redundancy) const DECODED: f64 = 0.99;

/// The text of [`Rounding::Down`]. The ceiling of the paper has no text.
const FLOOR: &str = "floor";

/// A block that the application leaves unfinished is closed after this part of a round trip. Chosen: half of
/// what `block` waits, because an answer is sent only after the last repair.
const IDLE: u32 = 8;

/// The parameters of the policy `sphinx`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SphinxBlocks {
    /// Source symbols of a block, `n`.
    pub symbols: u16,
    /// The paper's threshold T for equations (1) to (5) as printed; `None` for repairs of half the block and
    /// as many as a receiver that eliminates needs.
    pub threshold: Option<f64>,
    /// How equation (1) becomes a whole degree. Without a threshold it has no meaning.
    pub rounding: Rounding,
}

impl fmt::Display for SphinxBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sphinx:{}", self.symbols)?;
        self.threshold.map_or(Ok(()), |threshold| write!(f, ",{threshold}"))?;
        if self.rounding == Rounding::Down { write!(f, ",{FLOOR}") } else { Ok(()) }
    }
}

/// Degree and number of the repairs of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redundancy) struct Shape {
    pub degree: u16,
    pub repairs: u16,
}

impl SphinxBlocks {
    /// Parses `K`, `K,T` or `K,T,floor`: source symbols of a block, the threshold of the printed equations,
    /// and the rounding of their degree.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (symbols, rest) = text.split_once(',').map_or((text, None), |(symbols, rest)| (symbols, Some(rest)));
        let (threshold, rounding) = match rest.and_then(|rest| rest.split_once(',')) {
            None => (rest, Rounding::Up),
            Some((threshold, FLOOR)) => (Some(threshold), Rounding::Down),
            Some(_) => return None,
        };
        let symbols = symbols.parse().ok().filter(|symbols| (1..=LONGEST_SPAN).contains(symbols))?;
        let threshold = match threshold {
            None => None,
            Some(text) => Some(text.parse().ok().filter(|&threshold| sphinx::is_threshold(threshold))?),
        };
        Some(Self { symbols, threshold, rounding })
    }

    /// The repairs for a block of `count` symbols. None while no loss was seen.
    pub(in crate::redundancy) fn shape(self, count: u16, loss: &LossEstimate) -> Shape {
        let rate = loss.rate.min(sphinx::MAX_LOSS);
        let none = Shape { degree: 1, repairs: 0 };
        if rate <= 0.0 {
            return none;
        }
        let plan = match self.threshold {
            None => sphinx::Block::new(count, rate, 0.0)
                .and_then(|block| block.plan_for_elimination(DECODED, variance_factor(loss))),
            Some(threshold) => sphinx::Block::new(count, rate, deviation(loss).min(1.0 - rate))
                .and_then(|block| block.plan(threshold, Form::Printed, self.rounding)),
        };
        // All numbers are in range, except for a threshold that a caller did not check.
        plan.map_or(none, shape_of)
    }

    /// The repairs that go with `missing` retransmitted symbols of a block of `count` symbols. The degree is
    /// that of the block's other repairs.
    pub(in crate::redundancy) fn compensation(self, count: u16, missing: u16, loss: &LossEstimate) -> u16 {
        let rate = loss.rate.min(sphinx::MAX_LOSS);
        let plan = match self.threshold {
            None => sphinx::Block::new(missing, rate, 0.0)
                .and_then(|block| block.plan_for_elimination(DECODED, variance_factor(loss))),
            Some(threshold) => sphinx::Block::new(count, rate, deviation(loss).min(1.0 - rate))
                .and_then(|block| block.compensation(missing, threshold, Form::Printed, self.rounding)),
        };
        if rate <= 0.0 { 0 } else { plan.map_or(0, |plan| shape_of(plan).repairs) }
    }
}

fn shape_of(plan: sphinx::Plan) -> Shape {
    let fit = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    Shape { degree: fit(plan.degree), repairs: fit(plan.repairs) }
}

/// The paper's delta. It does not say over which periods the loss rate is measured. The mean is over 512
/// packets, so this is the deviation of periods of 512 packets, from that of shorter ones.
fn deviation(loss: &LossEstimate) -> f64 {
    loss.deviation * (f64::from(DEVIATION_BLOCK) / PERIOD).sqrt()
}

/// Packets behind [`LossEstimate::rate`] on a path with independent losses.
const PERIOD: f64 = 512.0;

/// By which factor the number of losses of a block varies more than that of independent losses.
fn variance_factor(loss: &LossEstimate) -> f64 {
    let independent = loss.rate * (1.0 - loss.rate) / f64::from(DEVIATION_BLOCK);
    if independent > 0.0 { (loss.deviation.powi(2) / independent).clamp(1.0, f64::from(DEVIATION_BLOCK)) } else { 1.0 }
}

/// A closed block whose repairs are not all sent.
#[derive(Clone, Copy, Debug)]
struct Open {
    closed: Closed,
    sent: u16,
}

/// The policy; see the module.
#[derive(Debug)]
pub(crate) struct Sphinx {
    blocks: SphinxBlocks,
    /// First source symbol of the block that is being filled.
    filling: SourceId,
    open: VecDeque<Open>,
    /// The newest closed block, until the lane has fetched it.
    news: Option<Closed>,
    /// The numbers of the last block, for the loss estimate that they were computed from.
    shape: Option<(u16, LossEstimate, Shape)>,
}

impl Sphinx {
    /// `blocks.symbols` must be at least 1.
    pub(crate) fn new(blocks: SphinxBlocks) -> Self {
        Self { blocks, filling: SourceId(0), open: VecDeque::new(), news: None, shape: None }
    }

    fn close(&mut self, cx: &CodingContext<'_>) {
        let count = (cx.sent.0 - self.filling.0) as u16;
        let first = core::mem::replace(&mut self.filling, cx.sent);
        let shape = self.shape(count, &cx.path.loss);
        let code = match cx.limits.code {
            Code::SemiRandomLt { .. } => Code::SemiRandomLt { degree: shape.degree.clamp(1, count) },
            code => code,
        };
        let wanted = match code {
            // The receiver gets no source symbol, so these repairs replace all of them.
            Code::Lt { c_milli, delta_milli } => {
                let arrived = expected_symbols(count, f64::from(c_milli) / 1e3, f64::from(delta_milli) / 1e3);
                (arrived / (1.0 - cx.path.loss.rate.min(sphinx::MAX_LOSS))).ceil() as u16
            }
            _ => shape.repairs,
        };
        let withheld = if code.is_systematic() { 0 } else { count };
        let most = withheld.saturating_add((cx.limits.max_overhead * f64::from(count)) as u16);
        let repairs = keys(code, first, count, wanted.min(most));
        let closed = Closed { first, count, code, repairs };
        self.open.push_back(Open { closed, sent: 0 });
        self.news = Some(closed);
    }

    fn shape(&mut self, count: u16, loss: &LossEstimate) -> Shape {
        if let Some((of, known, shape)) = self.shape
            && of == count
            && is_alike(&known, loss)
        {
            return shape;
        }
        let shape = self.blocks.shape(count, loss);
        self.shape = Some((count, *loss, shape));
        shape
    }

    fn idle_deadline(&self, cx: &CodingContext<'_>) -> Option<Time> {
        (self.filling < cx.sent && !cx.flow.backlog).then(|| cx.flow.last + cx.path.rtt / IDLE)
    }
}

/// How many of the `wanted` repairs the code has.
fn keys(code: Code, first: SourceId, count: u16, wanted: u16) -> u16 {
    let has = |repairs: u16| repairs == 0 || code.check(RepairId { first, count, key: repairs - 1 }).is_ok();
    if has(wanted) { wanted } else { (0..wanted).rev().find(|&repairs| has(repairs)).unwrap_or(0) }
}

/// Whether two estimates give nearly the same numbers: both loss rates and deviations differ by at most one
/// part in 32. Chosen: less than the accuracy of the estimate.
fn is_alike(a: &LossEstimate, b: &LossEstimate) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() * 32.0 <= a.max(b);
    near(a.rate, b.rate) && near(a.deviation, b.deviation)
}

/// Received repairs after which a peeling receiver has decoded `k` symbols under the robust soliton
/// distribution: `k beta` of Luby, "LT codes", 2002, definition 12, where beta is the sum of the weights rho
/// + tau.
fn expected_symbols(k: u16, c: f64, delta: f64) -> f64 {
    let k = f64::from(k);
    let ripple = (c * (k / delta).ln() * k.sqrt()).max(1e-9);
    let spike = (k / ripple).floor().clamp(1.0, k);
    let below: f64 = (1..spike as u32).map(|degree| ripple / (f64::from(degree) * k)).sum();
    k * (1.0 + below + (ripple * (ripple / delta).ln() / k).max(0.0))
}

impl ProactivePolicy for Sphinx {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        if cx.sent.0 - self.filling.0 >= u64::from(self.blocks.symbols.min(cx.limits.max_span)) {
            self.close(cx);
        }
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if self.idle_deadline(cx).is_some_and(|deadline| deadline <= cx.now) {
            self.close(cx);
        }
        while let Some(Open { closed, sent }) = self.open.front_mut() {
            let Closed { first, count, code, repairs } = *closed;
            if *sent < repairs && first.plus(count.into()) > cx.base {
                let row = GenerationRow { code, key: *sent };
                *sent += 1;
                return Some(Repair::Coded { first, count, row: Some(row), on_feedback: false });
            }
            self.open.pop_front();
        }
        None
    }

    fn poll_closed(&mut self) -> Option<Closed> {
        self.news.take()
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        self.idle_deadline(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::{Report, context as any_context};

    fn shape(threshold: Option<f64>, rate: f64) -> Shape {
        let blocks = SphinxBlocks { symbols: 100, threshold, rounding: Rounding::Up };
        blocks.shape(100, &LossEstimate::settled(rate, 1.0))
    }

    #[test]
    fn the_printed_form_has_the_papers_numbers_and_both_send_nothing_without_loss() {
        // 6 % with a deviation of 1.05 % over 512 packets: D_h = ceil(1 / 0.0705), N_pro = ceil(222 / (15 *
        // 0.94)).
        assert_eq!(shape(Some(0.5), 0.06), Shape { degree: 15, repairs: 16 });
        for threshold in [None, Some(0.5)] {
            assert_eq!(shape(threshold, 0.0).repairs, 0);
        }
        let corrected = shape(None, 0.06);
        assert!(corrected.degree == 50 && (15..=21).contains(&corrected.repairs), "{corrected:?}");
    }

    #[test]
    fn the_floor_lowers_the_degree_by_one_and_adds_a_repair() {
        let floor = SphinxBlocks { symbols: 100, threshold: Some(0.5), rounding: Rounding::Down };
        // As above with D_h = floor(1 / 0.0705) and N_pro = ceil(222 / (14 * 0.94)).
        let shape = floor.shape(100, &LossEstimate::settled(0.06, 1.0));
        assert_eq!(shape, Shape { degree: 14, repairs: 17 });
    }

    #[test]
    fn compensation_is_for_the_losses_among_what_is_sent_again() {
        let loss = LossEstimate::settled(0.06, 1.0);
        let blocks = |threshold| SphinxBlocks { symbols: 100, threshold, rounding: Rounding::Up };
        // One of three is lost at most: 69 draws cover it with probability 1/2, and 69 / (15 * 0.94) = 4.9.
        assert_eq!(blocks(Some(0.5)).compensation(100, 3, &loss), 5);
        assert!((1..=5).contains(&blocks(None).compensation(100, 3, &loss)));
        assert_eq!(blocks(None).compensation(100, 3, &LossEstimate::settled(0.0, 1.0)), 0);
    }

    #[test]
    fn a_block_is_closed_when_it_is_full_or_left_unfinished_and_its_repairs_follow() {
        let report = Report::default();
        let mut policy = Sphinx::new(SphinxBlocks { symbols: 40, threshold: None, rounding: Rounding::Up });
        let mut cx = any_context(&report, 0.1, 1.0, true);
        cx.limits.code = Code::SemiRandomLt { degree: 17 };
        cx.flow.backlog = true;
        for sent in 1..=50 {
            cx.sent = SourceId(sent);
            policy.on_source_sent(&cx);
        }
        let closed = policy.poll_closed().expect("the first 40");
        assert_eq!((closed.first, closed.count, closed.code), (SourceId(0), 40, Code::SemiRandomLt { degree: 20 }));
        let repairs = |policy: &mut Sphinx, cx: &CodingContext<'_>| core::iter::from_fn(|| policy.next(cx)).count();
        assert_eq!(repairs(&mut policy, &cx), usize::from(closed.repairs));
        cx.flow.backlog = false;
        let at = policy.poll_timeout(&cx).expect("ten symbols wait");
        cx.now = at;
        assert!(repairs(&mut policy, &cx) > 0);
        assert_eq!(policy.poll_closed().map(|closed| (closed.first, closed.count)), Some((SourceId(40), 10)));
        assert_eq!(policy.poll_timeout(&cx), None);
    }

    #[test]
    fn under_lt_the_repairs_replace_the_source_symbols() {
        // docs/sphinx.md section 5 measured 133 received repairs on average.
        let expected = expected_symbols(100, 0.1, 0.5);
        assert!((125.0..140.0).contains(&expected), "{expected}");
        assert_eq!(keys(Code::Cauchy, SourceId(0), 250, 16), 6);
        assert_eq!(keys(Code::Cauchy, SourceId(0), 256, 16), 0);
    }
}
