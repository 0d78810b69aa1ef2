//! The constants of the default redundancy, with their units, origins, and what a change of them moves.
//!
//! The planner, the policy `adaptive` and the answer `planned` use them, and no other policy does. A share is
//! repairs per source symbol. A change of any constant here moves the tables of `crates/sim/tests/tables`
//! (goodput, delay and overhead of 70 links) and `docs/envelope.md`; each section names what else it moves.

use core::time::Duration;

use crate::path::LossEstimate;

// The planner (`plan/mod.rs`): when it plans, and for which target. These move delay and overhead of flows
// that the application limits, and goodput of saturated flows (`docs/recovery.md` section 3,
// `docs/figures-delay.md`).

/// If the upper bound of the loss rate is below this, the path counts as clean. At 0.2 % loss, a repair per
/// 20 packets saves one round trip in 500 packets and costs 25 packets.
pub(super) const CLEAN_BOUND: f64 = 0.002;
/// Number of packets with a known fate below which the loss estimate is too uncertain. Until then [`UNKNOWN`]
/// applies. If a packet was lost, fewer are enough ([`FEW`]), because a loss is stronger evidence than none.
pub(super) const ENOUGH: f64 = 64.0;
pub(super) const FEW: f64 = 8.0;
/// Share of proactive repair before the loss is known. Small, and raised on evidence. Chosen.
pub(super) const UNKNOWN: f64 = 0.03;
/// The same for messages with deadlines of their own and a stated target. What is lost then is lost for good,
/// and it is the beginning of a picture group, without which the group cannot be decoded. Chosen: the default
/// cap. Some forty repairs once.
pub(super) const UNKNOWN_DEADLINE: f64 = 0.5;
/// Saturated flow: repair beyond what replaces the losses, as a fraction of the rate. Headers take 5.4 %, and
/// 0.90 of C(1 - p) should remain as goodput. docs/recovery.md measures the effect of these rules.
pub(super) const EXCESS: f64 = 0.02;
/// The same excess if answers are sparing ([`is_dear`]). This excess already drains a deficit, so answers are
/// reduced by the same amount.
pub(super) const SPARING_EXCESS: f64 = 0.03;
/// If the loss rate times [`correlation`] exceeds this, the receiver lacks something most of the time, and
/// answering all of it would cost more goodput than is acceptable (Gilbert 10 % x 4: 2.4 %). Chosen between
/// 10 % of independent losses (0.12) or 2 % in runs of 4 (0.14), where answers are cheap, and 20 % (0.3).
pub(super) const DENSE: f64 = 0.2;
/// If a round trip has fewer source symbols than this, an answer arrives soon, and sparing answers cost
/// little delay (10 % at 10 ms, 25 Mbit/s, 21 symbols: they cost 2 ms and save 2.8 % of goodput). With 125
/// symbols, half of the delay comes from sparing answers. Chosen between the two.
pub(super) const SHORT: u64 = 64;
/// The delay quantile that the default target bounds.
pub(super) const QUANTILE: f64 = 0.99;
/// The default target on a path without loss, in round trips. It grows with the loss, because a given delay
/// then costs more repair. It is at most one round trip, which is the cost of an answer, and at least
/// [`TARGET_FLOOR`]. Chosen, see docs/recovery.md.
pub(super) const TARGET: f64 = 0.1;
pub(super) const TARGET_FLOOR: Duration = Duration::from_millis(5);
/// Growth of the default target, in round trips per unit of loss rate, multiplied by [`correlation`] for
/// bursts. From the sweep in docs/recovery.md: with it, delay and overhead both meet the goals for half load
/// at every loss rate from 1 % to 20 %, in bursts or not.
pub(super) const TARGET_PER_LOSS: f64 = 2.0;
/// The same for messages that are delivered as soon as each is complete, in round trips, and its quantile of
/// the delay in order. Chosen among the targets of docs/tunnel.md section 4, which single runs hardly tell
/// apart.
pub(super) const COMPLETE_TARGET: f64 = 1.0;
pub(super) const COMPLETE_QUANTILE: f64 = 0.97;
/// If symbols are far apart, the default target is at least this many symbol intervals, up to the time an
/// answer takes. A repair should mix several symbols; with too few in the interval it is a copy of each.
pub(super) const SLOW: u32 = 8;
/// Least time between two plans for small changes of the path. A plan takes a millisecond or two to compute.
pub(super) const PLAN_LIFE: Duration = Duration::from_millis(250);
/// A new plan is made only if some condition changed by more than this fraction.
pub(super) const DRIFT: f64 = 0.1;
/// A change by more than this fraction means a different path. The least time between two plans is then
/// [`STEP_LIFE`].
pub(super) const STEP: f64 = 0.5;
pub(super) const STEP_LIFE: Duration = Duration::from_millis(40);
/// Source symbols between two reviews of the share. A review is cheap.
pub(super) const REVIEW: u32 = 16;
/// A window of more symbols than this is long. The loss estimate then covers only a few milliseconds, and
/// symbols leave in bursts, so each review would give a noisy result. Chosen: twice the window of 25 Mbit/s
/// at 60 ms.
pub(super) const LONG: u64 = 256;
/// Round trips until a packet's fate is known: FEEDBACK leaves a sixteenth later, and a loss is declared an
/// eighth later (docs/recovery.md section 1).
pub(super) const SETTLED: f64 = 1.0 + 1.0 / 16.0 + 1.0 / 8.0;
/// Fraction of a long window over which the conditions are averaged. Chosen: the planner still follows a step
/// within a round trip.
pub(super) const AVERAGED: f64 = 0.5;

