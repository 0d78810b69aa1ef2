//! The constants of the controller `share`, with their units, origins, and what a change of them moves.
//!
//! Only the files of this folder use them. Rates are in bytes per second, round trips in whole rounds of
//! acknowledgements. What is called "chosen" was tried with `crates/sim/examples/many.rs` on the links of
//! `docs/fairness.md`, "Several of ours on one link"; a change of any of them moves that table.

use core::time::Duration;

use crate::rate::PACKET;

// The queueing delay (`delays.rs`).

/// The least delay counts for this long, as the minimum RTT does (draft-ietf-ccwg-bbr section 2.10).
pub(super) const BASE_LIFE: Duration = Duration::from_secs(10);
/// The least delay rises by at most this much in half of its life: as much as clocks that differ by 200 ppm
/// make of five seconds, before their drift is known. If it rose as far as the delay of ten seconds, fifty
/// flows that kept the queue full took it for the path, and dropped nine tenths.
pub(super) const RISE: Duration = Duration::from_millis(1);
/// A delay this near to the least one shows the path without a queue. Chosen: one packet at 24 Mbit/s.
pub(super) const NEAR: Duration = Duration::from_micros(500);
/// The sender drains its queue if it saw no delay near the least one for this long, and for so many round
/// trips. BBRv2 does so every 5 s. Flows that drain at the same time see the path without a queue, and more
/// often is sooner for a newcomer.
pub(super) const NEAR_LIFE: Duration = Duration::from_millis(2_500);
pub(super) const NEAR_ROUNDS: u32 = 40;
/// A least delay that falls by this much contained a queue of others. Chosen as [`NEAR`].
pub(super) const FALL: Duration = Duration::from_micros(500);
/// Number of samples whose minimum counts: the FEEDBACK of a quarter of a round trip.
/// Chosen: a single short delay is then no queue's end, and an old one does not count for long.
pub(super) const RECENT: usize = 4;
/// Number of samples of a mean delay: the FEEDBACK of half a round trip. Chosen.
pub(super) const MEAN_OF: usize = 8;

/// A delay that rises by this much, and by twice the time between two packets, rises faster than a queue
/// does: others would have to send at three times the rate of the bottleneck. It is the path's while it stays
/// above this part. Chosen.
pub(super) const JUMP: Duration = Duration::from_millis(5);
pub(super) const JUMP_STAYS: f64 = 0.8;

// Epochs (`epoch.rs`).

/// Least length of an epoch. Chosen: the scheduler of a busy host spreads delays by some milliseconds.
pub(super) const EPOCH_LEAST: Duration = Duration::from_millis(20);
/// Greatest least length of an epoch. Chosen: ten periods of the slowest radio slots, 40 ms.
pub(super) const EPOCH_MOST: Duration = Duration::from_millis(400);
/// Least number of samples of an epoch.
pub(super) const EPOCH_SAMPLES: u32 = 4;
/// An epoch lasts for at least so many times the mean delay above the least one of the epoch before. Delays
/// that are uniform from 0 to J have a mean of J / 2, so this is twice J: an error of J at both ends is then
/// at most half, and usually a tenth, of a rate.
pub(super) const EPOCH_SPREADS: u32 = 4;

// The law (`cruise.rs`).

