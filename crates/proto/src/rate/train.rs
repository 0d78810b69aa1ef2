//! Packet trains (Báguena and others, "RCDP", 2013, section III-B): packets leave in trains that are faster
//! than the mean rate, the peer reports how fast each train arrived, and the rate follows the reports.
//!
//! The paper takes what a train measures for the available bandwidth. It is not: beside cross traffic X, a
//! train of rate Ω leaves a link of capacity C at C Ω/(Ω + X), so the paper's rate settles at βC - αX. That
//! is above the C - X that are free if X > C (1 - β)/(1 - α), and then the queue never empties.
//! [`TrainSteps::yields`] corrects this: the delay of each train's first packet shows the queue that the
//! train found, and the rate yields to it. It yields only in part, so that a sender that fills every queue
//! cannot starve it (docs/rcdp.md section 4). Invariant: the rate never exceeds 1/α of what was acknowledged
//! lately.

use core::fmt;
use core::time::Duration;

use super::{AckSample, Budget, INITIAL_WINDOW, LossSample, PACKET, RateController, TrainPace, TrainSample};
use crate::Time;

/// A train lasts at least this long at the mean rate, whatever its number of packets: two ticks of a 1 ms
/// timer, and longer than most systems join packets on arrival.
const LEAST_PERIOD: Duration = Duration::from_millis(4);
/// A train of N packets lasts no longer than this at the mean rate, or than four round trips. At low rates it
/// has fewer packets, but at least [`SHORTEST`], because the rate changes once for each train. Chosen: N = 16
/// packets take this long at 2 Mbit/s.
const MOST_PERIOD: Duration = Duration::from_millis(100);
const SHORTEST: u16 = 4;
/// Longest train in packets. Chosen: at 300 Mbit/s it lasts 4 ms.
const LONGEST: u16 = 100;
/// Weight of the newest train: its part of a round trip, within these limits. Chosen: a memory of a round
/// trip, and of two to eight trains.
const LEAST_WEIGHT: f64 = 0.125;
const MOST_WEIGHT: f64 = 0.5;
/// A rate below this part of the present one is no noise of the measurement. Chosen.
const MUCH_LESS: f64 = 0.75;
/// A train that arrived in less than this multiple of its time of departure was not slowed. Chosen: a timer
/// that is late by 100 µs adds as much to a train of 2 ms.
const SLOWED: f64 = 1.05;
/// Memory of loss rates in packets: of the medium's, and of the present one. Chosen.
const NOISE_MEMORY: f64 = 512.0;
const LOSS_MEMORY: f64 = 128.0;
/// The present loss rate rarely exceeds its mean by more: its deviation is 0.025 at a mean of 20 %.
const LOSS_SPREAD: f64 = 0.03;
/// Largest loss rate that is taken for the medium's. Beside flows that always fill the queue, a sender cannot
/// tell the two apart by delay. Chosen: above the 20 % for which the paper's claims are tested.
const MOST_NOISE: f64 = 0.3;
/// Smallest pace in bytes per second: two full packets each second.
const LEAST_RATE: f64 = 2.0 * PACKET as f64;

/// The constants of packet trains. The paper names N, α and β and gives no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainSteps {
    /// N, packets of a train, 4 to 100. A train at high rates has more, so that it lasts 4 ms.
    pub packets: u16,
    /// α in percent, 10 to 95: mean rate divided by the train's rate.
    pub alpha_percent: u8,
    /// β in percent, more than α and at most 99: mean rate divided by the measured rate.
    pub beta_percent: u8,
    /// Whether the rate yields to queues. The paper's does not.
    pub yields: bool,
}

impl TrainSteps {
    /// A train of 16 packets lasts 4 ms at 50 Mbit/s. With α = 0.5 a train that was not slowed shows that
    /// twice the rate is free. β = 0.95 leaves a twentieth of the link to empty the queue.
    pub const CHOSEN: Self = Self { packets: 16, alpha_percent: 50, beta_percent: 95, yields: true };

    /// Parses what follows `train:`, `N,ALPHA,BETA[,printed]`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (text, yields) = text.strip_suffix(",printed").map_or((text, true), |text| (text, false));
        let mut numbers = text.split(',').map(|number| number.parse::<u16>().ok());
        let (packets, alpha, beta) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let fits = (4..=LONGEST).contains(&packets) && (10..=95).contains(&alpha) && (alpha + 1..=99).contains(&beta);
        let steps = Self { packets, alpha_percent: alpha as u8, beta_percent: beta as u8, yields };
        (fits && numbers.next().is_none()).then_some(steps)
    }

    fn alpha(self) -> f64 {
        f64::from(self.alpha_percent) / 1e2
    }

    fn beta(self) -> f64 {
        f64::from(self.beta_percent) / 1e2
    }
}

