//! Tells losses of the medium from drops of the bottleneck, for a controller that does not take every loss
//! for congestion.
//!
//! A long queue shows in the delay. A short queue or a policer drops packets without that. What tells them
//! from a medium is the answer to a lower rate: a bottleneck that is no longer overrun drops nothing, and a
//! medium loses the same share. So losses beyond those of the known medium make the sender test: it sends
//! below what arrived, and the likelihood of the losses among these packets decides. If the loss stays, the
//! medium caused it, and the rate is restored. Otherwise the bottleneck did, and what arrived is its rate. A
//! test beside a queue that others keep decides nothing, and the sender yields.
//!
//! Flows of this kind that share a bottleneck see its drops and fall together, so that the drops end within
//! some round trips; where many start at once they may not (docs/limits.md). Called by [`super::Share`] for
//! each fate and epoch.
//! Invariant: after the first packets beyond start-up, only a test, or losses that an application which sends
//! little may assume, raise what the medium is known to lose.

use core::mem;
use core::ops::Range;
use core::time::Duration;

use super::tuning::{
    ASSUMED, MEDIUM_EARLY, MEDIUM_EVIDENCE, MEDIUM_FEW, MEDIUM_FIRST, MEDIUM_INDEPENDENT, MEDIUM_LATE, MEDIUM_LEARNED,
    MEDIUM_LEAST, MEDIUM_LOW, MEDIUM_SIGMAS, MEDIUM_SLOT, MEDIUM_TEST_TIME, MEDIUM_TESTED, MEDIUM_TOLERANCE,
    MEDIUM_TOLERATED, MEDIUM_WINDOW, MEDIUM_YIELDED, OUTAGE, OVERRUN, OVERRUN_LIMITED, OVERRUN_RUNS, QUEUED, STANDING,
};
use crate::Time;
use crate::path::{LossEstimator, Tested, correlation};
use crate::rate::tally::Tally;

/// Who caused losses beyond those of the known medium.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The bottleneck: they ended when the rate fell.
    Bottleneck {
        /// What arrived while it dropped, in bytes per second.
        arrived: f64,
    },
    /// The medium: they stayed. The rate before is valid again.
    Medium {
        /// That rate in bytes per second.
        rate: f64,
    },
}

/// Losses beyond those of the known medium, whose cause is not known yet.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    /// Loss rate, mean run of losses and rate of sending when they began.
    loss: f64,
    burst: f64,
    rate: f64,
    /// What arrived in that epoch, in bytes per second.
    arrived: f64,
    /// The lower rate that shows the cause.
    test: f64,
    /// After a pause, the number of pauses in a row before that one. Others should then not overrun the path
    /// either.
    after_pause: Option<u32>,
    /// When the test began.
    began: Time,
    /// Queues that packets of the test found.
    queues: Queues,
    /// First packet that left at the lower rate, and what those packets lost.
    from: u64,
    tested: Tally,
}

/// Queues that packets found.
#[derive(Clone, Copy, Debug)]
struct Queues {
    shortest: Duration,
    sum: Duration,
    count: u32,
}

impl Queues {
    const NONE: Self = Self { shortest: Duration::MAX, sum: Duration::ZERO, count: 0 };

    fn add(&mut self, queue: Duration) {
        self.shortest = self.shortest.min(queue);
        self.sum += queue;
        self.count += 1;
    }

    /// Others kept a queue all the time.
    fn stands(&self) -> bool {
        self.count > 0 && self.shortest > STANDING
    }

    /// The packets waited behind those of others now and then.
    fn is_shared(&self) -> bool {
        self.count > 0 && self.sum / self.count > QUEUED
    }
}

/// What was sent in an epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// When it ended.
    pub now: Time,
    /// The rate of sending, and what arrived, in bytes per second.
    pub rate: f64,
    pub arrived: f64,
    /// The next packet.
    pub next: u64,
    /// Whether the application had too little to send.
    pub app_limited: bool,
    /// Mean queue that its packets found.
    pub queue: Duration,
}