/// The square of the target queue is this divided by the rate, in bytes times seconds. Chosen: 2.0 ms at 25
/// Mbit/s; 6.2 ms for ten flows and 14 ms for fifty on that link.
pub(super) const TARGET_SCALE: f64 = 12.0;
/// Least target in seconds. Chosen: clocks and wake-ups of hosts spread delays by some hundred microseconds.
pub(super) const LEAST_TARGET: f64 = 0.000_5;
/// Each epoch the longest queue of late counts as this part of what it was. Chosen.
pub(super) const FULL_FADES: f64 = 0.8;
/// Epochs in which a queue that is too long or too short is corrected. A sum of delayed corrections is stable
/// without overshoot below 1/e per delay (a first-order loop with dead time), and this is 1/2.5.
pub(super) const CORRECTION_EPOCHS: f64 = 2.5;
/// Part of the variation of delays within an epoch that counts as the path's. Chosen: with jitter of up to 20
/// ms that keeps the order, packets 0.5 ms apart have a mean of 16 ms and a least of 9 ms in 60 ms.
pub(super) const NOISE_PART: f64 = 2.0;
pub(super) const NOISE_EPOCHS: usize = 5;
/// Where delays vary by more than the target, the part of the delay that no slow phase drained counts as
/// the path's as well, up to so many times the variation. Chosen: with jitter of J that keeps the order
/// and packets s apart, the mean is `J - sqrt(pi J s / 2)` and the least about `1.8 sqrt(J s)` lower,
/// a tenth of J for 40 ms at 100 Mbit/s (calculated). A queue of TCP is taken to vary by less than the
/// target (not measured).
pub(super) const NOISE_STANDS: f64 = 8.0;
/// The target is longer by this part of the noise. Chosen: with slots of 40 ms the queue stays within a
/// period and 10 ms; with a quarter it did not.
pub(super) const NOISY_TARGET: f64 = 0.125;
/// Limits of the correction of one epoch. The growth is that of a probe (draft-ietf-ccwg-bbr section 5.3.3).
pub(super) const MOST_FALL: f64 = 0.3;
pub(super) const MOST_GROWTH: f64 = 0.25;
/// Growth of the first probe after [`PROBE_AFTER`] epochs without a queue; it doubles while it pays. Chosen:
/// at capacity it queues a thirtieth of a round trip, and a gain of 1.25 at once queued a quarter, for which
/// a key stroke beside a bulk stream waited.
pub(super) const FIRST_GROWTH: f64 = 0.03;
pub(super) const PROBE_AFTER: u32 = 3;
/// Limits of a fall to the rate of service, and of that growth, where delays vary by more than the target.
/// Chosen.
pub(super) const NOISY_FALL: f64 = 0.05;
pub(super) const NOISY_GROWTH: f64 = 0.06;
/// Round trips in which the pace corrects the queue between two epochs, and limits of that gain. Chosen.
pub(super) const BRAKE_ROUNDS: f64 = 1.0;
pub(super) const MOST_BRAKE: f64 = 0.9;
pub(super) const MOST_FILL: f64 = 0.05;
/// Least service that the brake assumes, as a part of the rate, with a queue and without one. Chosen: without
/// a queue the slow phase before makes the brake last for a round trip more, which flows that drain together
/// need, and at 0.25 the brake answered its own fall for a second.
pub(super) const LEAST_SERVED: f64 = 0.25;
pub(super) const LEAST_UNSEEN: f64 = 0.8;
/// A queue of this many targets is drained until this part of a target is left, so that all flows that share
/// it see the path without a queue. Chosen.
pub(super) const SPIKE: f64 = 4.0;
pub(super) const DRAINED: f64 = 0.25;
/// A flow whose queue is short may send one packet per round trip, and per this time. Without it a flow that
/// yielded to nearly nothing would need minutes to learn that the queue is gone. Chosen.
pub(super) const SPARSE: Duration = Duration::from_millis(100);
/// Least rate: 8 kbit/s, as of `fixed`.
pub(super) const LEAST_PACE: f64 = 1_000.0;
/// Growth per epoch beside a bottleneck that drops without a queue, and the margin below what arrived when it
/// drops. Chosen: by calculation, a bucket of 50 kB at 10 Mbit/s then overflows once in a second at 60 ms.
pub(super) const CAP_GROWTH: f64 = 0.005;
pub(super) const DROP_MARGIN: f64 = 0.005;
/// For this long, and for so many round trips, such a bottleneck is remembered. Chosen: one that is gone is
/// left within 3 s.
pub(super) const CAP_LIFE: Duration = Duration::from_secs(2);
pub(super) const CAP_ROUNDS: u32 = 30;

// Phases (`mod.rs`).