impl fmt::Display for TrainSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "train:{},{},{}", self.packets, self.alpha_percent, self.beta_percent)?;
        if self.yields { Ok(()) } else { f.write_str(",printed") }
    }
}

/// The controller, described in the module documentation.
#[derive(Debug)]
pub struct Train {
    steps: TrainSteps,
    /// Mean rate R in bytes per second.
    rate: f64,
    min_rtt: Duration,
    /// Highest rate acknowledged in the present round trip and in the one before, and when the present one
    /// began.
    acked: [f64; 2],
    round: Time,
    queue: FoundQueue,
    /// Loss rate of the medium, and the present one.
    noise: f64,
    lost: f64,
    /// Whether a train was reported.
    is_measured: bool,
}

impl Train {
    /// A controller with these constants. Before the first report it sends a train of ten packets.
    pub fn new(steps: TrainSteps) -> Self {
        let min_rtt = Duration::from_millis(333);
        let (acked, round, queue) = ([0.0; 2], Time::ZERO, FoundQueue::default());
        let rate = first_rate(min_rtt);
        Self { steps, rate, min_rtt, acked, round, queue, noise: 0.0, lost: 0.0, is_measured: false }
    }

    /// The share of the packets that a queue drops, of those that the medium does not lose. A short queue
    /// drops none.
    fn dropped(&self) -> f64 {
        if !self.is_congested() {
            return 0.0;
        }
        ((self.lost - self.noise - LOSS_SPREAD) / (1.0 - self.noise)).max(0.0)
    }

    /// The rate that a train showed, and whether to keep the present rate if that is higher.
    fn shown(&mut self, train: &TrainSample) -> (f64, bool) {
        let over = |span: Duration| train.bytes as f64 / span.as_secs_f64().max(1e-6);
        let (left, arrived) = (over(train.left), over(train.arrived));
        // The sender had too little to send at the train's rate, or its timers were late.
        let is_unslowed = arrived * SLOWED >= left;
        if !self.steps.yields {
            return (arrived, is_unslowed);
        }
        // What a queue drops did not pass, unlike what the medium loses.
        let dropped = self.dropped();
        let kept = 1.0 - self.queue.wanted(self.min_rtt).min(MOST_YIELD + dropped).min(MOST_AT_ONCE);
        (arrived * (1.0 - dropped) * kept, is_unslowed && kept >= 1.0)
    }
}

/// The rate before any report: ten packets in a round trip (RFC 6928).
fn first_rate(rtt: Duration) -> f64 {
    INITIAL_WINDOW as f64 / rtt.as_secs_f64().max(1e-3)
}

impl RateController for Train {
    fn on_handshake(&mut self, rtt: Duration) {
        (self.rate, self.min_rtt) = (first_rate(rtt), rtt);
    }

    fn on_ack(&mut self, ack: &AckSample) {
        self.min_rtt = ack.min_rtt;
        if ack.now.since(self.round) >= ack.smoothed {
            (self.acked, self.round) = ([0.0, self.acked[0]], ack.now);
        }
        // What the medium lost passed the bottleneck too.
        let acked = ack.rate.map_or(0, |rate| rate.acked) as f64;
        self.acked[0] = self.acked[0].max(acked / (1.0 - self.noise));
    }

    fn on_train(&mut self, train: &TrainSample) {
        self.is_measured = true;
        let part = train.bytes as f64 / (self.rate * self.min_rtt.as_secs_f64()).max(1.0);
        let weight = part.clamp(LEAST_WEIGHT, MOST_WEIGHT);
        self.queue.on_train(train, weight, self.min_rtt);
        let (shown, is_floor) = self.shown(train);
        let target = self.steps.beta() * shown;
        if is_floor && target < self.rate {
            return;
        }
        let weight = if target < self.rate * MUCH_LESS {
            MOST_WEIGHT
        } else if is_floor {
            // The train was not slowed, and shows only that more is free. A longer memory protects nothing.
            part.clamp(weight, 1.0)
        } else {
            weight
        };
        let acked = self.acked[0].max(self.acked[1]).max(first_rate(self.min_rtt));
        let most = acked / self.steps.alpha();
        self.rate = (self.rate + (target - self.rate) * weight).min(most).max(LEAST_RATE);
    }

