//! A TCP flow with BBR version 1 as Linux has it (`net/ipv4/tcp_bbr.c`): a competitor on the bottleneck of a
//! run.
//!
//! The model keeps what decides shares: the maximum of delivery rates over ten round trips, the cycle of
//! gains, the window of two bandwidth-delay products, packet conservation in the first round trip of a
//! recovery, and PROBE_RTT. It leaves out policer detection and ACK aggregation. The sender is never idle,
//! the receiver acknowledges every packet, and no ACK is lost.

use core::time::Duration;
use std::collections::VecDeque;

use tidewire_proto::Time;
use tidewire_sim::link::{Link, LinkConfig, LinkStats};

/// Bytes of a segment: payload, and payload with the TCP header and its timestamps. The link adds 28 bytes of
/// IPv4 and UDP headers.
const PAYLOAD: u64 = 1_448;
const SEGMENT: usize = 1_472;
/// `bbr_high_gain`, `bbr_drain_gain`, `bbr_cwnd_gain`, `bbr_pacing_gain`, `bbr_pacing_margin_percent`.
const HIGH_GAIN: f64 = 2.885;
const WINDOW_GAIN: f64 = 2.0;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const MARGIN: f64 = 0.99;
/// `bbr_bw_rtts`, `bbr_min_rtt_win_sec`, `bbr_probe_rtt_mode_ms`, `bbr_cwnd_min_target`,
/// `bbr_full_bw_thresh`, `bbr_full_bw_cnt`.
const RATE_ROUNDS: u64 = 10;
const MIN_RTT_LIFE: Duration = Duration::from_secs(10);
const PROBE_RTT: Duration = Duration::from_millis(200);
const LEAST_WINDOW: f64 = 4.0;
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Three times the two segments that Linux sends at once at these rates (`bbr_quantization_budget`).
const QUANTA: f64 = 6.0;
/// Number of later packets that arrive before a packet counts as lost.
const REORDERING: u64 = 3;
/// If nothing arrives for this long, everything in flight counts as lost (the least `RTO` of Linux is 200 ms
/// more than the round trip).
const TIMEOUT: Duration = Duration::from_millis(400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw(usize),
    ProbeRtt,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    number: u64,
    sent: Time,
    /// Packets delivered when it was sent, and when the last of them was.
    delivered: u64,
    delivered_at: Time,
    /// When the packet with the latest acknowledgement at that time was sent.
    first_sent: Time,
}

/// Segments acknowledged so far, when the last was, and when it was sent.
#[derive(Debug)]
struct Arrived {
    segments: u64,
    at: Time,
    first_sent: Time,
}

/// The mode of the flow, and since when it lasts.
#[derive(Debug)]
struct Phase {
    mode: Mode,
    since: Time,
    /// When PROBE_RTT ends; known once the flight is small.
    probe_ends: Option<Time>,
}

/// The present round trip, and the segment whose acknowledgement ends it.
#[derive(Debug)]
struct Rounds {
    number: u64,
    ends: u64,
}

/// The least round trip, and when it was seen.
#[derive(Debug)]
struct Least {
    rtt: Duration,
    at: Time,
}

/// The rate that start-up must exceed to go on, and the round trips in which it did not.
#[derive(Debug)]
struct Full {
    rate: f64,
    rounds: u32,
}

/// Recovery from losses.
#[derive(Debug)]
struct Loss {
    /// When the present recovery began. It ends when a segment sent after that is acknowledged.
    recovery: Option<Time>,
    /// Whether packets are conserved, as in the first round trip of a recovery.
    conserves: bool,
    in_phase: bool,
}

/// A flow that is simulated beside ours; see the module.
#[derive(Debug)]
pub struct Rival {
    link: Link<Segment>,
    back: Duration,
    /// Acknowledgements in flight: when they arrive, and for which segment.
    acks: VecDeque<(Time, Segment)>,
    flying: VecDeque<Segment>,
    next: u64,
    due: Time,
    arrived: Arrived,
    phase: Phase,
    /// Best rate of each of the last round trips in packets per second, with the round trip's number.
    rates: VecDeque<(u64, f64)>,
    rounds: Rounds,
    window: f64,
    prior_window: f64,
    least: Least,
    full: Full,
    loss: Loss,
}

