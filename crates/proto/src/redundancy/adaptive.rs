//! The default policy: the streaming code with as much proactive repair as the exact model says that a target takes, and answers to what is lacking.
//!
//! - *Application-limited*: the least share of repair with which the model predicts that few enough symbols are later than the target
//!   ([`super::target`]): the user's, or [`default_target`]. Answers carry the margin that the target bears.
//! - *Saturated* and no target given: what the loss takes, `p/(1-p)`, and a few percent more: every repair beyond costs goodput. Where losses are dense or round trips short, answers are
//!   less what the running repairs drain anyway, and each leaves out one proactive repair when next nothing is lacking.
//! - *Tail*: when the sources pause, as many repairs as make it likely that the tail can be decoded.
//! - On a clean path nothing is sent before it is asked for: the policy is then plain ARQ.
//!
//! Over no second is there more proactive repair than `max_overhead` of the source symbols ([`super::cap`]).

use core::time::Duration;

use tidewire_codec::{Code, SourceId};

use super::cap::Cap;
use super::every::{answer_deficit, resend_unseen};
use super::target::{ASKED, Conditions, Plan, plan, plan_default};
use super::{CodingContext, RedundancyPolicy, RegionAnswers, Repair, Report, Target};
use crate::Time;
use crate::path::{LossEstimate, correlation};

/// Below this upper bound of the loss rate the path counts as clean: at 0.2 % a repair per 20 packets saves one round trip in 500
/// packets and costs 25 packets for it.
const CLEAN: f64 = 0.002;
/// Fewer fates than this say too little: until then [`UNKNOWN`] holds. A loss says more than none.
const ENOUGH: f64 = 64.0;
const FEW: f64 = 8.0;
/// Proactive share before anything is known ("start near 0-3 %, grow on evidence": USERS.md complaint 2).
const UNKNOWN: f64 = 0.03;
/// Saturated: repair beyond what the loss takes, as a fraction of the rate (DESIGN section 6 allows 5 %; headers take 5.4 %, and 0.90 of C(1 - p)
/// is to be left). What these rules are worth is measured in docs/recovery.md.
const EXCESS: f64 = 0.02;
/// The same where answers are sparing ([`is_dear`]); it is also what drains a deficit without being asked: so much is not answered, since both would be sent for
/// the same loss.
const SPARING_EXCESS: f64 = 0.03;
/// From this rate of loss times [`correlation`] on something is lacking most of the time, and to answer all of it would cost more goodput than there is to give
/// (Gilbert 10 % x 4: 2.4 %). Between 10 % of independent losses (0.12) or 2 % in runs of 4 (0.14), where answers are cheap, and 20 % (0.3).
const DENSE: f64 = 0.2;
/// With fewer source symbols than this in a round trip an answer comes soon, and being sparing with them costs little delay (10 % at 10 ms, 25 Mbit/s, 21 symbols:
/// 2 ms, for 2.8 % of goodput). Chosen between that and 125 symbols, where it costs half of the delay.
const SHORT: u64 = 64;
/// Where answers are sparing each leaves out one proactive repair, when next nothing is lacking: both come out of one budget. At most this many
/// are owed.
const MAX_DEBT: u32 = 32;
/// Predicted delay quantile that the target bounds.
const QUANTILE: f64 = 0.99;
/// Target when none is given, in round trips: this much (DESIGN section 6), and more where the loss makes a given delay dearer, but no more than
/// one, which is what asking costs; and no less than [`TARGET_FLOOR`].
const TARGET: f64 = 0.1;
const TARGET_FLOOR: Duration = Duration::from_millis(5);
/// Round trips that the target grows by per unit of loss, times [`correlation`] for bursts. From the sweep in docs/recovery.md: with it
/// delay and overhead both keep to the goals of half load at every loss from 1 % to 20 %, in bursts or not.
const TARGET_PER_LOSS: f64 = 2.0;
/// Where symbols are far apart, so many of them at least, up to what asking takes: a repair mixes some symbols, and with fewer between them it is a copy of each.
const SLOW: u32 = 8;
/// Probability that a tail stays undecoded after its repairs.
const TAIL_RISK: f64 = 0.01;
/// A pause is a tail after this fraction of a round trip.
const TAIL_FRACTION: u32 = 8;
/// Answers to a region carry a margin of so many standard deviations where there is a target: one in 700 falls short. Saturated it is one deviation,
/// since each repair costs goodput. Chosen.
const SURE: f64 = 3.0;
/// Repairs that may wait for a slot: what an idle moment of the path makes good, and no burst.
const MOST_DUE: f64 = 4.0;
/// A plan for a target costs a millisecond or two, so that it is made anew no more often than this, and only where what it rests on has changed.
const PLAN_LIFE: Duration = Duration::from_millis(250);
/// ... by more than this fraction,
const DRIFT: f64 = 0.1;
/// or sooner where it is another path by now.
const STEP: f64 = 0.5;
const STEP_LIFE: Duration = Duration::from_millis(40);
/// Spacing is worked out anew after this many source symbols: cheap enough to be exact about.
const REVIEW: u32 = 16;