/// The packets of the last epochs, newest last, and the runs of losses among them.
#[derive(Debug, Default)]
struct Recent {
    epochs: [Tally; MEDIUM_WINDOW],
    runs: [f64; MEDIUM_WINDOW],
}

impl Recent {
    fn add(&mut self, lost: bool, starts_run: bool) {
        self.epochs[MEDIUM_WINDOW - 1].add(lost);
        self.runs[MEDIUM_WINDOW - 1] += f64::from(u8::from(starts_run));
    }

    /// Ends an epoch, if it is long enough.
    fn end_epoch(&mut self) {
        if self.epochs[MEDIUM_WINDOW - 1].packets >= MEDIUM_SLOT {
            self.epochs.rotate_left(1);
            self.runs.rotate_left(1);
            (self.epochs[MEDIUM_WINDOW - 1], self.runs[MEDIUM_WINDOW - 1]) = (Tally::default(), 0.0);
        }
    }

    fn total(&self) -> Tally {
        self.epochs.iter().fold(Tally::default(), |sum, epoch| sum.plus(*epoch))
    }

    fn runs(&self) -> f64 {
        self.runs.iter().sum()
    }
}

/// Packets beside a short queue, and whether the latest ones are such.
#[derive(Debug, Default)]
struct Low {
    seen: Tally,
    is_now: bool,
}

/// Losses of the medium, described in the module documentation.
#[derive(Debug, Default)]
pub(super) struct Medium {
    /// Loss of all packets.
    all: LossEstimator,
    /// What the medium is known to lose.
    known: Tally,
    /// Packets that may still refine it: those sent at the rate that was just restored.
    learns: u32,
    recent: Recent,
    was_lost: bool,
    suspicion: Option<Suspicion>,
    /// Loss of the medium that a test after a pause confirmed. Other tests may raise what is known by a
    /// quarter more: if others overrun the path, a test does not tell their drops from the medium's losses.
    confirmed: f64,
    /// What that test found, until it is told.
    pub tested: Option<Tested>,
    /// Losses that were assumed to be the medium's since the last test.
    assumed: f64,
    /// Epochs in a row with such losses.
    lasting: u32,
    /// Packets of the present or last slow phase, and what slow phases lost.
    slow: Range<u64>,
    slowly: Tally,
    low: Low,
    /// Packets of late, whatever they found.
    late: Tally,
    /// The first packets.
    early: Tally,
}

impl Medium {
    /// The sender is slow from packet `next` on.
    pub(super) fn slow_down(&mut self, next: u64) {
        self.slow = next..u64::MAX;
        self.slowly = Tally { packets: self.slowly.packets / 2.0, lost: self.slowly.lost / 2.0 };
    }

    /// The slow phase ended before packet `next`.
    pub(super) fn speed_up(&mut self, next: u64) {
        self.slow.end = self.slow.end.min(next);
    }

    /// Takes the fate of each packet, in order.
    pub(super) fn on_fate(&mut self, number: u64, lost: bool) {
        self.all.on_fate(lost);
        if self.early.packets < MEDIUM_EARLY {
            self.early.add(lost);
        }
        if self.slow.contains(&number) {
            self.slowly.add(lost);
        } else if number == self.slow.end && self.slowly.packets >= MEDIUM_TESTED / 2.0 {
            self.lower(self.slowly);
        }
        if self.low.is_now {
            self.low.seen.add(lost);
            if self.low.seen.packets >= MEDIUM_LOW {
                self.lower(self.low.seen);
                self.low.seen = Tally { packets: self.low.seen.packets / 2.0, lost: self.low.seen.lost / 2.0 };
            }
        }
        self.late.add(lost);
        if self.late.packets >= MEDIUM_LATE {
            self.late = Tally { packets: self.late.packets / 2.0, lost: self.late.lost / 2.0 };
        }
        let was_lost = mem::replace(&mut self.was_lost, lost);
        self.recent.add(lost, lost && !was_lost);
        if let Some(suspicion) = self.suspicion.as_mut().filter(|suspicion| number >= suspicion.from) {
            suspicion.tested.add(lost);
        }
        if self.learns > 0 && self.suspicion.is_none() {
            self.learns -= 1;
            self.known.add(lost);
        }
    }