impl Rival {
    /// A flow that begins at `start` over a path with the forward direction `config`, which shares the queue
    /// of `beside`.
    pub fn new<T>(config: &LinkConfig, back: Duration, beside: &Link<T>, start: Time) -> Self {
        let mut link = Link::new(config);
        link.share_queue(beside);
        Self {
            link,
            back,
            acks: VecDeque::new(),
            flying: VecDeque::new(),
            next: 0,
            due: start,
            arrived: Arrived { segments: 0, at: start, first_sent: start },
            phase: Phase { mode: Mode::Startup, since: start, probe_ends: None },
            rates: VecDeque::new(),
            rounds: Rounds { number: 0, ends: 0 },
            window: 10.0,
            prior_window: 10.0,
            least: Least { rtt: config.delay + back, at: start },
            full: Full { rate: 0.0, rounds: 0 },
            loss: Loss { recovery: None, conserves: false, in_phase: false },
        }
    }

    /// Payload bytes that arrived.
    pub fn read(&self) -> u64 {
        self.arrived.segments * PAYLOAD
    }

    /// Counts of its link.
    pub fn stats(&self) -> &LinkStats {
        self.link.stats()
    }

    /// When the next event happens.
    pub fn next_moment(&self) -> Time {
        let send = if (self.flying.len() as f64) < self.window { self.due } else { self.arrived.at + TIMEOUT };
        let ack = self.acks.front().map(|&(at, _)| at);
        [self.link.poll_timeout(), ack].into_iter().flatten().fold(send, Time::min)
    }

    /// Handles everything that is due by `now`.
    pub fn run(&mut self, now: Time) {
        while let Some(delivery) = self.link.poll_delivery(now) {
            self.acks.push_back((delivery.at + self.back, delivery.payload));
        }
        while self.acks.front().is_some_and(|ack| ack.0 <= now)
            && let Some((_, segment)) = self.acks.pop_front()
        {
            self.on_ack(now, segment);
        }
        if !self.flying.is_empty() && now >= self.arrived.at + TIMEOUT {
            self.flying.clear();
            (self.window, self.arrived.at) = (LEAST_WINDOW, now);
        }
        while self.due <= now && (self.flying.len() as f64) < self.window {
            self.send(now);
        }
    }

    fn send(&mut self, now: Time) {
        if self.flying.is_empty() {
            (self.arrived.first_sent, self.arrived.at) = (now, now);
        }
        let segment = Segment {
            number: self.next,
            sent: now,
            delivered: self.arrived.segments,
            delivered_at: self.arrived.at,
            first_sent: self.arrived.first_sent,
        };
        self.next += 1;
        self.flying.push_back(segment);
        self.link.send(now, SEGMENT, segment);
        let pace = match self.rate() {
            0.0 => HIGH_GAIN * self.window / self.least.rtt.as_secs_f64(),
            rate => self.gain() * rate * MARGIN,
        };
        self.due = self.due.max(now) + Duration::from_secs_f64(1.0 / pace);
    }

    fn rate(&self) -> f64 {
        self.rates.iter().map(|&(_, rate)| rate).fold(0.0, f64::max)
    }