/// A window of more symbols than this is long: what is under way is thousands of repairs then, the loss estimate's memory a few milliseconds, and symbols leave by
/// bursts, so that each packet would have all looked through and each look see something else. Chosen: twice what 25 Mbit/s takes at 60 ms, up to which every
/// packet has its own look.
const LONG: u64 = 256;
/// Round trips until a packet's fate is known: FEEDBACK leaves a sixteenth later, and a loss is believed an eighth later (docs/recovery.md section 1).
const SETTLED: f64 = 1.0 + 1.0 / 16.0 + 1.0 / 8.0;
/// Looks in a long window at whether an answer became due by what the sender does itself. Chosen: a quarter of what FEEDBACK waits, which is when else it does.
const LOOKS: u64 = 64;
/// Of a long window, the part over which what is seen is averaged. Chosen: a step is still followed within a round trip.
const AVERAGED: f64 = 0.5;

/// See the module.
#[derive(Debug, Default)]
pub struct Adaptive {
    /// Proactive repairs per source symbol.
    share: f64,
    due: f64,
    /// Proactive repairs to be left out for answers that were sent.
    debt: u32,
    cap: Cap,
    since_review: u32,
    reviewed: bool,
    saturated: bool,
    /// Source symbols since the last repair over the newest span.
    unprotected: u32,
    tail_sent: u32,
    /// The cap allows no repair of the tail, until sources earn more.
    tail_refused: bool,
    /// For the target, and when it was made.
    plan: Option<(Time, Plan)>,
    /// See [`Self::conditions`].
    seen: Option<Conditions>,
    /// Nothing was to be answered when this was so.
    nothing_due: Option<Situation>,
    regions: RegionAnswers,
}

/// What an answer depends on most. That an answer was lost is seen at the next look, a fraction of the window later.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Situation {
    edge: SourceId,
    end: SourceId,
    deficit: u64,
    settled: SourceId,
    /// Not compared by itself: see [`Self::is_still`].
    sent: SourceId,
}

impl Situation {
    fn of(cx: &CodingContext<'_>) -> Self {
        let Report { edge, end, deficit, .. } = *cx.report;
        Self { edge, end, deficit, settled: cx.settled, sent: cx.sent }
    }

    /// Whether the window is long, and so little of it was sent since `before`, with nothing else changed, that what was not due then may wait.
    fn is_still(&self, before: &Self) -> bool {
        let window = self.sent.0.saturating_sub(self.settled.0);
        let is_little = window > LONG && self.sent.0 - before.sent.0 < window / LOOKS;
        is_little && *self == Self { sent: self.sent, ..*before }
    }
}

