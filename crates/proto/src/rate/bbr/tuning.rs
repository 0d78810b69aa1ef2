//! The constants of the default controller, with their units, origins, and what a change of them moves.
//!
//! Only the files of this folder use them. Rates and windows are in bytes, round trips in whole rounds of
//! acknowledgements. A change of any constant here moves the tables of `crates/sim/tests/tables` (goodput,
//! delay and overhead of 70 links) and of `cargo xtask figures`; each section names what else it moves.

use core::time::Duration;

use crate::rate::PACKET;

// The model of the bottleneck (`mod.rs`). These move the time to full rate, the queue that the sender builds
// by itself, and the share beside CUBIC (`docs/recovery.md` section 2; `sim/tests/behaviour/queues.rs`,
// `sim/tests/fairness`).

/// Gain that doubles the rate each round trip in start-up (2/ln 2; draft-ietf-ccwg-bbr section 5.3.1.1).
pub const STARTUP_GAIN: f64 = 2.77;
/// Bytes sent before the first ACK, as many as Chromium's BBR sends (`kInitialCongestionWindow`). At the pace
/// of start-up they take a third of a round trip. Their dispersion at the receiver shows the rate one round
/// trip before the ACKs would.
pub const FIRST_FLIGHT: u64 = 32 * PACKET;
/// Gain that drains the queue of start-up within about one round trip.
pub const DRAIN_GAIN: f64 = 0.5;
/// Gain of the first step of a probe: one round trip, followed by a check of its effect. At capacity it
/// queues a thirtieth of a round trip. A gain of 1.25 at once queued a quarter, and a key stroke beside a
/// bulk stream waited for it.
pub const ASK_GAIN: f64 = 1.03;
/// Growth of the rate that shows, after the first step, that more capacity is free.
pub const ANSWER: f64 = 1.02;
/// Round trips from the start of a probe until the first step was sent, and until its effect is known.
pub const ASKED: u64 = 1;
pub const LOOKED: u64 = 2;
/// Gain of the second step, which lasts while the rate grows by [`UP_GROWTH`] each round trip
/// (draft-ietf-ccwg-bbr section 5.3.3).
pub const UP_GAIN: f64 = 1.25;
pub const UP_GROWTH: f64 = 1.1;
/// Gain of a probe where earlier probes made a short queue drop. Chosen.
pub const SHARED_UP_GAIN: f64 = 1.1;
/// Gain that drains the queue of a probe (draft-ietf-ccwg-bbr section 5.3.3).
pub const DOWN_GAIN: f64 = 0.75;
/// Gain of a cruise. BBRv2 stays 1 % below the estimate; here the drain after each probe and the early end of
/// a cruise limit the queue.
pub const CRUISE_GAIN: f64 = 1.0;
/// Gain of a cruise whose queue stood for a whole round trip, because the estimate is some percent too high.
/// In a queue of 5 ms at a round trip of 60 ms, 0.95 drains what an estimate 5 % too high adds. Chosen.
pub const STOOD_GAIN: f64 = 0.95;
/// Round trips of a cruise between probes (BBRv1's cycle of eight: up, down, six of cruise).
pub const CRUISE_ROUNDS: u64 = 6;
/// Upper limit of the cruise. The cruise doubles after each loss in a short queue and shrinks by three round
/// trips after each clean cruise. Chosen.
pub const MOST_CRUISE_ROUNDS: u64 = 48;
/// After this many round trips at [`DOWN_GAIN`] the sender's own queue is gone.
pub const DRAIN_ROUNDS: u64 = 3;
/// A queue that returns within `SOON` round trips after a drain, `RETURNS` times in a row, may belong to
/// another sender. If it does not, each look costs half a round trip of goodput. With a look at the first
/// return, on lossy paths too, links that lost 20 % carried 3 % less.
pub const SOON: u64 = 2;
pub const RETURNS: u32 = 3;
/// A queue that stays while less than a full pipe is in flight belongs to another sender if it is longer than
/// this part of the queue limit. The minimum RTT over a round trip of feedback has little noise.
pub const LOOK_DIVISOR: u32 = 3;
/// Factor of the rate when a full queue drops, the same as for a mark.
pub const DROP_GAIN: f64 = 0.85;
/// Rounds for which a rate sample counts. BBRv1 uses ten; it must be longer than one probe cycle.
pub const RATE_ROUNDS: usize = 10;
/// Window in bandwidth-delay products. The second leaves room for delayed and lost feedback (BBRv1
/// cwnd_gain).
pub const WINDOW_GAIN: u64 = 2;
/// The window uses at least this round trip. Batches, feedback and wake-ups come in steps of some hundred
/// microseconds, and the window must hold them all. Otherwise the two ends of a short path wait for each
/// other in turns (draft-ietf-ccwg-bbr section 5.6.4.2 adds three send quanta). The window's gain doubles it
/// to one batch of 0.5 ms. Chosen by docs/performance.md.
pub const LEAST_ROUND: Duration = Duration::from_micros(250);
/// Factor of the rate when the path marks congestion. A mark comes before the queue is full (ABE, RFC 8511:
/// 0.85 instead of 0.7).
pub const MARK_GAIN: f64 = 0.85;
/// Start-up ends after three rounds in which the rate grew by less than a quarter (BBRv1).
pub const FULL_ROUNDS: u32 = 3;
pub const FULL_GROWTH: f64 = 1.25;
/// Queueing delay that ends start-up and cruise: an eighth of the round trip. HyStart++ (RFC 9406) clamps it
/// to 4 .. 16 ms; here the minimum is 5 ms, the spread that a busy host's scheduler adds.
pub const QUEUE_DIVISOR: u32 = 8;
pub const QUEUE_FLOOR: Duration = Duration::from_millis(5);
/// A queue that the minimum of several RTT samples shows for certain: half of [`QUEUE_FLOOR`], whatever the
/// round trip.
pub const SHORT_QUEUE: Duration = Duration::from_micros(2_500);
/// Start-up ends at the queue limit divided by this, because the packets in flight will add to the queue.
pub const STARTUP_QUEUE: u32 = 2;
/// Number of RTT samples whose minimum counts: the feedback of a quarter of a round trip. HyStart++ takes 8
/// samples of a round. That is half a round too late where the rate doubles in one round (measured: a queue
/// of one round trip dropped 120 instead of 5 packets).
pub const RECENT: usize = 4;
/// The sender probes for the minimum RTT when it saw no RTT near it for this long (BBRv2 probes every 5 s).
pub const MIN_RTT_LIFE: Duration = Duration::from_secs(5);

