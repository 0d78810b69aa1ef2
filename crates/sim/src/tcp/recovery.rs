//! What a sender does about losses: fast recovery, timeouts and congestion marks (`tcp_fastretrans_alert`).
//!
//! [`Sender`] calls it for each acknowledgement that is a duplicate, carries a mark or arrives outside of the
//! usual state. Invariants: the window is reduced once for all losses of one flight; a recovery ends when
//! everything is acknowledged that had been sent when it began, and the byte after it too (RFC 6582 section
//! 3.2: else duplicate ACKs of repeated segments would begin another one).

use tidewire_proto::Time;

use super::Sender;
use super::board::REORDERING;
use super::control::{NO_THRESHOLD, Window};

/// The state of a sender (`tcp_ca_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing is missing.
    #[default]
    Open,
    /// Duplicate ACKs came, too few for a loss. Each lets one new segment out (limited transmit, RFC 3042).
    Disorder,
    /// The window shrinks because of a congestion mark.
    Reduced,
    /// Fast recovery (RFC 6582).
    Recovery,
    /// Recovery after a timeout (RFC 5681 section 3.1).
    Loss,
}

/// What is to be sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Repeat {
    #[default]
    Nothing,
    /// The first segment, whatever the window says: after a timeout.
    First,
    /// Lost segments, as far as the window allows (`REXMIT_LOST`).
    Lost,
    /// Lost segments, if there is no new data (`REXMIT_NEW`).
    AfterNew,
}

/// The reduction of the window, spread over a round trip (RFC 6937, `tcp_cwnd_reduction`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// The window before.
    pub before: u32,
    /// Segments delivered and sent since.
    pub delivered: u32,
    pub sent: u32,
}

impl Rate {
    /// Sets the window after `delivered` segments left the network. `is_safe` allows slow start: the
    /// acknowledgement advanced and showed no loss.
    pub fn apply(&mut self, window: &mut Window, flight: u32, delivered: u32, is_safe: bool) {
        if delivered == 0 {
            return;
        }
        self.delivered += delivered;
        let may_send = if flight > window.threshold {
            let share = u64::from(window.threshold) * u64::from(self.delivered);
            let share = u32::try_from(share.div_ceil(u64::from(self.before.max(1)))).unwrap_or(u32::MAX);
            share.saturating_sub(self.sent)
        } else {
            let room = window.threshold - flight;
            let owed = self.delivered.saturating_sub(self.sent).max(delivered);
            (owed + u32::from(is_safe)).min(room)
        };
        // The first lost segment goes out at once.
        window.segments = flight + may_send.max(u32::from(self.sent == 0));
    }
}

/// What is needed to undo a reduction (RFC 3522, `tcp_may_undo`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    /// Whether the reduction can be undone (`undo_marker`).
    armed: bool,
    /// The threshold before it; `None` if it must stay.
    threshold: Option<u32>,
    /// When something was sent again first (`retrans_stamp`).
    pub repeated_at: Option<Time>,
}

/// The present recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Episode {
    pub state: State,
    /// Everything below had been sent when it began (`high_seq`).
    pub high: u64,
    pub rate: Rate,
    pub undo: Undo,
    /// Whether F-RTO is at work.
    pub frto: bool,
    pub repeat: Repeat,
    /// The next new segment says that the window was reduced for a mark.
    pub tells_reduced: bool,
}

impl Episode {
    /// Whether the window is being reduced (`tcp_in_cwnd_reduction`).
    pub fn is_reducing(&self) -> bool {
        matches!(self.state, State::Recovery | State::Reduced)
    }
}

/// An acknowledgement that asks for attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alert {
    /// First byte that was missing before it.
    pub before: u64,
    pub advanced: bool,
    pub duplicates: u32,
    /// See [`Taken`](super::board::Taken).
    pub original: bool,
    pub echo: Time,
    pub echoes_mark: bool,
    /// Whether there is new data that the receiver has room for.
    pub has_more: bool,
}

