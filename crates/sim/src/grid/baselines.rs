//! Policies that ours is compared with and that nobody should run: what the literature sends, in the protocol's own slots.
//!
//! They come into a connection by [`Redundancy::Custom`]; each has one number to be searched over. Like every policy they are functions of their
//! context and own state.

use tidewire_codec::{Code, SourceId};
use tidewire_proto::Time;
use tidewire_proto::redundancy::{
    Adaptive, CodingContext, Custom, Every, Plan, Redundancy, RedundancyPolicy, Repair, RepairInFlight, answer_deficit,
    resend_unseen,
};

fn custom(name: &'static str, build: fn(f64) -> Box<dyn RedundancyPolicy>, parameter: f64) -> Redundancy {
    Redundancy::Custom(Custom { name, build, parameter })
}

/// A lost source symbol is sent again as soon as feedback shows the loss, `copies` times in a row.
///
/// With one copy this is SR-ARQ. More of them is what sets policies on NACKs apart from it in delay: redundancy on the retransmission, whose own loss is
/// what the tail of ARQ is made of (Hairpin, NSDI 2024; AutoRec, 2025).
pub(super) fn nack(copies: f64) -> Redundancy {
    custom("nack", |copies| Box::new(Nack { copies: copies as u32, again: None }), copies)
}

#[derive(Debug)]
struct Nack {
    copies: u32,
    /// The symbol sent again last, and copies still to follow.
    again: Option<(SourceId, u32)>,
}

impl RedundancyPolicy for Nack {
    fn next_repair(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let again = self.again.take().filter(|&(id, left)| left > 0 && id >= cx.base);
        let (id, left) = again.or_else(|| cx.lost.map(|id| (id, self.copies)))?;
        self.again = Some((id, left - 1));
        Some(Repair::Resend(id))
    }
}

/// The streaming code, evenly placed, and for each settled deficit two repairs more than it lacks, over the prefix whose fate is known: the
/// streaming code with bursts on NACKs of the papers' catalogue (part 2.3), whose p99 is the best known near capacity.
pub(super) fn streaming_margin(share: f64) -> Redundancy {
    custom("streaming-margin", |share| Box::new(Margin(Every::new(1.0 + 1.0 / share, false))), share)
}

/// Repairs beyond the deficit (catalogue part 2.3: "2 packets of extra margin").
const MARGIN: u64 = 2;

#[derive(Debug)]
struct Margin(Every);

impl RedundancyPolicy for Margin {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        self.0.on_source_sent(cx);
    }

    fn next_repair(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let answer = resend_unseen(cx).or_else(|| answer_deficit(cx, |missing| missing + MARGIN));
        answer.or_else(|| self.0.next_repair(cx))
    }
}

/// The streaming code, evenly placed, and what is lost and not yet repaired is sent again uncoded (Caterpillar RLNC with feedback: Gabriel,
/// Wunderlich, Pandi, Fitzek, Reisslein, IEEE Access 2018).
pub(super) fn caterpillar(share: f64) -> Redundancy {
    custom("caterpillar", |share| Box::new(Caterpillar(Every::new(1.0 + 1.0 / share, false))), share)
}

#[derive(Debug)]
struct Caterpillar(Every);

impl RedundancyPolicy for Caterpillar {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        self.0.on_source_sent(cx);
    }

    fn next_repair(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        // A symbol that rows already stand for needs no copy: no more are sent again than the deficit counts.
        let short =
            cx.report.settled_deficit(cx.settled) > cx.in_flight.iter().filter(|it| it.on_feedback).count() as u64;
        let lost = cx.lost.filter(|&id| short || id >= cx.report.end);
        lost.map(Repair::Resend).or_else(|| self.0.next_repair(cx))
    }
}

/// Adaptive causal RLNC (Cohen, Malak, Bar Bracha, Médard, "Adaptive Causal Network Coding with Feedback", IEEE Transactions on Communications 68(7), 2020), as far as
/// it fits a systematic code in a transport.
///
/// A priori: after each window of `k` source symbols, what is sent in a round trip, `round(k p)` repairs. A posteriori: one more repair
/// in each slot while the rate of missing over added degrees of freedom is above what the channel lets through, `m > a (1 - p - threshold)`: missing
/// is the deficit of what is settled, added are all repairs whose fate is open. Repairs mix the newest span, or the lowest gap's where that lies
/// before it. Left out: their size limit of two windows, since spans are bounded here.
pub(super) fn ac_rlnc(threshold: f64) -> Redundancy {
    custom("ac-rlnc", |threshold| Box::new(AcRlnc { threshold, since_window: 0, owed: 0 }), threshold)
}

#[derive(Debug)]
struct AcRlnc {
    threshold: f64,
    since_window: u32,
    owed: u32,
}

impl RedundancyPolicy for AcRlnc {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        self.since_window += 1;
        let window = cx.rtt.as_secs_f64() / cx.source_interval.as_secs_f64().max(1e-6);
        if f64::from(self.since_window) >= window {
            self.owed += (f64::from(self.since_window) * cx.loss.rate).round() as u32;
            self.since_window = 0;
        }
    }

    fn next_repair(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if let Some(repair) = resend_unseen(cx) {
            return Some(repair);
        }
        let missing = cx.report.settled_deficit(cx.settled) as f64;
        let added = cx.in_flight.iter().filter(|it| !it.is_blank()).count() as f64;
        let (newest, all) = cx.newest_span(cx.max_span)?;
        if missing > added * (1.0 - cx.loss.rate - self.threshold) {
            let gap = cx.report.first_gap(cx.settled).filter(|&gap| gap >= cx.base && gap < newest);
            let (first, count) = gap.map_or((newest, all), |gap| (gap, cx.gap_span(gap)));
            return Some(Repair::Coded { code: Code::Rlc, first, count, key: None, on_feedback: true });
        }
        self.owed = self.owed.checked_sub(1)?;
        Some(Repair::Coded { code: Code::Rlc, first: newest, count: all, key: None, on_feedback: false })
    }
}

/// Our policy, told `factor` times the loss that was measured.
pub(super) fn misled(factor: f64) -> Redundancy {
    custom("misled", |factor| Box::new(Misled { factor, ours: Adaptive::default() }), factor)
}

#[derive(Debug)]
struct Misled {
    factor: f64,
    ours: Adaptive,
}

impl Misled {
    fn told<'a>(&self, cx: &CodingContext<'a>) -> CodingContext<'a> {
        let mut loss = cx.loss;
        loss.rate *= self.factor;
        loss.upper *= self.factor;
        CodingContext { loss, ..*cx }
    }
}

impl RedundancyPolicy for Misled {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        let told = self.told(cx);
        self.ours.on_source_sent(&told);
    }

    fn on_repair_settled(&mut self, repair: &RepairInFlight, arrived: bool) {
        self.ours.on_repair_settled(repair, arrived);
    }

    fn next_repair(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let told = self.told(cx);
        self.ours.next_repair(&told)
    }

    fn plan(&self) -> Option<&Plan> {
        self.ours.plan()
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        self.ours.poll_timeout(&self.told(cx))
    }
}