    fn on_fate(&mut self, _number: u64, lost: bool) {
        let lost = f64::from(u8::from(lost));
        self.lost += (lost - self.lost) / LOSS_MEMORY;
        if !self.is_congested() {
            self.noise = (self.noise + (lost - self.noise) / NOISE_MEMORY).min(MOST_NOISE);
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        if loss.persistent {
            self.rate = first_rate(self.min_rtt).min(self.rate);
        }
    }

    fn budget(&self) -> Budget {
        if !self.is_measured {
            return Budget { window: INITIAL_WINDOW, pacing: self.rate as u64 };
        }
        let product = self.rate * self.min_rtt.as_secs_f64();
        let train = self.rate * LEAST_PERIOD.as_secs_f64();
        // The pace is the limit. The window only stops a sender that hears nothing.
        Budget { window: (product * 4.0 + train * 2.0) as u64 + 4 * INITIAL_WINDOW, pacing: self.rate as u64 }
    }

    fn train(&self) -> Option<TrainPace> {
        let within = |period: Duration| (self.rate * period.as_secs_f64() / PACKET as f64) as u16;
        let most = within(MOST_PERIOD.max(self.min_rtt * 4)).clamp(SHORTEST, self.steps.packets);
        let packets = within(LEAST_PERIOD).clamp(most, LONGEST);
        // The first window has to hold the first train.
        let packets = if self.is_measured { packets } else { packets.min((INITIAL_WINDOW / PACKET) as u16) };
        // The first packet carries no symbol.
        Some(TrainPace { packets: packets + 1, rate: (self.rate / self.steps.alpha()) as u64 })
    }

    fn is_congested(&self) -> bool {
        self.queue.is_long(self.min_rtt)
    }

    fn state(&self) -> &'static str {
        if self.is_measured { "cruise" } else { "startup" }
    }
}

/// The rate yields when the trains find a longer queue, or one longer than a quarter of the least round trip:
/// it is the delay that the scheduler of a busy host adds.
const SHORT_QUEUE: Duration = Duration::from_millis(5);
/// In this many round trips the queue shall be gone. Chosen: the effect of a new rate is reported after one.
const DRAIN: u32 = 2;
/// The rate yields at most this part, and what the queue drops. Then it has a fixed point beside a sender
/// that takes all that is left: (β (1 - 0.37) - α)/(1 - α) = 0.2 of the link. Beside a constant rate of
/// three quarters of the link it still yields enough: β (1 - 0.37) - 0.75 α = 0.22.
const MOST_YIELD: f64 = 0.37;
/// No report lowers the rate by more than this part. Chosen.
const MOST_AT_ONCE: f64 = 0.75;
/// The passing part is at most this while the queue falls already. Chosen.
const MOST_FALLING: f64 = 0.2;
/// Steps of the lasting part in a round trip: up while the queue is long, and down while it is empty. The
/// step down is a factor, so that two flows that yield differently become equal. Chosen.
const STEP: f64 = 0.02;
const STEP_DOWN: f64 = 1.0 / 16.0;

/// The queue that the trains find, and the part of the rate that is given up for it: a passing part that
/// empties the queue of the moment, and a lasting one against senders that keep filling it.
#[derive(Debug, Default)]
struct FoundQueue {
    smoothed: Duration,
    newest: Duration,
    lasting: f64,
    /// When the lasting part was last adapted, and the queue at that time.
    adapted: Time,
    before: Duration,
}

impl FoundQueue {
    fn on_train(&mut self, train: &TrainSample, weight: f64, min_rtt: Duration) {
        self.newest = train.queue;
        self.smoothed = self.smoothed.mul_f64(1.0 - weight) + train.queue.mul_f64(weight);
        if train.now.since(self.adapted) >= round(min_rtt) {
            self.adapted = train.now;
            self.adapt(min_rtt);
        }
    }

    /// Adapts the lasting part. It rises until the trains find the queue empty now and then, so that the
    /// least delay stays known.
    fn adapt(&mut self, min_rtt: Duration) {
        let before = core::mem::replace(&mut self.before, self.smoothed);
        let is_falling = self.smoothed < before.mul_f64(0.9);
        let change = if self.smoothed <= short(min_rtt) / 4 {
            -self.lasting * STEP_DOWN
        } else if is_falling || self.passing(min_rtt) >= MOST_YIELD {
            // The queue goes, or the sender gives up all that it may.
            0.0
        } else if self.is_long(min_rtt) {
            STEP
        } else {
            STEP / 4.0
        };
        self.lasting = (self.lasting + change).clamp(0.0, MOST_YIELD);
    }

    fn is_long(&self, min_rtt: Duration) -> bool {
        self.smoothed > short(min_rtt)
    }

    /// The part of the rate to give up.
    fn wanted(&self, min_rtt: Duration) -> f64 {
        self.lasting + self.passing(min_rtt)
    }

    fn passing(&self, min_rtt: Duration) -> f64 {
        // Many trains show that a queue grew, one that it is gone.
        let over = self.smoothed.min(self.newest).saturating_sub(short(min_rtt));
        let wanted = over.as_secs_f64() / (round(min_rtt) * DRAIN).as_secs_f64();
        if self.newest < self.smoothed { wanted.min(MOST_FALLING) } else { wanted }
    }
}

/// The longest queue that counts as short.
fn short(min_rtt: Duration) -> Duration {
    SHORT_QUEUE.max(min_rtt / 4)
}