// The search for the least share that meets a target (`plan/target.rs`). These move how closely a stated
// latency is met (`sim/tests/behaviour/target.rs`) and the time that a plan takes (`docs/performance.md`).

/// Round trips from the first transmission of a lost symbol to the arrival of the answer, beyond the one-way
/// time. It is the sum of the round trip, a sixteenth until FEEDBACK leaves, an eighth for reordering
/// (`path/loss.rs`), and a margin for the jitter of all three.
pub(super) const ASKED: f64 = 1.25;
/// Symbol intervals to add to [`ASKED`]. They matter if symbols are far apart: a loss is detected by the
/// packets that follow it.
pub(super) const ASKED_SYMBOLS: f64 = 3.0;
/// Fraction of symbols that are later than an answer should be. Causes are rate control that drains the
/// queue, and gaps that are detected late. Measured at half load with 2 and 10 % loss: 0.2 %, and 1.6 % in
/// runs of 4 (`crates/sim/tests/behaviour/target.rs`). It scales with [`correlation`].
pub(super) const ASKED_LATE: f64 = 0.003;
/// Most repairs of an answer that are there because one run of losses may take them. Chosen.
pub(super) const SPARE: f64 = 8.0;
/// Maximum number of rounds of feedback repair that a nearest target may assume. The strictest fraction needs
/// four if losses come in runs of 10.
pub(super) const MOST_ROUNDS: u32 = 8;
/// The search for the least share stops when the late fraction is below the allowed fraction by at most this
/// part. The share is then within a hundredth of the least one; the path conditions are not even known to a
/// tenth.
pub(super) const NEAR: f64 = 0.05;
/// Maximum number of shares that the search tries. About five are usual.
pub(super) const TRIALS: usize = 20;
/// Lower limit of the probability that an answer falls short, whatever the target. Below it the margin would
/// cost more repairs than the deficit itself.
pub(super) const LEAST_RISK: f64 = 1e-4;
/// Upper limit of the probability that an answer falls short, so that one answer usually suffices.
pub(super) const MOST_RISK: f64 = 0.1;

// The plan for messages with a deadline (`plan/complete.rs`). These move what `docs/live.md` states
// (`sim/tests/behaviour/deadlines.rs`, on links of both kinds).

