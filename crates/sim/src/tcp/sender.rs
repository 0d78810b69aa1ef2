//! The sending half: what goes out, when, and what an acknowledgement does.
//!
//! The caller hands in acknowledgements, wakes it at [`Sender::poll_timeout`], and then takes segments until
//! there are none. Recovery from losses is in `recovery`, the queue in `board`. Invariants: no more segments
//! are in the network than the window allows, but for the one that a timeout or a fast retransmit forces out;
//! nothing is sent beyond the receiver's window.

use core::time::Duration;

use tidewire_proto::Time;

use super::board::{Board, Sent};
use super::control::{Control, Moment, Reno, Window};
use super::recovery::{Alert, Episode, Repeat, State};
use super::rto::Rto;
use super::source::Source;
use super::{Ack, SEGMENT_BYTES, Segment};

/// `TCP_INIT_CWND`: the first window of RFC 6928.
const FIRST_WINDOW: u32 = 10;

/// Settings of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderConfig {
    /// Largest payload of a segment.
    pub segment_bytes: u32,
    /// The first window in segments.
    pub first_window: u32,
    /// The round trip that the handshake measured; `None` if it is not known. Then the first timeout is 1 s.
    pub handshake: Option<Duration>,
    /// Whether it supports congestion marks (RFC 3168).
    pub marks: bool,
    /// Whether it answers a timeout with F-RTO (RFC 5682, `tcp_frto`), as Linux does also without SACK.
    pub frto: bool,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self { segment_bytes: SEGMENT_BYTES, first_window: FIRST_WINDOW, handshake: None, marks: false, frto: true }
    }
}

/// What a sender counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Segments sent, repeated ones included.
    pub segments: u64,
    /// Segments sent again, in fast recovery and after a timeout.
    pub repeated: u64,
    /// Fast recoveries begun.
    pub recoveries: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Reductions of the window that were undone because the loss was none.
    pub undone: u64,
    /// Reductions for a congestion mark.
    pub marks: u64,
}

/// The retransmission timer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timer {
    pub due: Option<Time>,
    /// Timeouts since the last progress (`icsk_retransmits`).
    pub expired: u32,
}

/// How far the window is used (`is_cwnd_limited`, `max_packets_out`, `cwnd_usage_seq`), and since the last
/// judgement whether new data was sent, and whether the window held some back.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    limited: bool,
    most_out: u32,
    until: u64,
    sent: bool,
    held_back: bool,
}

/// The flow's beginning, when something was sent last, when the application has more, and the end of the
/// receiver's window.
#[derive(Clone, Copy, Debug)]
struct Edges {
    start: Time,
    last_sent: Time,
    wakes: Option<Time>,
    window_end: u64,
}

/// The sender; see the module.
#[derive(Debug)]
pub struct Sender {
    pub(super) config: SenderConfig,
    source: Source,
    edges: Edges,
    pub(super) board: Board,
    pub(super) window: Window,
    pub(super) control: Box<dyn Control>,
    pub(super) episode: Episode,
    usage: Usage,
    pub(super) rto: Rto,
    pub(super) timer: Timer,
    pub(super) stats: SenderStats,
}

impl Sender {
    /// A sender of `source` that begins at `start`, controlled by Reno. `window` is the receiver's window in
    /// bytes.
    pub fn new(config: SenderConfig, source: Source, window: u64, start: Time) -> Self {
        Self::with_control(config, source, window, start, Box::new(Reno))
    }

    /// The same with another congestion control.
    pub fn with_control(
        config: SenderConfig,
        source: Source,
        window: u64,
        start: Time,
        control: Box<dyn Control>,
    ) -> Self {
        let mut rto = Rto::new();
        if let Some(sample) = config.handshake {
            rto.on_sample(sample, 0, 0);
        }
        Self {
            config,
            source,
            edges: Edges { start, last_sent: start, wakes: Some(start), window_end: window },
            board: Board::new(),
            window: Window::new(config.first_window),
            control,
            episode: Episode::default(),
            usage: Usage::default(),
            rto,
            timer: Timer::default(),
            stats: SenderStats::default(),
        }
    }

    /// The counts.
    pub fn stats(&self) -> SenderStats {
        self.stats
    }

    /// The congestion window.
    pub fn window(&self) -> Window {
        self.window
    }

    /// The state of its recovery.
    pub fn state(&self) -> State {
        self.episode.state
    }

    /// Segments that it takes to be in the network.
    pub fn flight(&self) -> u32 {
        self.board.flight()
    }

    /// Bytes that are acknowledged.
    pub fn acked(&self) -> u64 {
        self.board.acked
    }

    /// The smoothed round trip.
    pub fn rtt(&self) -> Option<Duration> {
        self.rto.smoothed()
    }

