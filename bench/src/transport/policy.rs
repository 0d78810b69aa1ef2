//! Suite `policy`: the share of a core that the default redundancy policy takes at 1 Gbit/s.
//!
//! Real connections call the policy, in process and virtual time, so that its inputs change as they do on a
//! path. A wrapper times each call. Calls that make a plan are recognised by the plan, and timed by the
//! thread's CPU time. The other calls take some tens of nanoseconds each. They are timed by the clock, and
//! the time of reading the clock is subtracted.

use std::cell::Cell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use tidewire_codec::SourceId;
use tidewire_proto::config::Config;
use tidewire_proto::redundancy::answer::AsPlanned;
use tidewire_proto::redundancy::proactive::Adaptive;
use tidewire_proto::redundancy::{
    Answer, AnswerPolicy, CodingContext, Planner, Proactive, ProactivePolicy, Redundancy, Repair, RepairInFlight,
};
use tidewire_proto::{Custom, Time};

use super::pair::{Loss, Pair, Path};
use super::{Work, thread_time};
use crate::goals;
use crate::report::{Cell as Figure, Report, Table, Verdict};
use crate::timing::Times;

/// Bytes per second of the application, and what the sender may send: half load, where the policy plans.
const RATE: u64 = 125_000_000;
const PACE: u64 = 16 * RATE;
/// Source symbols per second at that rate: of 1,344 bytes, which is what 1,500 hold beside headers and the
/// room of a repair's.
const SYMBOLS: f64 = RATE as f64 / 1_344.0;
/// Loss, mean length of loss runs, round trip in milliseconds.
const CASES: [(f64, f64, u64); 6] =
    [(0.0, 1.0, 60), (0.01, 1.0, 10), (0.01, 1.0, 60), (0.1, 1.0, 10), (0.1, 1.0, 60), (0.1, 4.0, 60)];
/// A call without a plan never takes so long: one that did was interrupted.
const INTERRUPTED: Duration = Duration::from_micros(20);

/// The time that a connection's policy took.
#[derive(Clone, Copy, Default)]
struct Tally {
    sources: u64,
    /// When the first and the last of them were sent.
    first: Option<Time>,
    last: Time,
    /// Calls that made no plan, and their time, including that of the clock.
    calls: u64,
    taken: Duration,
    plans: u64,
    planning: Duration,
}

thread_local! {
    /// The times of the transfer that this thread runs: a connection makes its policy inside.
    static TALLY: Cell<Tally> = Cell::default();
}

/// Runs the suite.
pub fn run(work: Work, report: &mut Report) {
    let mut columns = vec![[const { Vec::new() }; 4]; CASES.len()];
    for round in 0..work.rounds {
        for (at, columns) in columns.iter_mut().enumerate() {
            eprintln!("policy: round {} of {}, {}", round + 1, work.rounds, name(at));
            let figures = figures(at, work.bytes);
            columns.iter_mut().zip(figures).for_each(|(column, figure)| column.push(figure));
        }
    }
    let mut rows = Vec::new();
    for (at, columns) in columns.into_iter().enumerate() {
        let [each, plans, plan, share] = columns.map(|rounds| Times { rounds }.map(|figure| figure));
        report.verdicts.push(Verdict {
            goal: 17,
            tier: "",
            what: "policy at 1 Gbit/s, of one core",
            case: name(at),
            measured: share,
            unit: "%",
            limit: goals::POLICY_SHARE,
            at_least: false,
        });
        rows.push((name(at), [each, plans, plan, share].map(|figure| Some(Figure::plain(figure))).into()));
    }
    report.tables.push(Table {
        id: "policy",
        title: "Policy",
        note: format!(
            "What `adaptive` takes at 1 Gbit/s of records, {SYMBOLS:.0} source symbols a second, on a path that could carry twice as much; \
             {} MB a transfer, from its first packet on.",
            work.bytes / 1_000_000
        ),
        columns: ["path", "ns per source symbol, plans left out", "plans per second", "ms per plan", "% of one core"]
            .map(String::from)
            .into(),
        rows,
    });
}

fn name(at: usize) -> String {
    let (loss, burst, rtt) = CASES[at];
    let runs = if burst > 1.0 { format!(" in runs of {burst}") } else { String::new() };
    format!("{} % lost{runs}, {rtt} ms", 100.0 * loss)
}