/// Gain that doubles the rate each round trip in start-up (2/ln 2; draft-ietf-ccwg-bbr section 5.3.1.1).
pub(super) const STARTUP_GAIN: f64 = 2.77;
/// Bytes sent before the first ACK, as many as Chromium's BBR sends (`kInitialCongestionWindow`).
pub(super) const FIRST_FLIGHT: u64 = 32 * PACKET;
/// The least flight of a start-up that begins again: the first window of RFC 3390.
pub(super) const LEAST_FLIGHT: u64 = 4 * PACKET;
/// Start-up ends after three rounds in which the rate grew by less than a quarter (BBRv1).
pub(super) const FULL_ROUNDS: u32 = 3;
pub(super) const FULL_GROWTH: f64 = 1.25;
/// Queueing delay that shows a queue for certain: an eighth of the round trip, at least 5 ms, the spread that
/// a busy host's scheduler adds. HyStart++ (RFC 9406) clamps the same part to 4 .. 16 ms.
/// Start-up ends at half of it, because the packets in flight will add to the queue.
pub(super) const QUEUE_DIVISOR: u32 = 8;
pub(super) const QUEUE_FLOOR: Duration = Duration::from_millis(5);
pub(super) const STARTUP_QUEUE: u32 = 2;
/// Gain that drains the queue of start-up, and the longest time in round trips.
pub(super) const DRAIN_GAIN: f64 = 0.5;
pub(super) const DRAIN_ROUNDS: u64 = 3;
/// A slow phase drains one and a half times the queue, with a gain between these two. It goes on for at most
/// so many round trips while the least delay falls.
pub(super) const SLOW_DEPTH: f64 = 1.5;
pub(super) const SLOW_GAIN: f64 = 0.9;
pub(super) const LEAST_SLOW: f64 = 0.3;
pub(super) const MOST_SLOW_ROUNDS: u64 = 4;
/// The rate does not grow until this epoch after such a phase: the pace fills the queue again. Chosen.
pub(super) const FRESH: u32 = 3;
/// Gain of a slow phase that joins the drain of others. Chosen.
pub(super) const JOIN_GAIN: f64 = 0.5;
/// On a path that loses more than [`LOSSY`], a slow phase sends this part of what arrives, and so shows the
/// loss of the medium without that of an overrun bottleneck. Chosen: as [`MEDIUM_YIELDED`].
pub(super) const LOSSY: f64 = 0.02;
pub(super) const SLOW_SHARE: f64 = 0.75;
/// A path is overrun if its loss exceeds that of the medium by this. Chosen. For a sender that the
/// application limits it is half, as in the floor of sanity.
pub(super) const OVERRUN: f64 = 0.25;
pub(super) const OVERRUN_LIMITED: f64 = 0.5;
/// The application limits a sender if it did so for this part of about so many acknowledgements. Chosen.
pub(super) const LIMITED: f64 = 0.75;
pub(super) const LIMITED_SAMPLES: f64 = 16.0;
/// At least so many runs of losses among the recent packets: an overrun bottleneck drops again and again, and
/// a medium that is gone for a moment does not. Chosen.
pub(super) const OVERRUN_RUNS: f64 = 4.0;
/// A path that loses more than this carries no packets of this size, or none at all. Its rate says nothing.
/// Chosen: start-up ends before it overruns a bottleneck by fifty times.
pub(super) const OUTAGE: f64 = 0.98;
/// Gain of a pause, its length in round trips, the part of what arrived with which it ends, and the least
/// time from one to the next. Chosen: a full queue of two round trips is then empty.
pub(super) const PAUSE_GAIN: f64 = 0.05;
pub(super) const PAUSE_ROUNDS: u32 = 3;
pub(super) const PAUSE_RESUME: f64 = 0.5;
pub(super) const PAUSE_AGAIN: Duration = Duration::from_secs(1);
/// Pauses closer than this are in a row. Chosen: longer than fifty flows need to begin, 0.2 s apart.
pub(super) const PAUSE_MEMORY: Duration = Duration::from_secs(30);
/// Window in bandwidth-delay products; the second leaves room for delayed and lost feedback (BBRv1).
pub(super) const WINDOW_GAIN: u64 = 2;
/// The window uses at least this round trip. Chosen by docs/performance.md: it must hold the batches,
/// feedback and wake-ups of some hundred microseconds, or the ends of a short path wait for each other in
/// turns.
pub(super) const LEAST_ROUND: Duration = Duration::from_micros(250);
/// Factor of the rate when the path marks congestion (ABE, RFC 8511: 0.85 instead of 0.7).
pub(super) const MARK_GAIN: f64 = 0.85;

// The competition with senders that fill the queue (`compete.rs`).