impl Sender {
    pub(super) fn on_alert(&mut self, alert: &Alert) {
        if self.board.out() == 0 {
            self.board.arrived = 0;
        }
        if alert.echoes_mark {
            self.episode.undo.threshold = None;
        }
        let is_covered = self.board.acked >= self.episode.high;
        match self.episode.state {
            State::Open => self.episode.undo.repeated_at = None,
            State::Reduced if self.board.acked > self.episode.high => {
                self.end_reduction(true);
                self.episode.state = State::Open;
            }
            State::Recovery if is_covered => {
                self.board.arrived = 0;
                if self.ends_late(alert.echo) {
                    return;
                }
                self.end_reduction(false);
            }
            _ => {}
        }
        match self.episode.state {
            State::Recovery => self.in_recovery(alert),
            State::Loss => {
                self.in_loss(alert);
                if self.episode.state == State::Open {
                    self.in_order_or_not(alert);
                }
            }
            _ => self.in_order_or_not(alert),
        }
    }

    /// In fast recovery: a partial ACK shows that the next segment is lost too (RFC 6582 section 3.2).
    fn in_recovery(&mut self, alert: &Alert) {
        if !alert.advanced {
            self.board.add_duplicates(alert.duplicates);
        } else if self.was_late(alert.echo) {
            self.board.on_late(alert.before, self.config.segment_bytes);
            if self.board.again > 0 {
                return;
            }
            self.undo(true);
            self.keep_open();
        }
        if self.episode.state == State::Recovery {
            if alert.advanced {
                self.board.lose_first();
            }
        } else {
            self.lose_first_if_due();
            if self.board.lost == 0 {
                return;
            }
            self.enter_recovery(alert.echoes_mark);
        }
        self.episode.repeat = Repeat::Lost;
    }

    /// Outside of recovery: enough duplicate ACKs begin one (RFC 5681 section 3.2).
    fn in_order_or_not(&mut self, alert: &Alert) {
        if alert.advanced {
            self.board.arrived = 0;
        }
        self.board.add_duplicates(alert.duplicates);
        if self.episode.state < State::Recovery {
            self.lose_first_if_due();
        }
        if self.board.lost == 0 {
            if !self.board.has_repeated() {
                self.episode.undo.repeated_at = None;
            }
            if alert.echoes_mark {
                self.enter_reduced();
            }
            if self.episode.state != State::Reduced {
                self.keep_open();
            }
            return;
        }
        self.enter_recovery(alert.echoes_mark);
        self.episode.repeat = Repeat::Lost;
    }

    /// After a timeout (`tcp_process_loss`). F-RTO (RFC 5682 section 2.1): new data after the first progress
    /// tells by its ACKs whether the timeout was wrong.
    fn in_loss(&mut self, alert: &Alert) {
        let is_over = self.board.acked >= self.episode.high;
        if alert.advanced && self.was_late(alert.echo) {
            self.undo_timeout(false);
            return;
        }
        let has_new = self.board.next > self.episode.high;
        if self.episode.frto {
            if alert.original {
                self.undo_timeout(true);
                return;
            }
            if has_new {
                self.episode.frto &= alert.duplicates == 0;
            } else if alert.advanced && !is_over {
                self.episode.high = self.board.next;
                if alert.has_more {
                    self.episode.repeat = Repeat::AfterNew;
                    return;
                }
                self.episode.frto = false;
            }
        }
        if is_over {
            self.ends_late(alert.echo);
            return;
        }
        if self.board.next > self.episode.high && alert.duplicates > 0 {
            self.board.add_duplicates(alert.duplicates);
        } else if alert.advanced {
            self.board.arrived = 0;
        }
        self.episode.repeat = Repeat::Lost;
    }

    /// The timer expired (`tcp_enter_loss`).
    pub(super) fn on_timeout(&mut self) {
        self.stats.timeouts += 1;
        let duplicates = self.board.arrived;
        let state = self.episode.state;
        self.board.lose_all();
        let is_new = state <= State::Disorder
            || self.episode.high <= self.board.acked
            || (state == State::Loss && self.timer.expired == 0);
        if is_new {
            let threshold = self.threshold_now();
            self.episode.rate.before = self.window.segments;
            self.window.threshold = self.control.reduced(&self.window);
            self.episode.undo = Undo { armed: true, threshold: Some(threshold), ..self.episode.undo };
        }
        self.window.segments = self.board.flight() + 1;
        self.window.credit = 0;
        if state <= State::Disorder && duplicates >= REORDERING {
            self.board.reordering = self.board.reordering.min(REORDERING);
        }
        self.episode.frto = self.config.frto && (is_new || self.timer.expired > 0);
        self.control.timed_out();
        self.episode.state = State::Loss;
        self.episode.high = self.board.next;
        self.episode.tells_reduced = self.config.marks;
        self.episode.repeat = Repeat::First;
        self.timer.expired += 1;
    }