/// Nanoseconds per source symbol without planning, plans per second, milliseconds of one plan, percent of a
/// core.
fn figures(at: usize, bytes: u64) -> [f64; 4] {
    let (loss, burst, rtt_ms) = CASES[at];
    let path = Path { delay: Duration::from_millis(rtt_ms) / 2, loss: Loss::new(loss, burst) };
    let redundancy = Redundancy {
        proactive: Proactive::Custom(Custom {
            name: "timed",
            build: |_| Box::<Timed<Adaptive>>::default(),
            parameter: 0.0,
        }),
        answer: Answer::Custom(Custom { name: "timed", build: |_| Box::<Timed<AsPlanned>>::default(), parameter: 0.0 }),
    };
    let config = Config::builder().max_rate(Some(PACE)).redundancy(redundancy).build().expect("in range");
    TALLY.set(Tally::default());
    Pair::new(path, config).transfer(bytes, Some(RATE));
    let tally = TALLY.get();
    let clock = clock_cost().as_secs_f64() * tally.calls as f64;
    let each = (tally.taken.as_secs_f64() - clock).max(0.0) / tally.sources as f64;
    let seconds = tally.first.map_or(0.0, |first| tally.last.since(first).as_secs_f64());
    let (plans, planning) = (tally.plans as f64 / seconds, tally.planning.as_secs_f64());
    let share = each * SYMBOLS + planning / seconds;
    [1e9 * each, plans, 1e3 * planning / tally.plans.max(1) as f64, 100.0 * share]
}

/// The time that the clock shows for no work.
fn clock_cost() -> Duration {
    const LOOKS: u32 = 100_000;
    let looks = (0..LOOKS).map(|_| black_box(Instant::now()).elapsed()).filter(|taken| *taken < INTERRUPTED);
    looks.sum::<Duration>() / LOOKS
}

/// One of the two policies, with each call timed. It has its own planner, because the connection makes one
/// only for its own policies. Planning is counted where the proactive policy does it.
#[derive(Debug, Default)]
struct Timed<P> {
    planner: Planner,
    ours: P,
}

/// Calls a policy and counts the time.
fn time<T>(call: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let answer = black_box(call());
    let taken = begun.elapsed();
    if taken < INTERRUPTED {
        count(|tally| (tally.calls, tally.taken) = (tally.calls + 1, tally.taken + taken));
    }
    answer
}

/// The context with this planner's decisions.
fn planned<'a>(cx: &CodingContext<'a>, planner: &'a Planner) -> CodingContext<'a> {
    CodingContext { planned: planner.planned(), ..*cx }
}

impl ProactivePolicy for Timed<Adaptive> {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        let conditions = |planner: &Planner| planner.planned().plan.map(|plan| plan.conditions);
        let (before, begun) = (conditions(&self.planner), thread_time());
        time(|| self.planner.on_source_sent(cx));
        let is_new = conditions(&self.planner).is_some_and(|now| before != Some(now));
        let planning = if is_new { thread_time() - begun } else { Duration::ZERO };
        time(|| self.ours.on_source_sent(&planned(cx, &self.planner)));
        count(|tally| {
            (tally.sources, tally.last) = (tally.sources + 1, cx.now);
            tally.first.get_or_insert(cx.now);
            (tally.plans, tally.planning) = (tally.plans + u64::from(is_new), tally.planning + planning);
        });
    }

    fn on_source_settled(&mut self, id: SourceId, arrived: bool) {
        time(|| self.ours.on_source_settled(id, arrived));
    }

    fn on_repair_settled(&mut self, repair: &RepairInFlight, arrived: bool) {
        time(|| self.ours.on_repair_settled(repair, arrived));
    }

    fn on_answer(&mut self, cx: &CodingContext<'_>, answer: &Repair) {
        time(|| self.ours.on_answer(&planned(cx, &self.planner), answer));
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        time(|| self.ours.next(&planned(cx, &self.planner)))
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        self.ours.poll_timeout(&planned(cx, &self.planner))
    }
}

impl AnswerPolicy for Timed<AsPlanned> {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        self.planner.on_source_sent(cx);
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        time(|| self.ours.next(&planned(cx, &self.planner)))
    }
}

fn count(what: impl FnOnce(&mut Tally)) {
    let mut tally = TALLY.get();
    what(&mut tally);
    TALLY.set(tally);
}