/// Round trips of draining in which the queue did not fall, to less than this part in each, after which the
/// queue is that of a sender of another kind. Chosen: the drain of all senders of this kind shows after two,
/// and one that has just started stops after one or two more.
pub(super) const UNDRAINED: u64 = 4;
pub(super) const FALLS: f64 = 0.9;
/// Such a queue is longer than so many targets. Chosen: the queue of flows of this kind is longer only if
/// this one has 25 times a fair rate; one of fifty took the others for TCP and had a sixth of 100 Mbit/s.
pub(super) const CROWD: f64 = 5.0;
/// The same if the delay rose at once.
pub(super) const JUMPED: u64 = 2;
/// A queue has fallen if it is shorter than this part of its peak, and it is nearly as long again at the
/// second one. The window of CUBIC falls to 0.7, and so the queue at least as far. Chosen.
pub(super) const FALLEN: f64 = 0.6;
pub(super) const LOOK_LEVEL: f64 = 0.75;
/// Maximum number of round trips until the first look, which doubles up to the second one. If the sender was
/// wrong about the others, it takes their rate until it looks. Chosen.
pub(super) const FIRST_LOOK: u64 = 6;
pub(super) const COMPETE_ROUNDS: u64 = 96;
/// Length of a look in round trips, and the least time, since others may have longer round trips.
pub(super) const LOOK_ROUNDS: u64 = 3;
pub(super) const LEAST_LOOK_TIME: Duration = Duration::from_millis(200);
/// The rate of a look is this part of that at which the queue would vanish if all senders fell so far, and
/// at least [`LEAST_LOOK`]. Chosen.
pub(super) const LOOK_MARGIN: f64 = 0.9;
pub(super) const LEAST_LOOK: f64 = 0.2;
/// Slow phases in a row that saw no delay near the least one, after which the queue is that of a sender of
/// another kind: those of this kind drain at the same time. Chosen: two, and one for a newcomer.
pub(super) const BLIND: u32 = 3;
/// A queue has vanished if it is shorter than so many targets of the highest rate of late: that of a starved
/// flow is as long as the queue of TCP.
pub(super) const LOOK_VANISHED: f64 = 2.0;
/// A competition ends if its window fell so many times in a row to less than this. Chosen: the window was
/// then about 11 packets, and TCP drops about 1.5 packets in the square of the window (RFC 3649 section 2).
pub(super) const THIN: u64 = 8 * PACKET;
pub(super) const THIN_FALLS: u32 = 3;
/// After that the sender waits so long; the time doubles up to the second one. Chosen:
/// longer than fifty flows need to begin, 0.2 s apart.
pub(super) const THIN_WAIT: Duration = Duration::from_secs(30);
pub(super) const THIN_LONGEST: Duration = Duration::from_secs(480);
/// A competition is in vain if the full queue drops nothing of this sender while its window grows to so many
/// times itself, or for so many looks and so long. Chosen: with a growth of 3 or 8 the sender left TCP more
/// often, and without it one of fifty flows had 43 of 100 Mbit/s; one flow of CUBIC at 25
/// Mbit/s and 60 ms drops every five seconds (calculated).
pub(super) const VAIN_GROWTH: u64 = 16;
pub(super) const VAIN_LOOKS: u32 = 6;
pub(super) const VAIN_TIME: Duration = Duration::from_secs(10);

// A queue that is filled again and again (`pressed.rs`).

/// What was seen counts for this long. Chosen: four times the time between two drops of one flow of CUBIC.
pub(super) const LATE: Duration = Duration::from_secs(20);
/// A queue of so many targets is much longer than the target. Chosen.
pub(super) const LONG: f64 = 1.6;
/// The queue that starves a sender is longer than this, in seconds. Chosen: that of fifty flows at 100 Mbit/s
/// is 8 ms, and some of them took the others for TCP.
pub(super) const LONG_TIME: f64 = 0.01;
/// The sender is pressed if the queue was so for this part of about this time in seconds. Chosen: with 3 s,
/// some of twenty flows that began within a second took the others for TCP on two of five seeds.
pub(super) const PRESSED_PART: f64 = 0.6;
pub(super) const PRESSED_TIME: f64 = 6.0;
/// A loss beside a queue of this part of the longest one is a drop of the full queue; drops closer than this
/// are one overflow, and it takes so many. Chosen.
pub(super) const FULL: f64 = 0.8;
pub(super) const APART: Duration = Duration::from_secs(1);
pub(super) const OVERFLOWS: u32 = 2;
/// Flows of this kind drain the queue, so a delay near the least one within two such times ([`NEAR_LIFE`])
/// shows that they are alone, unless this one has so small a part of its highest rate of late. Chosen: twenty
/// flows on a queue of 240 ms that begin 0.5 s apart had a Jain's index of 0.91 with it (26 seeds).
/// A flow that began after CUBIC had 3 to 20 % of the link (six runs, one below 13), and without the
/// exception, with 1.6 such times, 6 to 25 % (three runs).
pub(super) const DRAINED_AGAIN: u32 = 2;
pub(super) const NOTHING: f64 = 1.0 / 24.0;
/// A small part of the highest rate of late. Chosen, while [`PRESSED_TIME`] was 3 s: beside CUBIC on a queue
/// of half a round trip the sender had 0.24 of the link with an eighth, 0.25 with a sixth and 0.26 with a
/// fifth; with a fifth, fifty flows shared less evenly (Jain's index 0.2 to 0.6).
pub(super) const STARVED: f64 = 1.0 / 6.0;