    /// Whether all bytes of a finite source are acknowledged.
    pub fn is_done(&self) -> bool {
        match &self.source {
            Source::Bytes(bytes) => self.board.acked >= *bytes,
            Source::Frames(frames) => self.board.acked >= frames.bytes(),
            Source::Bulk | Source::Records { .. } => false,
        }
    }

    /// Largest payload of a segment.
    pub fn segment_bytes(&self) -> u32 {
        self.config.segment_bytes
    }

    /// Bytes that the application has produced and that were not sent yet.
    pub fn unsent(&self, now: Time) -> u64 {
        self.source.produced(now.since(self.edges.start)).saturating_sub(self.board.next)
    }

    /// Packets without data that share the window with the segments, because a code below needs them.
    pub(super) fn set_padding(&mut self, packets: u32) {
        self.board.padding = packets;
    }

    /// Takes an acknowledgement that arrived (`tcp_ack`).
    pub fn handle_ack(&mut self, now: Time, ack: &Ack) {
        if ack.next > self.board.next || ack.next < self.board.acked {
            return;
        }
        let advanced = ack.next > self.board.acked;
        if advanced {
            self.timer.expired = 0;
        }
        let window_end = ack.next.saturating_add(ack.window);
        let opened = window_end > self.edges.window_end;
        self.edges.window_end = self.edges.window_end.max(window_end);
        if self.board.out() == 0 {
            return;
        }
        let (before, delivered, losses) = (self.board.acked, self.board.delivered, self.board.losses);
        let taken = self.board.acknowledge(ack.next, self.episode.high);
        if taken.segments > 0 {
            let sent = taken.first.filter(|_| !taken.again).unwrap_or(ack.echo);
            self.rto.on_sample(now.since(sent), self.board.acked, self.board.next);
        }
        let echoes_mark = ack.echoes_mark && self.config.marks;
        let is_duplicate = !advanced && !opened;
        if is_duplicate || echoes_mark || self.episode.state != State::Open {
            let alert = Alert {
                before,
                advanced,
                duplicates: u32::from(is_duplicate),
                original: taken.original,
                echo: ack.echo,
                echoes_mark,
                has_more: self.sendable(now) > 0,
            };
            self.on_alert(&alert);
        }
        if taken.segments > 0 {
            self.arm(now);
        }
        let delivered = self.board.delivered - delivered;
        let is_new_loss = self.board.losses > losses;
        self.adjust(now, u32::try_from(delivered).unwrap_or(u32::MAX), is_new_loss, advanced);
    }

    /// Changes the window after an acknowledgement (`tcp_cong_control`).
    fn adjust(&mut self, now: Time, delivered: u32, is_new_loss: bool, advanced: bool) {
        if matches!(self.episode.state, State::Recovery | State::Reduced) {
            let rate = &mut self.episode.rate;
            rate.apply(&mut self.window, self.board.flight(), delivered, advanced && !is_new_loss);
            return;
        }
        // `tcp_may_raise_cwnd`: where reordering is known, each delivery counts.
        let may_rise = advanced || (self.board.reordering > super::board::REORDERING && delivered > 0);
        let is_limited =
            self.usage.limited || (self.window.is_in_slow_start() && self.window.segments < 2 * self.usage.most_out);
        if may_rise && is_limited {
            let moment = Moment { now, least_rtt: self.rto.least() };
            self.control.on_acked(&mut self.window, delivered, moment);
        }
    }