/// Symbol intervals between a lost message of a lane without order and the packets that reveal the loss,
/// beyond [`SETTLED`] round trips. Chosen: the next packet, and one that may be lost too.
pub(super) const ANSWERED_SYMBOLS: f64 = 2.0;
/// Fraction of symbols that are late although an answer was in time for them, if a plan leaves few symbols to
/// answers. Chosen: twice [`ASKED_LATE`].
pub(super) const ANSWER_SHORT: f64 = 2.0 * ASKED_LATE;
/// Probability that an answer of such a plan falls short, from which its spare repairs follow. With ten times
/// as much, up to 2.5 in 10,000 datagrams were missing at a target of 1.
pub(super) const ANSWER_RISK: f64 = 1e-3;
/// Round trips from the packet behind a run of losses to the arrival of the answer to the run, beyond the
/// one-way time: FEEDBACK leaves a sixteenth later. By then the run is older than the eighth for reordering.
pub(super) const REVEALED: f64 = 1.0 + 1.0 / 16.0;
/// Repairs per source symbol that a plan without proactive repair must save. Chosen: such a plan depends on
/// FEEDBACK that arrives.
pub(super) const ANSWER_SAVES: f64 = 0.05;
/// The limit [`SPARE`] of a plan without proactive repair. Chosen: one run in 100 of mean length 4 takes
/// them all, and at 25 Mbit/s they take 8 ms.
pub(super) const MOST_SPARE: f64 = 16.0;

// The policy that spends the share (`proactive/adaptive.rs`). These move the delay of the last symbols
// before a pause (`sim/tests/behaviour/records.rs`).

/// Maximum number of proactive repairs that sparing answers may cancel. Chosen.
pub(super) const MAX_DEBT: u32 = 32;
/// Accepted probability that a tail stays undecoded after its repairs.
pub(super) const TAIL_RISK: f64 = 0.01;
/// After a pause of the round trip divided by this number, the symbols before the pause count as a tail.
pub(super) const TAIL_FRACTION: u32 = 8;
/// If symbols are further apart than the round trip divided by this number, each is a tail of its own: a
/// *lone* symbol. Nothing that follows would reveal its loss in time. Chosen: a tail waits at most half a
/// round trip for another symbol.
pub(super) const LONE_FRACTION: u32 = 2;
/// Symbols that are closer than this are never lone. Chosen: twice the interval that a flow is assumed to
/// have before it is known.
pub(super) const LONE_LEAST: Duration = Duration::from_millis(20);
/// Maximum number of repairs of a lone symbol. At 10 % loss two leave one in 1,000 undecoded, at 30 %
/// four one in 400. A burst may take them all, so more would not help much.
pub(super) const LONE_REPAIRS: u32 = 4;
/// Repairs of lone symbols that may exceed the default cap in any second. Chosen: a fast typist sends ten
/// symbols a second, and 20 repairs are at most 240 kbit/s, those of key strokes 16 kbit/s.
pub(super) const LONE_PER_SECOND: u32 = 20;
/// Maximum number of repairs that may wait for a slot: few enough to send in one idle moment without a burst.
pub(super) const MOST_DUE: f64 = 4.0;

// The answer to reported deficits (`answer/planned.rs`). These move goodput on long fat links and on links
// with more than 5 % loss (`sim/tests/behaviour/longfat.rs`).

/// Margin of an answer to a region, in standard deviations, if there is a target: one answer in 700 falls
/// short. Without a target the margin is one deviation, because each repair costs goodput. Chosen.
pub(super) const ANSWER_SURE: f64 = 3.0;
/// A window of more symbols than this is long. A long window has thousands of repairs in flight, and scanning
/// them for each packet is too expensive. In shorter windows every packet scans them. Chosen: twice the
/// window of 25 Mbit/s at 60 ms.
pub(super) const ANSWER_LONG: u64 = 256;
/// Number of scans per long window that are triggered by sending alone. New FEEDBACK also triggers a scan.
/// Chosen: a scan interval of a quarter of the FEEDBACK delay.
pub(super) const ANSWER_LOOKS: u64 = 64;

/// Whether enough is known of a path to call it clean.
pub(crate) fn is_known_clean(loss: &LossEstimate) -> bool {
    loss.weight >= ENOUGH && loss.upper < CLEAN_BOUND
}