// Losses of the medium (`medium.rs`).

/// A loss is significant if it exceeds that of the medium by this rate, by this many standard deviations
/// (the normal tail gives one false alarm in 4,000 independent samples; not measured), and by this many
/// packets.
pub(super) const MEDIUM_TOLERANCE: f64 = 0.005;
pub(super) const MEDIUM_SIGMAS: f64 = 3.5;
pub(super) const MEDIUM_FEW: f64 = 1.0;
/// Recent packets are those of so many groups of at least this many packets: about a round trip at 25 Mbit/s.
pub(super) const MEDIUM_WINDOW: usize = 4;
pub(super) const MEDIUM_SLOT: f64 = 32.0;
/// The first packets of a connection, and the number of packets that say anything.
pub(super) const MEDIUM_EARLY: f64 = 32.0;
pub(super) const MEDIUM_FIRST: f64 = 24.0;
/// Packets behind what is known about a medium that was never tested, and packets that refine a test.
pub(super) const MEDIUM_LEARNED: f64 = 512.0;
/// Packets that a slow phase, and what is called an overrun, must count at least.
pub(super) const MEDIUM_TESTED: f64 = 24.0;
/// The same for packets beside a queue of less than half of the longest of late.
pub(super) const MEDIUM_LOW: f64 = 64.0;
/// Packets of the window, divided by the factor by which runs of losses multiply a variance, that show what
/// the medium loses at any rate. Chosen: a full window suffices where runs are shorter than 1.8. With longer
/// ones the loss of a medium seems to vary.
pub(super) const MEDIUM_INDEPENDENT: f64 = 48.0;
/// A test of at least so many packets ends at this logarithm of the ratio of the likelihoods of its losses,
/// with the medium and without it. Each verdict is then wrong in at most one case of a hundred (Wald), as far
/// as losses are independent of what others send (calculated, not measured).
pub(super) const MEDIUM_LEAST: f64 = 12.0;
pub(super) const MEDIUM_EVIDENCE: f64 = 4.6;
/// It lasts at least so long, so that the tests of all who share the bottleneck overlap. Chosen: two slots of
/// [`MEDIUM_SLOT`] packets at 4 Mbit/s.
pub(super) const MEDIUM_TEST_TIME: Duration = Duration::from_millis(200);
/// A queue that was at least so long during the whole test is that of others. Chosen: twice the target at 25
/// Mbit/s; jitter of less than a second has shorter delays within a test.
pub(super) const STANDING: Duration = Duration::from_millis(4);
/// A mean queue beyond this is one. In a test after a pause it is that of others: there a sender alone waited
/// 0.2 ms at most, and one of fifty that overran the path 2 ms and more in 13 of 14 tests (one seed). Chosen:
/// twice [`NEAR`].
pub(super) const QUEUED: Duration = Duration::from_millis(1);
/// Packets of late: at least half of so many.
pub(super) const MEDIUM_LATE: f64 = 256.0;
/// A test sends this part of what arrived. Chosen: below a policer whose bucket let a fifth more pass.
pub(super) const MEDIUM_YIELDED: f64 = 0.75;
/// Losses that may be assumed to be the medium's between two tests. Chosen: one and a half tenths, with as
/// much redundancy for them, stay below the 1.3 bytes sent for a byte delivered of the floor of sanity.
pub(super) const ASSUMED: f64 = 0.15;
/// Epochs of drops beside a bottleneck that is known to drop, until the medium is suspected anew. Chosen:
/// with 16, policers of 5 Mbit/s with 20 % of other loss had 0.64 of what the loss leaves, with this 0.73.
pub(super) const MEDIUM_TOLERATED: u32 = 6;