impl RedundancyPolicy for Adaptive {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        self.since_review += 1;
        if !self.reviewed || self.since_review >= REVIEW {
            self.reviewed = true;
            self.since_review = 0;
            self.saturated = cx.saturated;
            self.share = self.share(cx);
        }
        self.cap.on_source(cx.now, cx.max_overhead);
        self.due = (self.due + self.share).min(MOST_DUE);
        self.unprotected = self.unprotected.saturating_add(1);
        (self.tail_sent, self.tail_refused) = (0, false);
    }

    fn next_repair(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let answer = resend_unseen(cx).or_else(|| self.answer_if_due(cx)).or_else(|| self.answer_region(cx));
        if let Some(repair) = answer {
            return Some(repair);
        }
        let (first, count) = cx.newest_span(cx.max_span)?;
        if self.due >= 1.0 && self.debt > 0 && cx.report.deficit == 0 {
            self.due -= 1.0;
            self.debt -= 1;
        }
        let is_tail = self.due < 1.0;
        if is_tail && self.tail_due(cx).is_none_or(|at| at > cx.now) {
            return None;
        }
        if !self.cap.allows(cx.now, cx.max_overhead) {
            self.tail_refused = true;
            return None;
        }
        self.cap.on_repair(cx.now);
        if is_tail {
            self.tail_sent += 1;
        } else {
            self.due -= 1.0;
            self.unprotected = 0;
        }
        Some(Repair::Coded { code: Code::Rlc, first, count, key: None, on_feedback: false })
    }

    fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref().map(|(_, plan)| plan)
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        self.tail_due(cx)
    }
}

impl Adaptive {
    /// Proactive repairs per source symbol.
    fn share(&mut self, cx: &CodingContext<'_>) -> f64 {
        let loss = &cx.loss;
        if loss.weight < ENOUGH && (loss.rate == 0.0 || loss.weight < FEW) {
            (self.plan, self.seen) = (None, None);
            return UNKNOWN.min(cx.max_overhead);
        }
        if cx.target.is_none() && (loss.upper < CLEAN || self.saturated) {
            (self.plan, self.seen) = (None, None);
            let taken = if loss.upper < CLEAN { 0.0 } else { taken(loss) };
            let excess = if is_dear(cx) { SPARING_EXCESS } else { EXCESS };
            return (taken + excess.min(taken)).min(cx.max_overhead);
        }
        let conditions = self.conditions(cx);
        let holds = |&(at, plan): &(Time, Plan)| {
            let differ = plan.conditions.difference(&conditions);
            let life = if differ > STEP { STEP_LIFE } else { PLAN_LIFE };
            differ <= DRIFT || cx.now.since(at) < life
        };
        if !self.plan.as_ref().is_some_and(holds) {
            let plan = cx
                .target
                .map_or_else(|| plan_default(default_target(cx), conditions), |target| plan(target, conditions));
            self.plan = Some((cx.now, plan));
        }
        self.plan.map_or(0.0, |(_, plan)| plan.share)
    }

    /// What a plan rests on; of a long window what is seen over some of it.
    fn conditions(&mut self, cx: &CodingContext<'_>) -> Conditions {
        let window = cx.sent.0.saturating_sub(cx.settled.0);
        let conditions = if window <= LONG {
            Conditions::new(&cx.loss, cx.rtt, cx.source_interval)
        } else {
            // So many were sent in the time until a fate is known, whatever the last few did.
            let now = Conditions::new(&cx.loss, cx.rtt, cx.rtt.mul_f64(SETTLED).div_f64(window as f64));
            self.seen.map_or(now, |seen| seen.towards(&now, f64::from(REVIEW) / (AVERAGED * window as f64)))
        };
        self.seen = Some(conditions);
        conditions
    }

    /// A repair for a reported deficit, looked for where it can have become due.
    fn answer_if_due(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let now = Situation::of(cx);
        if self.nothing_due.is_some_and(|before| now.is_still(&before)) {
            return None;
        }
        let answer = self.answer(cx);
        self.nothing_due = answer.is_none().then_some(now);
        answer
    }

    /// A repair for a reported deficit.
    fn answer(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if let Some((_, plan)) = self.plan {
            return answer_deficit(cx, |missing| plan.answers(missing, cx.oldest));
        }
        if !self.saturated || !is_dear(cx) {
            return answer_deficit(cx, |missing| missing);
        }
        // What the running repairs bring within a round trip beyond what its losses take.
        let excess = (self.share - taken(&cx.loss)).max(0.0);
        let drained = excess * cx.sent.0.saturating_sub(cx.settled.0) as f64;
        let answer = answer_deficit(cx, |missing| missing.saturating_sub(drained as u64))?;
        self.debt = (self.debt + 1).min(MAX_DEBT);
        Some(answer)
    }