    /// Mean run of losses, of those packets that show longer ones: all, or the recent ones.
    fn burst(&self) -> f64 {
        let recent = self.recent.total().lost / self.recent.runs().max(1.0);
        self.all.estimate().burst.max(recent)
    }

    /// By how much runs of losses multiply the variance of a count, at this loss rate. Independent losses
    /// have runs of `1 / (1 - rate)`.
    fn correlated(&self, rate: f64) -> f64 {
        correlation((self.burst() * (1.0 - rate)).max(1.0))
    }

    /// Packet `number` found this queue, which is short beside those before (`is_low`).
    pub(super) fn on_queue(&mut self, number: u64, queue: Duration, is_low: bool) {
        self.low.is_now = is_low;
        if let Some(suspicion) = self.suspicion.as_mut().filter(|suspicion| number >= suspicion.from) {
            suspicion.queues.add(queue);
        }
    }

    /// What is not lost at a low rate, or beside a short queue, the medium does not take.
    fn lower(&mut self, slowly: Tally) {
        let rate = (slowly.lost + 1.0) / slowly.packets;
        self.lower_to(rate + 2.0 * (rate * (1.0 - rate) * self.correlated(rate) / slowly.packets).max(0.0).sqrt());
    }

    fn lower_to(&mut self, rate: f64) {
        if rate < self.known.rate() {
            self.known.lost = rate * self.known.packets;
        }
        self.confirmed = self.confirmed.min(rate);
    }

    /// Nor does it take what is not lost at any rate, but for chance. After a pause, and beside a queue, what
    /// is known may have been learned from the drops of others, which come and go. There the least loss of
    /// late counts, so that what all believe falls together.
    fn lower_by_recent(&mut self, queue: Duration) {
        let recent = self.recent();
        let independent = recent.packets / self.correlated(recent.rate());
        if recent.packets < MEDIUM_LOW || independent < MEDIUM_INDEPENDENT {
            return;
        }
        if queue > QUEUED && self.is_confirmed() {
            self.lower_to((recent.lost + 1.0) / recent.packets);
        } else {
            self.lower(recent);
        }
    }

    /// What the recent packets lost.
    pub(super) fn recent(&self) -> Tally {
        self.recent.total()
    }

    /// What the medium lost. Until something is known, the packets of the first flight say it, which left at
    /// a low pace. Before they have come, it is taken for one that loses nothing, as if many packets had
    /// shown it.
    fn seen(&self) -> Tally {
        if self.known.packets > 0.0 {
            self.known
        } else if self.early.packets >= MEDIUM_FIRST {
            self.early
        } else {
            Tally { packets: MEDIUM_LEARNED, lost: 0.0 }
        }
    }

    /// The drain after start-up is over. The first flight and the drain left at lower paces than the rest of
    /// start-up, and the one that lost less shows the medium.
    pub(super) fn begin(&mut self) {
        self.recent = Recent::default();
        let (first, drain) = (self.early, self.slowly);
        let both = first.plus(drain);
        self.learns = MEDIUM_LEARNED as u32;
        if both.packets < MEDIUM_FIRST || self.confirmed > 0.0 {
            return;
        }
        let lower = if first.rate() < drain.rate() { first } else { drain };
        let seen = if lower.packets < MEDIUM_FIRST { both } else { lower };
        self.known = Tally { lost: seen.lost.min((self.confirmed + OVERRUN) * seen.packets), ..seen };
    }

    fn known_rate(&self) -> f64 {
        self.seen().rate().min(self.all.estimate().upper)
    }