    /// When [`Self::handle_timeout`] or [`Self::poll_transmit`] has something to do without an
    /// acknowledgement.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timer.due.into_iter().chain(self.edges.wakes).min()
    }

    /// Handles an expired retransmission timer.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.timer.due.is_some_and(|due| due <= now) {
            self.on_timeout();
            self.rto.back_off();
            self.arm(now);
        }
    }

    /// Starts the timer anew (`tcp_rearm_rto`).
    fn arm(&mut self, now: Time) {
        self.timer.due = (self.board.out() > 0).then(|| now + self.rto.timeout());
    }

    /// The next segment to send now. Call until `None`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Segment> {
        if now < self.edges.start {
            return None;
        }
        let segment = self.next_segment(now);
        if segment.is_none() {
            self.judge_usage();
            let age = now.since(self.edges.start);
            let has_all = self.source.produced(age) <= self.board.next;
            self.edges.wakes = self.source.next(age).filter(|_| has_all).map(|next| self.edges.start + next);
        }
        segment
    }

    fn next_segment(&mut self, now: Time) -> Option<Segment> {
        if let Some(sent) = self.next_repeat(now) {
            self.stats.repeated += 1;
            return Some(self.segment(now, sent, false));
        }
        if let Some(sent) = self.next_new(now) {
            return Some(self.segment(now, sent, true));
        }
        if self.episode.repeat == Repeat::AfterNew {
            // `tcp_xmit_recovery`: F-RTO needs new data; without any, the usual recovery goes on.
            let has_new = self.board.next > self.episode.high;
            self.episode.repeat = if has_new { Repeat::Nothing } else { Repeat::Lost };
            if !has_new {
                self.episode.frto = false;
                return self.next_segment(now);
            }
        }
        None
    }

    /// The segment to send again, if it is time (`tcp_xmit_retransmit_queue`).
    fn next_repeat(&mut self, now: Time) -> Option<Sent> {
        let first = self.board.first();
        let sent = match self.episode.repeat {
            Repeat::First => {
                self.episode.repeat = Repeat::Nothing;
                self.board.repeat_first(now)?
            }
            Repeat::Lost if self.window.segments > self.board.flight() => {
                let Some(sent) = self.board.repeat_lost(now) else {
                    self.episode.repeat = Repeat::Nothing;
                    return None;
                };
                if first == Some(sent.start) {
                    self.arm(now);
                }
                sent
            }
            Repeat::Lost => {
                self.episode.repeat = Repeat::Nothing;
                return None;
            }
            Repeat::Nothing | Repeat::AfterNew => return None,
        };
        self.episode.undo.repeated_at = self.episode.undo.repeated_at.or(Some(now));
        self.count_reduced();
        Some(sent)
    }

    /// New data, if window, receiver and application allow (`tcp_write_xmit`).
    fn next_new(&mut self, now: Time) -> Option<Sent> {
        let bytes = self.sendable(now);
        if bytes == 0 {
            return None;
        }
        self.restart_after_idle(now);
        if self.window.segments <= self.board.flight() {
            self.usage.held_back = true;
            return None;
        }
        Some(self.push(now, bytes))
    }

    /// New data although the window has no room: for a code below that does not ask for any.
    pub(super) fn poll_beyond(&mut self, now: Time) -> Option<Segment> {
        let bytes = self.sendable(now);
        (bytes > 0).then(|| {
            let sent = self.push(now, bytes);
            self.segment(now, sent, true)
        })
    }

    fn push(&mut self, now: Time, bytes: u32) -> Sent {
        let was_empty = self.board.out() == 0;
        let sent = self.board.push(now, bytes);
        self.usage.sent = true;
        if was_empty {
            self.arm(now);
        }
        self.count_reduced();
        sent
    }

    /// Counts a segment that was sent while the window is reduced (`prr_out`).
    fn count_reduced(&mut self) {
        if self.episode.is_reducing() {
            self.episode.rate.sent += 1;
        }
    }

    /// Halves the window for each timeout that passed without data, down to the first window (RFC 5681
    /// section 4.1, `tcp_cwnd_restart`).
    fn restart_after_idle(&mut self, now: Time) {
        let (mut idle, timeout) = (now.since(self.edges.last_sent), self.rto.timeout());
        if self.board.out() > 0 || idle <= timeout {
            return;
        }
        self.window.threshold = self.threshold_now();
        let least = self.config.first_window.min(self.window.segments);
        while idle > timeout && self.window.segments > least {
            idle -= timeout;
            self.window.segments /= 2;
        }
        self.window.segments = self.window.segments.max(least);
        self.edges.last_sent = now;
    }

    /// Notes whether the window limited the sender (`tcp_cwnd_validate`).
    fn judge_usage(&mut self) {
        let Usage { sent, held_back, .. } = self.usage;
        (self.usage.sent, self.usage.held_back) = (false, false);
        if !sent && !held_back {
            return;
        }
        let limited = held_back || self.board.flight() >= self.window.segments;
        let out = self.board.out();
        let is_over = self.board.acked >= self.usage.until;
        if is_over || limited || (!self.usage.limited && out > self.usage.most_out) {
            (self.usage.limited, self.usage.most_out, self.usage.until) = (limited, out, self.board.next);
        }
    }

    /// Bytes of the next new segment: none if the application has none or the receiver no room for them.
    fn sendable(&self, now: Time) -> u32 {
        let produced = self.source.produced(now.since(self.edges.start));
        let most = produced.saturating_sub(self.board.next).min(u64::from(self.config.segment_bytes));
        let fits = self.board.next.saturating_add(most) <= self.edges.window_end;
        if fits { u32::try_from(most).unwrap_or(u32::MAX) } else { 0 }
    }

    fn segment(&mut self, now: Time, sent: Sent, is_new: bool) -> Segment {
        self.stats.segments += 1;
        self.edges.last_sent = now;
        // RFC 3168 sections 6.1.2 and 6.1.5: new data tells the reduction, and data sent again does not
        // support marks.
        let reduced = is_new && core::mem::take(&mut self.episode.tells_reduced);
        Segment {
            start: sent.start,
            bytes: sent.bytes,
            digest: sent.digest(),
            stamp: now,
            supports_marks: self.config.marks && is_new,
            marked: false,
            reduced,
        }
    }
}