fn round(min_rtt: Duration) -> Duration {
    min_rtt.max(LEAST_PERIOD)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);
    const MBIT: f64 = 125_000.0;

    /// A controller at `mbit` whose peer acknowledged `acked` Mbit/s.
    fn at(mbit: f64, acked: f64) -> Train {
        let mut train = Train::new(TrainSteps::CHOSEN);
        (train.rate, train.min_rtt, train.acked, train.is_measured) = (mbit * MBIT, RTT, [acked * MBIT; 2], true);
        train
    }

    /// Reports 50 trains, one every 4 ms, that left and arrived at these rates in Mbit/s and found this
    /// queue.
    fn report(train: &mut Train, left: f64, arrived: f64, queue_ms: u64) -> f64 {
        for n in 1..=50 {
            let span = |mbit: f64| Duration::from_secs_f64(24_000.0 / (mbit * MBIT));
            train.on_train(&TrainSample {
                now: train.queue.adapted + Duration::from_millis(4 * n),
                bytes: 24_000,
                left: span(left),
                arrived: span(arrived),
                queue: Duration::from_millis(queue_ms),
            });
        }
        train.rate / MBIT
    }

    fn near(rate: f64, expected: f64) {
        assert!((rate / expected - 1.0).abs() < 0.01, "{rate} and not {expected}");
    }

    #[test]
    fn before_a_report_it_sends_one_train_of_ten_packets() {
        let mut train = Train::new(TrainSteps::CHOSEN);
        train.on_handshake(RTT);
        assert_eq!(train.train().map(|pace| pace.packets), Some(11));
        assert_eq!(train.budget(), Budget { window: 15_000, pacing: 750_000 });
        assert!(report(&mut train, 12.0, 12.0, 0) > 0.0 && train.budget().window > 60_000);
    }

    #[test]
    fn the_rate_is_beta_of_what_the_trains_show() {
        near(report(&mut at(20.0, 60.0), 100.0, 50.0, 0), 47.5);
        near(report(&mut at(50.0, 60.0), 100.0, 20.0, 0), 19.0);
    }

    #[test]
    fn a_train_that_was_not_slowed_never_lowers_the_rate() {
        near(report(&mut at(40.0, 60.0), 10.0, 10.0, 0), 40.0);
        near(report(&mut at(40.0, 60.0), 80.0, 80.0, 0), 76.0);
    }

    #[test]
    fn no_report_raises_the_rate_above_a_step_over_what_was_acknowledged() {
        near(report(&mut at(10.0, 10.0), 20.0, 1e6, 0), 20.0);
        // Nothing was acknowledged: the step is over the first rate.
        near(report(&mut at(10.0, 0.0), 20.0, 1e6, 0), 12.0);
    }

    #[test]
    fn the_rate_yields_to_a_queue_and_as_printed_it_does_not() {
        let mut train = at(40.0, 60.0);
        near(report(&mut train, 80.0, 50.0, 30), 50.0 * 0.95 * 0.63);
        assert!(train.is_congested());
        let mut printed = at(40.0, 60.0);
        printed.steps.yields = false;
        near(report(&mut printed, 80.0, 50.0, 30), 47.5);
    }

    #[test]
    fn what_the_medium_loses_passed_and_what_a_queue_drops_did_not() {
        let mut train = at(40.0, 60.0);
        (0..2_000).for_each(|n| train.on_fate(n, n % 5 == 0));
        near(report(&mut train, 100.0, 50.0, 0), 47.5);
        (0..500).for_each(|n| train.on_fate(n, n % 2 == 0));
        assert!(report(&mut train, 100.0, 50.0, 30) < 50.0 * 0.95 * 0.63 * 0.8);
    }

    #[test]
    fn a_train_lasts_four_to_a_hundred_milliseconds_and_has_n_packets_between() {
        for (mbit, packets) in [(0.1, 5), (1.0, 9), (2.0, 17), (50.0, 17), (100.0, 34), (1_000.0, 101)] {
            let pace = at(mbit, 0.0).train().expect("trains");
            assert_eq!((pace.packets, pace.rate), (packets, (mbit * MBIT * 2.0) as u64), "{mbit}");
        }
    }

    #[test]
    fn steps_survive_text_and_others_are_refused() {
        for steps in
            [TrainSteps::CHOSEN, TrainSteps { packets: 100, alpha_percent: 90, beta_percent: 99, yields: false }]
        {
            let text = steps.to_string();
            assert_eq!(TrainSteps::parse(text.strip_prefix("train:").expect("its name")), Some(steps));
        }
        for bad in
            ["", "16", "16,50", "3,50,95", "101,50,95", "16,9,95", "16,50,50", "16,50,100", "16,50,95,x", "16,50,95,1"]
        {
            assert_eq!(TrainSteps::parse(bad), None, "{bad}");
        }
    }
}
