//! Policies to compare ours with: methods of the literature, in the slots of our protocol. Nobody should use
//! them otherwise.
//!
//! They are [`Custom`] values of their axis. Each has one number, which the grid varies. Like every policy
//! they are functions of their context and their own state.

use tidewire_codec::SourceId;
use tidewire_proto::redundancy::answer::{AsPlanned, answer_deficit, resend_unseen};
use tidewire_proto::redundancy::proactive::Adaptive;
use tidewire_proto::redundancy::{
    Answer, AnswerPolicy, CodingContext, PathState, Planner, Proactive, ProactivePolicy, Redundancy, Repair,
    RepairInFlight,
};
use tidewire_proto::{Custom, Time};

fn answer(name: &'static str, build: fn(f64) -> Box<dyn AnswerPolicy>, parameter: f64) -> Answer {
    Answer::Custom(Custom { name, build, parameter })
}

fn proactive(name: &'static str, build: fn(f64) -> Box<dyn ProactivePolicy>, parameter: f64) -> Proactive {
    Proactive::Custom(Custom { name, build, parameter })
}

/// One repair per `1 / share` source symbols.
fn every(share: f64) -> Proactive {
    Proactive::Every { spacing: 1.0 + 1.0 / share }
}

/// Sends a lost source symbol again as soon as feedback shows the loss, `copies` times in a row.
///
/// One copy is SR-ARQ. More copies make it a NACK policy with redundancy on the retransmission, because the
/// loss of retransmissions causes the tail of ARQ's delay (Hairpin, NSDI 2024; AutoRec, 2025).
pub(super) fn nack(copies: f64) -> Redundancy {
    let nack = answer("nack", |copies| Box::new(Nack { copies: copies as u32, again: None }), copies);
    Redundancy { proactive: Proactive::None, answer: nack }
}

#[derive(Debug)]
struct Nack {
    copies: u32,
    /// The symbol that was sent again last, and the number of copies still to send.
    again: Option<(SourceId, u32)>,
}

impl AnswerPolicy for Nack {
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let again = self.again.take().filter(|&(id, left)| left > 0 && id >= cx.base);
        let (id, left) = again.or_else(|| cx.lost.map(|id| (id, self.copies)))?;
        self.again = Some((id, left - 1));
        Some(Repair::Resend(id))
    }
}

/// The streaming code, evenly placed. For each settled deficit it sends two repairs more than the deficit,
/// over the prefix whose fate is known. This is the streaming code with bursts on NACKs; its p99 is the best
/// known near capacity.
pub(super) fn streaming_margin(share: f64) -> Redundancy {
    let margin = answer("margin", |_| Box::new(Margin), share);
    Redundancy { proactive: every(share), answer: margin }
}

/// Repairs beyond the deficit. Chosen: two packets of margin.
const MARGIN: u64 = 2;

#[derive(Debug)]
struct Margin;

impl AnswerPolicy for Margin {
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        resend_unseen(cx).or_else(|| answer_deficit(cx, |missing| missing + MARGIN))
    }
}

/// The streaming code, evenly placed. Symbols that are lost and not yet repaired are sent again uncoded
/// (Caterpillar RLNC with feedback: Gabriel, Wunderlich, Pandi, Fitzek, Reisslein, IEEE Access 2018).
pub(super) fn caterpillar(share: f64) -> Redundancy {
    let caterpillar = answer("caterpillar", |_| Box::new(Caterpillar), share);
    Redundancy { proactive: every(share), answer: caterpillar }
}

#[derive(Debug)]
struct Caterpillar;

impl AnswerPolicy for Caterpillar {
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        // A symbol that received repairs already account for needs no copy, so at most the deficit is sent
        // again.
        let short =
            cx.report.settled_deficit(cx.settled) > cx.in_flight.iter().filter(|it| it.on_feedback).count() as u64;
        let lost = cx.lost.filter(|&id| short || id >= cx.report.end);
        lost.map(Repair::Resend)
    }
}