    /// Loss of the recent packets beyond that of the medium, if it is significant; else zero.
    pub(super) fn excess(&self) -> f64 {
        let recent = self.recent();
        if recent.packets < 1.0 {
            return 0.0;
        }
        // Test of two proportions: do both samples have the same loss rate?
        let weight = self.seen().packets;
        let known = self.known_rate();
        let pooled = (recent.lost + known * weight) / (recent.packets + weight);
        let correlated = self.correlated(pooled);
        let spread = (pooled * (1.0 - pooled) * correlated * (1.0 / recent.packets + 1.0 / weight)).sqrt();
        let beyond = recent.rate() - known;
        let few = MEDIUM_FEW * correlated / recent.packets;
        if beyond > MEDIUM_TOLERANCE + MEDIUM_SIGMAS * spread.min(0.1) + few { beyond } else { 0.0 }
    }

    /// Ends an epoch, after which packet `next` leaves. Losses beside a long queue (`is_long`) are drops.
    /// `is_capped` says that the bottleneck is known to drop what exceeds the rate.
    pub(super) fn end_epoch(&mut self, sent: Sent, is_long: bool, is_capped: bool) {
        if is_long {
            // The delay shows who drops.
            (self.recent, self.suspicion, self.lasting) = (Default::default(), None, 0);
            return;
        }
        let (excess, recent) = (self.excess(), self.recent());
        self.lower_by_recent(sent.queue);
        self.recent.end_epoch();
        self.lasting = if excess > 0.0 { self.lasting + 1 } else { 0 };
        if self.suspicion.is_none()
            && excess > 0.0
            && recent.rate() < OUTAGE
            && (!is_capped || self.lasting > MEDIUM_TOLERATED)
        {
            if sent.app_limited && self.assumed + excess <= ASSUMED {
                self.assume(excess);
            } else {
                self.suspect(recent.rate(), sent);
            }
        }
    }

    /// Who caused the losses in question, once the test has shown it.
    pub(super) fn verdict(&mut self, now: Time) -> Option<Verdict> {
        let Suspicion { loss, burst, queues, rate, began, arrived, tested, after_pause, .. } = self.suspicion?;
        let known = self.known_rate();
        // Wald's sequential test of two loss rates (Annals of Mathematical Statistics 16, 1945).
        let (without, with) = (known.max(MEDIUM_TOLERANCE), loss.min(OUTAGE));
        let arrived_packets = tested.packets - tested.lost;
        let evidence = (tested.lost * (with / without).ln() + arrived_packets * ((1.0 - with) / (1.0 - without)).ln())
            / correlation((burst * (1.0 - with)).max(1.0));
        let is_clear = evidence.abs() >= MEDIUM_EVIDENCE && tested.packets >= MEDIUM_LEAST;
        if now.since(began) < MEDIUM_TEST_TIME || !is_clear && tested.packets < MEDIUM_LEARNED {
            return None;
        }
        (self.recent, self.suspicion, self.assumed) = (Default::default(), None, 0.0);
        // Where others kept a queue, that queue may have dropped these packets. After a first pause some of
        // them may still overrun the path, so much loss beside them is believed after a second pause only.
        if queues.stands() || after_pause == Some(0) && queues.is_shared() && tested.rate() > OVERRUN {
            return Some(Verdict::Bottleneck { arrived });
        }
        if after_pause.is_some() {
            self.confirmed = tested.rate();
            let (packets, lost) = (tested.packets as u32, tested.lost as u32);
            self.tested = Some(Tested { packets, lost, took: now.since(began) });
        }
        if tested.lost > known * tested.packets + 2.0 * (known * tested.packets).sqrt() + 1.0 {
            let most = (self.confirmed + OVERRUN) * tested.packets;
            (self.known, self.learns) = (Tally { lost: tested.lost.min(most), ..tested }, MEDIUM_LEARNED as u32);
        }
        self.lower(tested);
        let is_plausible = tested.rate() <= self.confirmed + OVERRUN;
        Some(if evidence > 0.0 && is_plausible { Verdict::Medium { rate } } else { Verdict::Bottleneck { arrived } })
    }

