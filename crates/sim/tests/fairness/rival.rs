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
/// Later packets that arrived before a packet counts as lost.
const REORDERING: u64 = 3;
/// Nothing arrives for this long: everything in flight is lost (the least `RTO` of Linux is 200 ms beyond the
/// round trip).
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
    /// Packets delivered when it left, and when the last of them was.
    delivered: u64,
    delivered_at: Time,
    /// When the packet left whose acknowledgement was the latest then.
    first_sent: Time,
}

/// See the module.
#[derive(Debug)]
pub struct Rival {
    link: Link<Segment>,
    back: Duration,
    /// Acknowledgements under way: when they come, and of which segment.
    acks: VecDeque<(Time, Segment)>,
    flying: VecDeque<Segment>,
    next: u64,
    due: Time,
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    mode: Mode,
    mode_since: Time,
    /// Best rate of each of the last round trips in packets per second, with the round trip's number.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    round_ends: u64,
    window: f64,
    prior_window: f64,
    min_rtt: Duration,
    min_rtt_at: Time,
    /// PROBE_RTT is over then; known once the flight is small.
    probe_ends: Option<Time>,
    full_rate: f64,
    full_rounds: u32,
    /// Recovery lasts until this many are delivered; packets are conserved in its first round trip.
    recovery: Option<Time>,
    conserves: bool,
    lost_in_phase: bool,
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
            delivered: 0,
            delivered_at: start,
            first_sent: start,
            mode: Mode::Startup,
            mode_since: start,
            rates: VecDeque::new(),
            round: 0,
            round_ends: 0,
            window: 10.0,
            prior_window: 10.0,
            min_rtt: config.delay + back,
            min_rtt_at: start,
            probe_ends: None,
            full_rate: 0.0,
            full_rounds: 0,
            recovery: None,
            conserves: false,
            lost_in_phase: false,
        }
    }

    /// Payload bytes that arrived.
    pub fn read(&self) -> u64 {
        self.delivered * PAYLOAD
    }

    /// What its packets met.
    pub fn stats(&self) -> &LinkStats {
        self.link.stats()
    }

    /// When something happens next.
    pub fn next_moment(&self) -> Time {
        let send = if (self.flying.len() as f64) < self.window { self.due } else { self.delivered_at + TIMEOUT };
        let ack = self.acks.front().map(|&(at, _)| at);
        [self.link.poll_timeout(), ack].into_iter().flatten().fold(send, Time::min)
    }

    /// Does everything that is due by `now`.
    pub fn run(&mut self, now: Time) {
        while let Some(delivery) = self.link.poll_delivery(now) {
            self.acks.push_back((delivery.at + self.back, delivery.payload));
        }
        while self.acks.front().is_some_and(|ack| ack.0 <= now)
            && let Some((_, segment)) = self.acks.pop_front()
        {
            self.on_ack(now, segment);
        }
        if !self.flying.is_empty() && now >= self.delivered_at + TIMEOUT {
            self.flying.clear();
            (self.window, self.delivered_at) = (LEAST_WINDOW, now);
        }
        while self.due <= now && (self.flying.len() as f64) < self.window {
            self.send(now);
        }
    }

    fn send(&mut self, now: Time) {
        if self.flying.is_empty() {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        let segment = Segment {
            number: self.next,
            sent: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
        };
        self.next += 1;
        self.flying.push_back(segment);
        self.link.send(now, SEGMENT, segment);
        let pace = match self.rate() {
            0.0 => HIGH_GAIN * self.window / self.min_rtt.as_secs_f64(),
            rate => self.gain() * rate * MARGIN,
        };
        self.due = self.due.max(now) + Duration::from_secs_f64(1.0 / pace);
    }

    fn rate(&self) -> f64 {
        self.rates.iter().map(|&(_, rate)| rate).fold(0.0, f64::max)
    }

    fn gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeBw(phase) => CYCLE[phase],
            Mode::ProbeRtt => 1.0,
        }
    }

    fn product(&self) -> f64 {
        self.rate() * self.min_rtt.as_secs_f64()
    }

    fn enter(&mut self, now: Time, mode: Mode) {
        (self.mode, self.mode_since, self.lost_in_phase) = (mode, now, false);
    }

    fn on_ack(&mut self, now: Time, segment: Segment) {
        let Some(place) = self.flying.iter().position(|flying| flying.number == segment.number) else { return };
        self.flying.remove(place);
        let before = self.flying.len();
        self.flying.retain(|flying| flying.number + REORDERING > segment.number);
        let lost = before - self.flying.len();
        self.delivered += 1;
        self.delivered_at = now;
        self.first_sent = segment.sent;
        let starts_round = segment.delivered >= self.round_ends;
        if starts_round {
            self.round_ends = self.delivered;
            self.round += 1;
            self.conserves = false;
        }
        let span = now.since(segment.delivered_at).max(segment.sent.since(segment.first_sent)).as_secs_f64();
        if span >= self.min_rtt.as_secs_f64() {
            self.on_rate((self.delivered - segment.delivered) as f64 / span);
        }
        self.cycle(now, lost > 0);
        if starts_round && self.mode == Mode::Startup {
            self.check_full(now);
        }
        if self.mode == Mode::Drain && self.flying.len() as f64 <= self.product() {
            // Linux begins at a random phase; here the start of the flow moves it.
            self.enter(now, Mode::ProbeBw(2));
        }
        self.update_min_rtt(now, now.since(segment.sent), starts_round);
        self.set_window(now, lost as f64, segment.sent);
    }

    fn on_rate(&mut self, rate: f64) {
        let round = self.round;
        self.rates.retain(|best| best.0 + RATE_ROUNDS > round && best.1 > rate);
        self.rates.push_back((self.round, rate));
    }

    fn cycle(&mut self, now: Time, lost: bool) {
        self.lost_in_phase |= lost;
        let Mode::ProbeBw(phase) = self.mode else { return };
        let (flight, lasted) = (self.flying.len() as f64, now.since(self.mode_since) > self.min_rtt);
        let over = match phase {
            0 => lasted && (self.lost_in_phase || flight >= CYCLE[0] * self.product()),
            1 => lasted || flight <= self.product(),
            _ => lasted,
        };
        if over {
            self.enter(now, Mode::ProbeBw((phase + 1) % CYCLE.len()));
        }
    }

    fn check_full(&mut self, now: Time) {
        if self.rate() >= self.full_rate * FULL_GROWTH {
            (self.full_rate, self.full_rounds) = (self.rate(), 0);
            return;
        }
        self.full_rounds += 1;
        if self.full_rounds >= FULL_ROUNDS {
            self.enter(now, Mode::Drain);
        }
    }

    fn update_min_rtt(&mut self, now: Time, rtt: Duration, starts_round: bool) {
        let expired = now.since(self.min_rtt_at) > MIN_RTT_LIFE;
        if rtt <= self.min_rtt || expired {
            (self.min_rtt, self.min_rtt_at) = (rtt, now);
        }
        if expired && self.mode != Mode::ProbeRtt {
            self.prior_window = self.prior_window.max(self.window);
            self.enter(now, Mode::ProbeRtt);
            self.probe_ends = None;
        }
        if self.mode != Mode::ProbeRtt {
            return;
        }
        match self.probe_ends {
            None if self.flying.len() as f64 <= LEAST_WINDOW => self.probe_ends = Some(now + PROBE_RTT),
            Some(ends) if now >= ends && starts_round => {
                self.min_rtt_at = now;
                self.window = self.window.max(self.prior_window);
                let next = if self.full_rounds >= FULL_ROUNDS { Mode::ProbeBw(2) } else { Mode::Startup };
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
        match self.recovery {
            None if lost > 0.0 => {
                self.prior_window =
                    if self.mode == Mode::ProbeRtt { self.prior_window.max(self.window) } else { self.window + lost };
                (self.recovery, self.conserves, self.round_ends) = (Some(now), true, self.delivered);
                self.window = flight + 1.0;
            }
            Some(began) if lost == 0.0 && acked > began => {
                (self.recovery, self.conserves) = (None, false);
                self.window = self.window.max(self.prior_window);
            }
            _ => {}
        }
        if self.conserves {
            self.window = self.window.max(flight + 1.0);
        } else {
            let gain = if matches!(self.mode, Mode::Startup | Mode::Drain) { HIGH_GAIN } else { WINDOW_GAIN };
            let target = gain * self.product() + QUANTA;
            let grown = self.window + 1.0;
            self.window = if self.full_rounds >= FULL_ROUNDS { grown.min(target) } else { grown };
        }
        self.window = self.window.max(LEAST_WINDOW);
        if self.mode == Mode::ProbeRtt {
            self.window = self.window.min(LEAST_WINDOW);
        }
    }
}