    fn gain(&self) -> f64 {
        match self.phase.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeBw(phase) => CYCLE[phase],
            Mode::ProbeRtt => 1.0,
        }
    }

    fn product(&self) -> f64 {
        self.rate() * self.least.rtt.as_secs_f64()
    }

    fn enter(&mut self, now: Time, mode: Mode) {
        (self.phase.mode, self.phase.since, self.loss.in_phase) = (mode, now, false);
    }

    fn on_ack(&mut self, now: Time, segment: Segment) {
        let Some(place) = self.flying.iter().position(|flying| flying.number == segment.number) else { return };
        self.flying.remove(place);
        let before = self.flying.len();
        self.flying.retain(|flying| flying.number + REORDERING > segment.number);
        let lost = before - self.flying.len();
        self.arrived.segments += 1;
        self.arrived.at = now;
        self.arrived.first_sent = segment.sent;
        let starts_round = segment.delivered >= self.rounds.ends;
        if starts_round {
            self.rounds.ends = self.arrived.segments;
            self.rounds.number += 1;
            self.loss.conserves = false;
        }
        let span = now.since(segment.delivered_at).max(segment.sent.since(segment.first_sent)).as_secs_f64();
        if span >= self.least.rtt.as_secs_f64() {
            self.on_rate((self.arrived.segments - segment.delivered) as f64 / span);
        }
        self.cycle(now, lost > 0);
        if starts_round && self.phase.mode == Mode::Startup {
            self.check_full(now);
        }
        if self.phase.mode == Mode::Drain && self.flying.len() as f64 <= self.product() {
            // Linux begins at a random phase. Here the start of the flow varies it.
            self.enter(now, Mode::ProbeBw(2));
        }
        self.update_min_rtt(now, now.since(segment.sent), starts_round);
        self.set_window(now, lost as f64, segment.sent);
    }

    fn on_rate(&mut self, rate: f64) {
        let round = self.rounds.number;
        self.rates.retain(|best| best.0 + RATE_ROUNDS > round && best.1 > rate);
        self.rates.push_back((self.rounds.number, rate));
    }

    fn cycle(&mut self, now: Time, lost: bool) {
        self.loss.in_phase |= lost;
        let Mode::ProbeBw(phase) = self.phase.mode else { return };
        let (flight, lasted) = (self.flying.len() as f64, now.since(self.phase.since) > self.least.rtt);
        let over = match phase {
            0 => lasted && (self.loss.in_phase || flight >= CYCLE[0] * self.product()),
            1 => lasted || flight <= self.product(),
            _ => lasted,
        };
        if over {
            self.enter(now, Mode::ProbeBw((phase + 1) % CYCLE.len()));
        }
    }

    fn check_full(&mut self, now: Time) {
        if self.rate() >= self.full.rate * FULL_GROWTH {
            (self.full.rate, self.full.rounds) = (self.rate(), 0);
            return;
        }
        self.full.rounds += 1;
        if self.full.rounds >= FULL_ROUNDS {
            self.enter(now, Mode::Drain);
        }
    }

    fn update_min_rtt(&mut self, now: Time, rtt: Duration, starts_round: bool) {
        let expired = now.since(self.least.at) > MIN_RTT_LIFE;
        if rtt <= self.least.rtt || expired {
            (self.least.rtt, self.least.at) = (rtt, now);
        }
        if expired && self.phase.mode != Mode::ProbeRtt {
            self.prior_window = self.prior_window.max(self.window);
            self.enter(now, Mode::ProbeRtt);
            self.phase.probe_ends = None;
        }
        if self.phase.mode != Mode::ProbeRtt {
            return;
        }
        match self.phase.probe_ends {
            None if self.flying.len() as f64 <= LEAST_WINDOW => self.phase.probe_ends = Some(now + PROBE_RTT),
            Some(ends) if now >= ends && starts_round => {
                self.least.at = now;
                self.window = self.window.max(self.prior_window);
                let next = if self.full.rounds >= FULL_ROUNDS { Mode::ProbeBw(2) } else { Mode::Startup };
                self.enter(now, next);
            }
            _ => {}
        }
    }

    fn set_window(&mut self, now: Time, lost: f64, acked: Time) {
        let flight = self.flying.len() as f64;
        if lost > 0.0 {
            self.window = (self.window - lost).max(1.0);
        }
        match self.loss.recovery {
            None if lost > 0.0 => {
                self.prior_window = if self.phase.mode == Mode::ProbeRtt {
                    self.prior_window.max(self.window)
                } else {
                    self.window + lost
                };
                (self.loss.recovery, self.loss.conserves, self.rounds.ends) = (Some(now), true, self.arrived.segments);
                self.window = flight + 1.0;
            }
            Some(began) if lost == 0.0 && acked > began => {
                (self.loss.recovery, self.loss.conserves) = (None, false);
                self.window = self.window.max(self.prior_window);
            }
            _ => {}
        }
        if self.loss.conserves {
            self.window = self.window.max(flight + 1.0);
        } else {
            let gain = if matches!(self.phase.mode, Mode::Startup | Mode::Drain) { HIGH_GAIN } else { WINDOW_GAIN };
            let target = gain * self.product() + QUANTA;
            let grown = self.window + 1.0;
            self.window = if self.full.rounds >= FULL_ROUNDS { grown.min(target) } else { grown };
        }
        self.window = self.window.max(LEAST_WINDOW);
        if self.phase.mode == Mode::ProbeRtt {
            self.window = self.window.min(LEAST_WINDOW);
        }
    }
}