// The contest with a sender that keeps the queue full (`contest.rs`). These move the share beside CUBIC
// (`sim/tests/fairness`).

/// Round trips from a fall of the window to the next look at the queue. By then CUBIC is nearly back at its
/// window (94 % of it after 0.4 K by RFC 9438 equation 1). Senders of our kind that met the same full queue
/// look at the same time. Otherwise each would take the other for a foreign sender.
pub const CONTEST_LOOK_ROUNDS: u64 = 24;
/// Maximum number of round trips between two looks, for a window that keeps falling.
pub const CONTEST_MOST_ROUNDS: u64 = 4 * CONTEST_LOOK_ROUNDS;

// The constant window beside a sender that does not yield (`hold.rs`). These move the share beside kernel BBR
// and what three CUBIC flows keep (`cargo xtask lab contests`; `sim/tests/fairness/rival.rs`).

/// Round trips of a period (two cycles of BBR's gains), and the number of periods over which losses are
/// counted.
pub const HOLD_ROUNDS: u32 = 16;
pub const HOLD_PERIODS: usize = 3;
/// Loss rate beside a full queue at which a trial begins. Three CUBIC flows on 25 Mbit/s and 60 ms seldom
/// cause this much for long.
pub const HOLD_SUSPECT: f64 = 0.005;
/// Loss rate beside a full queue below which a trial ends. Measured beside the constant window at 25 Mbit/s,
/// 60 ms, queues of 15 to 60 ms: 0.0 to 0.4 % with one or three CUBIC flows over three periods, 1 to 10 %
/// with BBR (docs/recovery.md, "Beside BBR").
pub const HOLD_STUBBORN: f64 = 0.01;
/// A trial begins only if at least this part of all losses came beside a full queue. A medium loses packets
/// beside any queue. Chosen.
pub const HOLD_MOST: f64 = 0.8;
/// A trial begins only if the sender gets less than this part of the bottleneck. With more, a trial gains
/// little. Chosen.
pub const HOLD_LITTLE: f64 = 0.4;
/// The window as a part of what the path and its full queue hold. Half stays for the others.
pub const HOLD_PART: f64 = 0.5;
/// Minimum window for a trial. With a smaller window CUBIC too loses more than [`HOLD_STUBBORN`], and a trial
/// shows nothing. 1.5 / 0.01 is the square of 12, doubled for several flows.
pub const HOLD_LEAST_WINDOW: u64 = 24 * PACKET;
/// Loss rate above which the window is too long for the path. BBR lowers its rate only at such a loss rate
/// (`bbr_lt_loss_thresh` of Linux is 20 %).
pub const HOLD_MUCH: f64 = 0.2;
/// Growth of the window per round trip until it has its size, the same as in BBR's probes.
pub const HOLD_GROWTH: f64 = 1.25;
/// Pace in windows per round trip, above 1 so that the window is the limit (RFC 9002 section 7.7).
pub const HOLD_PACING_GAIN: f64 = 1.25;
/// A trial begins only if the full queue makes the round trip at most this many times the minimum RTT. BBR
/// keeps twice its rate's share of the minimum RTT in flight, which does not fill a longer queue. In longer
/// queues [`super::contest`] gets its share.
pub const HOLD_LONGEST: f64 = 2.5;
/// Periods between the end of a trial whose others yielded and the beginning of the next trial. Chosen.
pub const HOLD_REST: u32 = 10;
/// The rate of the bottleneck is measured over at least this part of a round trip, and over at least two
/// batches of a late driver (2 ms each), as in `path/delivery.rs`.
pub const HOLD_TRAIN_DIVISOR: u32 = 8;
pub const HOLD_LEAST_TRAIN: Duration = Duration::from_millis(4);