    /// A repair for a region beyond the runs that the report names.
    fn answer_region(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let deviations = if self.plan.is_some() { SURE } else { 1.0 };
        self.regions.next(cx, |missing| arriving(missing, cx.loss.rate, deviations))
    }

    /// When the next tail repair is due, if the tail needs one more.
    fn tail_due(&self, cx: &CodingContext<'_>) -> Option<Time> {
        if cx.backlog || self.tail_refused || self.unprotected == 0 || cx.base >= cx.sent {
            return None;
        }
        let tail = self.unprotected.min(u32::from(cx.max_span));
        let risk = cx.target.map_or(TAIL_RISK, |target| TAIL_RISK.min(1.0 - target.deliver));
        let wait = (cx.rtt / TAIL_FRACTION).max(cx.source_interval * 5 / 4).min(cx.rtt / 2);
        let wait = cx.target.map_or(wait, |target| wait.min(target.latency / 4));
        (self.tail_sent < tail_repairs(cx.loss.rate, tail, risk)).then(|| cx.last_source + wait)
    }
}

/// What is aimed at where the user says nothing: a p99 of in-order delay of `round trip * min(1, 0.1 + 2 p (2 B - 1))` with the upper bound of the loss
/// rate p and the mean burst B; at least 5 ms and [`SLOW`] source symbols.
fn default_target(cx: &CodingContext<'_>) -> Target {
    let round_trips = TARGET + TARGET_PER_LOSS * cx.loss.upper * correlation(cx.loss.burst);
    let slow = (cx.source_interval * SLOW).min(cx.rtt.mul_f64(ASKED));
    let latency = cx.rtt.mul_f64(round_trips.min(1.0)).max(TARGET_FLOOR).max(slow);
    Target { latency, deliver: QUANTILE, max_overhead: cx.max_overhead }
}

/// Repairs of which `missing` arrive on average, and so many standard deviations more: without, half of the regions would be asked for again, a round
/// trip later.
fn arriving(missing: u64, loss: f64, deviations: f64) -> u64 {
    let (missing, arrives) = (missing as f64, (1.0 - loss).max(0.1));
    ((missing + deviations * (missing * loss).sqrt()) / arrives).ceil() as u64
}

/// Repairs per source symbol that the loss takes: `p / (1 - p)`.
fn taken(loss: &LossEstimate) -> f64 {
    loss.rate / (1.0 - loss.rate).max(0.1)
}

/// Saturated: whether to answer all that is lacking would cost too much goodput.
fn is_dear(cx: &CodingContext<'_>) -> bool {
    let flying = cx.sent.0.saturating_sub(cx.settled.0);
    flying < SHORT || cx.loss.rate * correlation(cx.loss.burst) > DENSE
}

/// Fewest repairs `m` after `tail` source symbols so that more than `m` losses among the `tail + m` packets are unlikelier
/// than `risk`; none where the path loses next to nothing.
fn tail_repairs(loss: f64, tail: u32, risk: f64) -> u32 {
    if loss < CLEAN {
        return 0;
    }
    (1..=tail).find(|&m| more_than(m, tail + m, loss) < risk).unwrap_or(tail)
}