    /// The recent losses were caused by neither.
    pub(super) fn acquit(&mut self) {
        (self.recent, self.suspicion) = (Recent::default(), None);
    }

    /// A test would delay the data of an application that needs less than the rate. So losses that cost
    /// little are assumed to be the medium's, until there are too many of them.
    fn assume(&mut self, excess: f64) {
        self.assumed += excess;
        self.known = self.recent();
        self.learns = MEDIUM_LEARNED as u32;
    }

    fn suspect(&mut self, loss: f64, Sent { now, rate, arrived, next, .. }: Sent) {
        let test = MEDIUM_YIELDED * rate.min(arrived);
        self.suspicion = Some(Suspicion {
            loss,
            burst: self.burst(),
            began: now,
            queues: Queues::NONE,
            rate,
            arrived,
            test,
            after_pause: None,
            from: next,
            tested: Tally::default(),
        });
    }

    /// Whether the present test follows a pause.
    pub(super) fn tests_after_pause(&self) -> bool {
        self.suspicion.is_some_and(|suspicion| suspicion.after_pause.is_some())
    }

    /// Whether a test after a pause has shown what the medium loses.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed > 0.0
    }

    /// The rate at which it shows who causes the losses, while that is not known.
    pub(super) fn test_rate(&self) -> Option<f64> {
        self.suspicion.map(|suspicion| suspicion.test)
    }

    /// Upper bound of the loss of the medium.
    pub(super) fn loss(&self) -> f64 {
        let known = self.known_rate();
        let weight = self.seen().packets;
        let deviation = (known * (1.0 - known) * self.correlated(known) / weight).sqrt();
        (known + 2.0 * deviation).min(0.9)
    }

    /// Whether the medium is known to lose more than `rate`, and the packets of late do not contradict. Where
    /// losses come in runs, it takes thousands of packets until what is known falls.
    pub(super) fn loses(&self, rate: f64) -> bool {
        self.loss() > rate && self.late.rate() > rate / 2.0
    }

    /// Whether the first flight lost little, so that what is lost later is what this sender sends too much.
    pub(super) fn began_well(&self) -> bool {
        self.early.packets >= MEDIUM_FIRST && self.early.rate() < OVERRUN / 2.0
    }

    /// Whether the path is overrun: the recent loss exceeds that of the confirmed medium by far. A pause
    /// delays the data of an application that needs less than the rate (`app_limited`), so it takes more
    /// there.
    pub(super) fn is_overrun(&self, app_limited: bool) -> bool {
        let recent = self.recent();
        let rate = recent.rate();
        let deviation = (rate * (1.0 - rate) * self.correlated(rate) / recent.packets.max(1.0)).sqrt();
        !self.tests_after_pause()
            && recent.packets >= MEDIUM_TESTED
            && self.recent.runs() >= OVERRUN_RUNS
            && rate < OUTAGE
            && rate - self.confirmed > if app_limited { OVERRUN_LIMITED } else { OVERRUN } + 2.0 * deviation
    }

    /// A pause ends, in which all senders of this kind that overran the path stopped. Forgets what was
    /// learned before, and tests at `test` bytes per second whether the medium caused the loss before.
    /// `pauses` is the number of pauses in a row before this one.
    pub(super) fn begin_again(&mut self, loss: f64, sent: Sent, test: f64, pauses: u32) {
        let known = Tally { packets: MEDIUM_LEARNED, lost: 0.0 };
        let burst = self.burst();
        *self = Self { known, early: known, ..Self::default() };
        self.suspect(loss, sent);
        if let Some(suspicion) = &mut self.suspicion {
            (suspicion.test, suspicion.burst, suspicion.after_pause) = (test, burst, Some(pauses));
        }
    }
}