/// Adaptive causal RLNC (Cohen, Malak, Bar Bracha, Médard, "Adaptive Causal Network Coding with Feedback",
/// IEEE Transactions on Communications 68(7), 2020), as far as it fits a systematic code in a transport.
///
/// A priori: after each window of `k` source symbols, which is the number sent in a round trip, `round(k p)`
/// repairs. A posteriori: one more repair in each slot while the rate of missing over added degrees of
/// freedom exceeds what the channel lets through, `m > a (1 - p - threshold)`. Missing is the deficit of the
/// settled symbols; added are all repairs whose fate is open. Repairs mix the newest span, or that of the
/// lowest gap if it lies before. The paper's size limit of two windows is left out, because spans are bounded
/// here.
pub(super) fn ac_rlnc(threshold: f64) -> Redundancy {
    Redundancy {
        proactive: proactive("ac-rlnc", |_| Box::new(APriori { since_window: 0, owed: 0 }), threshold),
        answer: answer("a-posteriori", |threshold| Box::new(APosteriori { threshold }), threshold),
    }
}

#[derive(Debug)]
struct APriori {
    since_window: u32,
    owed: u32,
}

impl ProactivePolicy for APriori {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        self.since_window += 1;
        let window = cx.path.rtt.as_secs_f64() / cx.flow.interval.as_secs_f64().max(1e-6);
        if f64::from(self.since_window) >= window {
            self.owed += (f64::from(self.since_window) * cx.path.loss.rate).round() as u32;
            self.since_window = 0;
        }
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let (first, count) = cx.newest_span(cx.limits.max_span)?;
        self.owed = self.owed.checked_sub(1)?;
        Some(Repair::Coded { first, count, row: None, on_feedback: false })
    }
}

#[derive(Debug)]
struct APosteriori {
    threshold: f64,
}

impl AnswerPolicy for APosteriori {
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if let Some(repair) = resend_unseen(cx) {
            return Some(repair);
        }
        let missing = cx.report.settled_deficit(cx.settled) as f64;
        let added = cx.in_flight.iter().count() as f64;
        let (newest, all) = cx.newest_span(cx.limits.max_span)?;
        if missing <= added * (1.0 - cx.path.loss.rate - self.threshold) {
            return None;
        }
        let gap = cx.report.first_gap(cx.settled).filter(|&gap| gap >= cx.base && gap < newest);
        let (first, count) = gap.map_or((newest, all), |gap| (gap, cx.gap_span(gap)));
        Some(Repair::Coded { first, count, row: None, on_feedback: true })
    }
}

/// Our policies, with `factor` times the measured loss as their input.
pub(super) fn misled(factor: f64) -> Redundancy {
    Redundancy {
        proactive: proactive("misled", |factor| Box::new(Misled::<Adaptive>::new(factor)), factor),
        answer: answer("misled", |factor| Box::new(Misled::<AsPlanned>::new(factor)), factor),
    }
}

/// One of our policies with its own planner. The planner of the lane would see the measured loss.
#[derive(Debug)]
struct Misled<P> {
    factor: f64,
    planner: Planner,
    ours: P,
}

impl<P: Default> Misled<P> {
    fn new(factor: f64) -> Self {
        Self { factor, planner: Planner::default(), ours: P::default() }
    }
}

/// The context with `factor` times the loss, and with the decision of a planner that sees it.
fn told<'a>(cx: &CodingContext<'a>, factor: f64, planner: &'a Planner) -> CodingContext<'a> {
    let mut loss = cx.path.loss;
    loss.rate *= factor;
    loss.upper *= factor;
    CodingContext { path: PathState { loss, ..cx.path }, planned: planner.planned(), ..*cx }
}

impl ProactivePolicy for Misled<Adaptive> {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        let seen = Planner::default();
        self.planner.on_source_sent(&told(cx, self.factor, &seen));
        self.ours.on_source_sent(&told(cx, self.factor, &self.planner));
    }

    fn on_source_settled(&mut self, id: SourceId, arrived: bool) {
        self.ours.on_source_settled(id, arrived);
    }

    fn on_repair_settled(&mut self, repair: &RepairInFlight, arrived: bool) {
        self.ours.on_repair_settled(repair, arrived);
    }

    fn on_answer(&mut self, cx: &CodingContext<'_>, answer: &Repair) {
        self.ours.on_answer(&told(cx, self.factor, &self.planner), answer);
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        self.ours.next(&told(cx, self.factor, &self.planner))
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        self.ours.poll_timeout(&told(cx, self.factor, &self.planner))
    }
}

impl AnswerPolicy for Misled<AsPlanned> {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        let seen = Planner::default();
        self.planner.on_source_sent(&told(cx, self.factor, &seen));
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        self.ours.next(&told(cx, self.factor, &self.planner))
    }
}