/// P(Bin(n, p) > m).
pub(super) fn more_than(m: u32, n: u32, p: f64) -> f64 {
    let odds = p / (1.0 - p);
    let mut term = (1.0 - p).powi(n as i32);
    let mut at_most = term;
    for k in 0..m.min(n) {
        term *= odds * f64::from(n - k) / f64::from(k + 1);
        at_most += term;
    }
    (1.0 - at_most).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::RepairInFlight;
    use super::*;

    fn context(report: &Report, rate: f64, burst: f64, saturated: bool) -> CodingContext<'_> {
        CodingContext {
            now: Time::from_millis(1_000),
            base: SourceId(0),
            settled: SourceId(0),
            sent: SourceId(100),
            report,
            lost: None,
            in_flight: &[],
            loss: LossEstimate { rate, upper: rate * 1.2, burst, weight: 512.0 },
            rtt: Duration::from_millis(60),
            backlog: false,
            saturated,
            source_interval: Duration::from_micros(960),
            last_source: Time::from_millis(1_000),
            max_span: 256,
            oldest: Duration::ZERO,
            max_overhead: 0.5,
            target: None,
        }
    }

    /// What it sends after the first review.
    fn share(cx: &CodingContext<'_>) -> f64 {
        let mut policy = Adaptive::default();
        policy.on_source_sent(cx);
        policy.share
    }

    #[test]
    fn share_grows_with_loss_and_bursts_and_is_zero_when_clean() {
        let report = Report::default();
        let of = |rate, burst| share(&context(&report, rate, burst, false));
        assert_eq!(of(0.0, 1.0), 0.0);
        let (low, high, bursty) = (of(0.02, 1.0), of(0.1, 1.0), of(0.1, 4.0));
        assert!(0.0 < low && low < high && high < bursty && bursty <= 0.5, "{low} {high} {bursty}");
    }

    #[test]
    fn saturated_it_is_what_the_loss_takes_and_a_little() {
        let report = Report::default();
        let saturated = share(&context(&report, 0.1, 1.0, true));
        assert!((saturated - (0.1 / 0.9 + EXCESS)).abs() < 1e-9, "{saturated}");
    }

    #[test]
    fn saturated_answers_are_full_where_they_cost_little() {
        let gap = SourceId(0)..SourceId(2);
        let report =
            Report { edge: gap.start, end: SourceId(200), deficit: 2, undecoded: vec![gap], ..Report::default() };
        let answered = |rate, burst, flying: u64| {
            let mut cx = context(&report, rate, burst, true);
            (cx.sent, cx.settled) = (SourceId(200), SourceId(200 - flying));
            let mut policy = Adaptive::default();
            policy.on_source_sent(&cx);
            matches!(policy.next_repair(&cx), Some(Repair::Coded { on_feedback: true, .. }))
        };
        assert!(answered(0.1, 1.1, 125), "3 % of 125 would drain three of them");
        assert!(!answered(0.1, 4.0, 125), "bursts: the running repairs drain it");
        assert!(answered(0.1, 1.1, 20), "little is drained within a short round trip");
    }

    #[test]
    fn little_is_sent_on_no_evidence_and_a_loss_is_more_than_none() {
        let report = Report::default();
        let mut cx = context(&report, 0.0, 1.0, false);
        cx.loss.weight = ENOUGH - 1.0;
        assert_eq!(share(&cx), UNKNOWN);
        cx.loss = LossEstimate { rate: 0.1, upper: 0.25, burst: 1.0, weight: 10.0 };
        assert!(share(&cx) > 0.2, "{}", share(&cx));
    }

    #[test]
    fn a_plan_lasts_while_the_path_is_the_same_and_little_longer() {
        let report = Report::default();
        let mut policy = Adaptive::default();
        let mut after = |cx: &mut CodingContext<'_>, wait: Duration, upper| {
            cx.now += wait;
            cx.loss.upper = upper;
            (0..REVIEW).for_each(|_| policy.on_source_sent(cx));
            policy.share
        };
        let mut cx = context(&report, 0.05, 1.0, false);
        let first = after(&mut cx, Duration::ZERO, 0.06);
        // Drift is followed after a quarter of a second, a step at the next moment.
        assert_eq!(after(&mut cx, Duration::ZERO, 0.08), first);
        assert_eq!(after(&mut cx, PLAN_LIFE, 0.063), first);
        let drifted = after(&mut cx, Duration::ZERO, 0.08);
        assert!(drifted > first);
        assert_eq!(after(&mut cx, Duration::ZERO, 0.2), drifted);
        assert!(after(&mut cx, STEP_LIFE, 0.2) > drifted);
    }

    #[test]
    fn a_tail_that_the_cap_refuses_asks_for_no_more_time() {
        let report = Report::default();
        let mut cx = context(&report, 0.1, 1.0, false);
        cx.max_overhead = 0.0;
        let mut policy = Adaptive::default();
        policy.on_source_sent(&cx);
        cx.now = policy.poll_timeout(&cx).expect("the tail is not protected");
        assert_eq!((policy.next_repair(&cx), policy.poll_timeout(&cx)), (None, None));
    }

    #[test]
    fn tail_repairs_are_few_and_enough() {
        assert_eq!(tail_repairs(0.0, 10, TAIL_RISK), 0);
        assert_eq!(tail_repairs(0.1, 1, TAIL_RISK), 1);
        for tail in 1..40 {
            let m = tail_repairs(0.1, tail, TAIL_RISK);
            assert!(m <= tail && (m == tail || more_than(m, tail + m, 0.1) < TAIL_RISK));
        }
    }

    #[test]
    fn binomial_tail_is_exact_on_small_cases() {
        assert!((more_than(0, 2, 0.5) - 0.75).abs() < 1e-12);
        assert!((more_than(1, 2, 0.5) - 0.25).abs() < 1e-12);
        assert_eq!(more_than(2, 2, 0.5), 0.0);
    }

    #[test]
    fn with_a_long_window_no_single_look_makes_a_plan() {
        let report = Report::default();
        let mut policy = Adaptive::default();
        let mut conditions = |cx: &mut CodingContext<'_>, upper, reviews| {
            cx.loss.upper = upper;
            for _ in 0..reviews * REVIEW {
                policy.on_source_sent(cx);
            }
            cx.now += PLAN_LIFE;
            policy.plan.map(|(_, plan)| plan.conditions).expect("it plans at half load")
        };
        let mut cx = context(&report, 0.05, 1.0, false);
        (cx.settled, cx.sent) = (SourceId(1_000), SourceId(7_000));
        let before = conditions(&mut cx, 0.06, 1);
        assert_eq!(before.interval, Duration::from_nanos(11_875), "6,000 in 71.25 ms, whatever the last few did");
        assert_eq!(conditions(&mut cx, 0.12, 1), before);
        // Three halves of a window; then there is time for another plan.
        conditions(&mut cx, 0.12, 3 * 188);
        assert!(conditions(&mut cx, 0.12, 1).loss > 0.1, "what lasts is believed");
    }

    #[test]
    fn with_a_long_window_what_is_not_due_is_looked_at_again_a_little_later() {
        let gap = SourceId(10)..SourceId(12);
        let report = Report {
            edge: gap.start,
            end: SourceId(100),
            deficit: 2,
            undecoded: vec![gap.clone()],
            ..Report::default()
        };
        let answers = [RepairInFlight { packet: 0, first: gap.start, count: 40, on_feedback: true }; 4];
        let mut policy = Adaptive::default();
        let mut is_answered = |report, sent, in_flight| {
            let mut cx = context(report, 0.1, 1.0, false);
            (cx.base, cx.settled, cx.sent, cx.in_flight) = (SourceId(10), SourceId(50), SourceId(sent), in_flight);
            policy.on_source_sent(&cx);
            matches!(policy.next_repair(&cx), Some(Repair::Coded { on_feedback: true, .. }))
        };
        let few = &answers[..2];
        // 1,000 symbols are out: 15 later it is looked at again, or when something new is known.
        assert!(!is_answered(&report, 1_050, &answers) && !is_answered(&report, 1_064, few));
        assert!(is_answered(&report, 1_065, few) && is_answered(&report, 1_065, few));
        assert!(!is_answered(&report, 1_065, &answers));
        let worse = Report { deficit: 6, undecoded: vec![SourceId(10)..SourceId(16)], ..report.clone() };
        assert!(is_answered(&worse, 1_066, &answers));
    }

    #[test]
    fn a_settled_deficit_is_answered_with_a_margin_and_no_more() {
        let gap = SourceId(10)..SourceId(12);
        let report =
            Report { edge: gap.start, end: SourceId(100), deficit: 2, undecoded: vec![gap], ..Report::default() };
        let answer = RepairInFlight { packet: 0, first: SourceId(10), count: 40, on_feedback: true };
        let flying = [answer; 4];
        for under_way in 0..=4 {
            let mut cx = context(&report, 0.1, 1.0, false);
            (cx.base, cx.settled, cx.in_flight) = (SourceId(10), SourceId(50), &flying[..under_way]);
            let wanted =
                Repair::Coded { code: Code::Rlc, first: SourceId(10), count: 40, key: None, on_feedback: true };
            let mut policy = Adaptive::default();
            policy.on_source_sent(&cx);
            let got = policy.next_repair(&cx);
            assert_eq!(got, (under_way < 3).then_some(wanted), "{under_way} under way");
        }
    }
}