    /// `tcp_newreno_mark_lost` outside of recovery.
    fn lose_first_if_due(&mut self) {
        if self.board.arrived >= self.board.reordering {
            self.board.lose_first();
        }
    }

    fn enter_recovery(&mut self, has_mark: bool) {
        self.stats.recoveries += 1;
        self.episode.undo = Undo { armed: true, threshold: None, ..self.episode.undo };
        if !self.episode.is_reducing() {
            if !has_mark {
                self.episode.undo.threshold = Some(self.threshold_now());
            }
            self.begin_reduction();
        }
        self.episode.state = State::Recovery;
    }

    /// Answers a congestion mark (`tcp_enter_cwr`).
    fn enter_reduced(&mut self) {
        self.episode.undo.threshold = None;
        if self.episode.state < State::Reduced {
            self.stats.marks += 1;
            self.episode.undo.armed = false;
            self.begin_reduction();
            self.episode.state = State::Reduced;
        }
    }

    /// `tcp_init_cwnd_reduction`.
    fn begin_reduction(&mut self) {
        self.episode.high = self.board.next;
        self.window.credit = 0;
        self.episode.rate = Rate { before: self.window.segments, delivered: 0, sent: 0 };
        self.window.threshold = self.control.reduced(&self.window);
        self.episode.tells_reduced = self.config.marks;
    }

    /// `tcp_end_cwnd_reduction`.
    fn end_reduction(&mut self, for_mark: bool) {
        if self.window.threshold < NO_THRESHOLD && (for_mark || self.episode.undo.armed) {
            self.window.segments = self.window.threshold;
        }
    }

    /// `tcp_try_keep_open`.
    fn keep_open(&mut self) {
        let is_open = self.board.arrived + self.board.lost == 0 && !self.board.has_repeated();
        let state = if is_open { State::Open } else { State::Disorder };
        if self.episode.state != state {
            self.episode.state = state;
            self.episode.high = self.board.next;
        }
    }

    /// Whether the reduction was wrong: what was missing arrived before anything was sent again
    /// (`tcp_packet_delayed`).
    fn was_late(&self, echo: Time) -> bool {
        self.episode.undo.armed
            && match self.episode.undo.repeated_at {
                Some(repeated_at) => echo < repeated_at,
                None => self.board.acked < self.episode.high,
            }
    }

    /// Ends the recovery, unless its last byte is the last that is acknowledged: then returns true
    /// (`tcp_try_undo_recovery`).
    fn ends_late(&mut self, echo: Time) -> bool {
        if self.was_late(echo) {
            self.undo(false);
        }
        if self.holds_state() {
            return true;
        }
        self.episode.state = State::Open;
        false
    }

    /// `tcp_is_non_sack_preventing_reopen`.
    fn holds_state(&mut self) -> bool {
        let holds = self.board.acked == self.episode.high;
        if holds && !self.board.has_repeated() {
            self.episode.undo.repeated_at = None;
        }
        holds
    }

    /// `tcp_try_undo_loss`.
    fn undo_timeout(&mut self, by_frto: bool) {
        self.undo(true);
        self.timer.expired = 0;
        if !self.holds_state() && by_frto {
            self.episode.state = State::Open;
        }
    }

    /// `tcp_undo_cwnd_reduction`.
    fn undo(&mut self, unmarks: bool) {
        self.stats.undone += 1;
        if unmarks {
            self.board.lose_none();
        }
        if let Some(threshold) = self.episode.undo.threshold {
            self.window.segments = self.control.undone(&self.window, self.episode.rate.before);
            if threshold > self.window.threshold {
                self.window.threshold = threshold;
                self.episode.tells_reduced = false;
            }
        }
        self.episode.undo.armed = false;
    }

    /// The threshold that would hold now (`tcp_current_ssthresh`).
    pub(super) fn threshold_now(&self) -> u32 {
        let window = &self.window;
        if self.episode.is_reducing() {
            window.threshold
        } else {
            window.threshold.max(window.segments / 2 + window.segments / 4)
        }
    }
}