// Losses of the medium and drops of a short queue (`medium.rs`). These move the drops in queues of a few
// milliseconds and the goodput on links that lose packets in bursts (`sim/tests/behaviour/queues.rs`).

/// Tolerated loss beyond that of the medium. A loss-based competitor causes this much with its own probing
/// (BBRv2 tolerates 2 % in all).
pub const MEDIUM_TOLERANCE: f64 = 0.01;
/// The excess must also exceed this many standard deviations of the difference between the two rates, widened
/// for bursts. This gives one false alarm in some hundred cycles.
pub const MEDIUM_SIGMAS: f64 = 3.0;
/// The same number where a queue stood throughout, which is evidence of its own.
pub const MEDIUM_SIGMAS_BESIDE_QUEUE: f64 = 1.0;
/// The excess must also exceed this many packets, more where the medium loses in bursts. A single drop proves
/// nothing.
pub const MEDIUM_FEW: f64 = 1.0;
/// Number of packets that the loss estimate of the medium needs. With fewer, [`MEDIUM_UNKNOWN`] applies.
pub const MEDIUM_ENOUGH: f64 = 64.0;
/// Loss that the medium may have while nothing better is known.
pub const MEDIUM_UNKNOWN: f64 = 0.3;
/// A path with less loss than this counts as clean. With this much random loss a CUBIC flow gets 8 % of 25
/// Mbit/s at 60 ms (measured) and keeps no queue. Our own sender loses some 0.3 % beside a full queue, and
/// seldom 1 % of [`MEDIUM_MANY`] packets.
pub const MEDIUM_CLEAN: f64 = 0.01;
pub const MEDIUM_MANY: f64 = 256.0;
