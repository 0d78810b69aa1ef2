//! FEEDBACK, in both directions: the peer's report about our packets and symbols, and our report about the
//! peer's.
//!
//! The fate of a packet (received or lost) is reported to the path, for round trip, loss and rate. The fate
//! of a symbol is also reported to its lane. Each loss is reported to the rate controller too, even if a
//! repair has replaced the packet (RFC 9265).

use core::time::Duration;
use std::collections::BTreeMap;

use super::carried::{Carried, Data};
use super::lanes::{Inbound, Lane};
use super::{CloseCode, Connection};
use crate::Time;
use crate::event::Event;
use crate::ids::LaneId;
use crate::lane::{LaneReceiver, MAX_LANES, STREAMS};
use crate::path::{AckSample, Cause, EcnTally, Fate, LossSample, MAX_FEEDBACK_DELAY, Sent, is_persistent};
use crate::trace::TraceEvent;
use crate::wire::{EcnCounts, Feedback, FeedbackRepr, LaneReport, LaneRepr, StreamCreditRepr, Writer, time_units};

/// Upper limit of FEEDBACK bytes per byte received. Chosen.
const RETURN_SHARE: f64 = 0.04;
/// Least time between two requests to confirm credit. Every FEEDBACK repeats the credit until then. Over
/// loopback, a request each round trip cost both ends 8 % of their CPU time (docs/performance.md).
const CREDIT_PAUSE: Duration = Duration::from_millis(1);
/// FEEDBACK is never limited to less than this many bytes: the acknowledgement, a lane report and a few
/// ranges.
const LEAST_FEEDBACK: usize = 64;

impl Connection {
    /// Handles the peer's FEEDBACK in packet `number`.
    pub(super) fn on_feedback(&mut self, now: Time, number: u64, feedback: &Feedback<'_>) -> Result<(), CloseCode> {
        self.tracer.record(now, || TraceEvent::FeedbackReceived { packet: number, delay: feedback.delay() });
        let oldest = self.settle_acked(now, feedback)?;
        for report in feedback.lanes() {
            let lane = self.lanes.get_mut(report.lane).ok_or(CloseCode::Protocol)?;
            if !lane.sender.on_report(number, &report) {
                return Err(CloseCode::Protocol);
            }
            let LaneReport { lane, edge, end, deficit, .. } = report;
            self.tracer.record(now, || TraceEvent::LaneReported { lane: LaneId(lane), edge, end, deficit });
        }
        if let Some((streams, limits)) = feedback.stream_credit() {
            self.streams.on_credit(streams, limits);
        }
        if let Some(ecn) = feedback.ecn() {
            let seen = EcnTally { ect0: ecn.ect0, ect1: ecn.ect1, ce: ecn.ce };
            let left = oldest.or_else(|| self.path.losses.detector.newest_left());
            if let Some(left) = left.filter(|_| seen.ce > self.path.losses.reported_ecn.ce) {
                self.path.losses.reported_ecn = seen;
                self.path.rate.on_ecn(now, left);
            }
        }
        self.wake_writers(now);
        Ok(())
    }

    /// Takes the peer's count of our packets that its host dropped.
    pub(super) fn on_host_drops(&mut self, now: Time, packets: u64) {
        if self.path.losses.host.on_report(packets) {
            let left = self.path.losses.detector.newest_left().unwrap_or(now);
            self.path.rate.on_host_drops(now, left);
        }
    }

    /// Settles packets that are newly acknowledged, then those that are therefore lost, then informs the rate
    /// controller. Returns when the oldest of the newly acknowledged packets left.
    fn settle_acked(&mut self, now: Time, feedback: &Feedback<'_>) -> Result<Option<Time>, CloseCode> {
        if !self.path.newly_acked(feedback.received(), &mut self.scratch.acked) {
            return Err(CloseCode::Protocol);
        }
        let acked = core::mem::take(&mut self.scratch.acked);
        let mut sample = AckSample {
            now,
            bytes: 0,
            in_flight: 0,
            newest: 0,
            left: Time::ZERO,
            next: self.path.flight.next_number(),
            rtt: None,
            one_way: None,
            newest_bytes: 0,
            app_limited: false,
            totals: Default::default(),
            smoothed: self.path.rtt.smoothed(),
            min_rtt: self.path.rtt.min(),
            rate: None,
            dispersion: None,
        };
        // Do this before the rate is measured, because the packets acknowledged here are part of the measured
        // span.
        for sent in acked.iter().filter(|&&n| n >= self.path.first).filter_map(|&n| self.path.flight.get(n)) {
            self.path.delivery.on_acked(sent.bytes);
        }
        let oldest = acked.last().and_then(|&n| self.path.flight.get(n)).map(|sent| sent.at);
        let measures = acked.iter().any(|&n| self.path.flight.get(n).is_some_and(|sent| sent.elicits));
        if let Some(&newest) = acked.first().filter(|_| measures) {
            // The arrival is that of the highest number reported.
            let arrival = feedback.arrival().filter(|_| feedback.largest() == Some(newest));
            self.path.measure(now, newest, (feedback.delay(), arrival), &mut sample);
        }
        for &n in acked.iter().rev() {
            sample.bytes += self.settle_one(now, n);
        }
        let any = !acked.is_empty();
        self.scratch.acked = acked;
        if any && self.path.was_dead(now) {
            let next = self.path.flight.next_number();
            self.path.rate.floor().on_revived(next);
        }
        self.detect_losses(now);
        if any {
            self.path.pto.on_answer(now);
            sample.in_flight = self.path.flight.bytes();
            (sample.smoothed, sample.min_rtt) = (self.path.rtt.smoothed(), self.path.rtt.min());
            sample.newest = self.path.losses.detector.newest().unwrap_or(0);
            sample.left = self.path.losses.detector.newest_left().unwrap_or(now);
            sample.totals = self.path.delivery.totals();
            self.path.rate.on_ack(&sample);
            self.tracer.record(now, || self.rate_state());
            if self.tracer.is_on()
                && let Some(state) = self.path.rate.new_state()
            {
                self.tracer.record(now, || TraceEvent::RateState { state: state.into() });
            }
        }
        Ok(oldest)
    }

    /// The state of rate control, for the trace.
    fn rate_state(&self) -> TraceEvent {
        TraceEvent::Rate {
            window: self.path.rate.budget().window,
            in_flight: self.path.flight.bytes(),
            pacing_bps: self.pacing().saturating_mul(8),
            rtt: self.path.rtt.smoothed(),
            latest_rtt: self.path.rtt.latest(),
            least_rtt: self.path.rtt.least_or_zero(),
            queueing: self.path.rtt.latest().saturating_sub(self.path.rtt.min()),
            loss: self.path.losses.estimator.estimate().rate,
        }
    }

    /// Settles one newly acknowledged packet. Returns the number of bytes that are no longer in flight.
    fn settle_one(&mut self, now: Time, n: u64) -> u64 {
        let Some(before) = self.path.flight.settle(n, Fate::Acked) else { return 0 };
        self.stats.packets.acked += 1;
        if let Some(keys) = &mut self.security.keys {
            keys.sealing.on_acknowledged(n);
        }
        let mut freed = 0;
        if let Fate::Lost { cause, .. } = before.fate {
            if before.carried != Carried::SizeProbe {
                self.take_back(cause, before.bytes);
            }
            if n >= self.path.first {
                self.path.losses.on_spurious(cause, before.at, now, self.path.rtt.smoothed());
                if before.elicits && before.carried != Carried::SizeProbe {
                    self.path.rate.floor().on_spurious(n, before.bytes);
                }
            }
        } else if before.elicits {
            freed = u64::from(before.bytes);
        }
        if n >= self.path.first {
            self.path.losses.detector.on_acked(n, before.at, now);
        }
        let was_lost = matches!(before.fate, Fate::Lost { .. });
        self.tracer.record(now, || TraceEvent::PacketAcked { number: n, was_lost });
        self.carried_fate(now, n, &before, true);
        if before.carried == Carried::Control {
            // Credit is carried in FEEDBACK, which never shares a packet with a symbol.
            self.streams.on_credit_acked(n);
        }
        freed
    }

    /// A packet that was declared lost for this cause arrived after all.
    fn take_back(&mut self, cause: Cause, bytes: u32) {
        match cause {
            Cause::Medium => self.stats.packets.lost -= 1,
            Cause::OwnRate | Cause::Host => self.stats.loss.at_own_rate.take_back(bytes),
        }
    }

    /// Finds lost packets and settles them. The cause of a loss is what the rate controller knows now; what
    /// it finds out later changes no count.
    pub(super) fn detect_losses(&mut self, now: Time) {
        let mut lost = core::mem::take(&mut self.scratch.lost);
        lost.clear();
        self.path.losses.detector.detect(&mut self.path.flight, now, self.path.rtt.min(), &mut lost);
        let (mut bytes, mut newest) = (0, Time::ZERO);
        for sent in lost.iter().filter_map(|&n| self.path.flight.get(n)) {
            if sent.carried != Carried::SizeProbe {
                bytes += u64::from(sent.bytes);
                newest = newest.max(sent.at);
            }
        }
        if bytes > 0 {
            let persistent = is_persistent(&self.path.flight, &lost, self.path.rtt.persistent_span(MAX_FEEDBACK_DELAY));
            self.path.rate.on_loss(&LossSample { now, bytes, sent: newest, persistent });
        }
        let congested = !lost.is_empty() && self.path.rate.is_congested();
        for &n in &lost {
            let Some(sent) = self.path.flight.get(n).copied() else { continue };
            let counts = sent.carried != Carried::SizeProbe;
            let at_host = counts && self.path.losses.host.take();
            let at_own_rate = counts && (congested || at_host);
            if at_own_rate {
                let cause = if at_host { Cause::Host } else { Cause::OwnRate };
                self.path.flight.settle(n, Fate::Lost { at: now, cause });
                self.stats.loss.at_own_rate.add(sent.bytes);
            } else {
                self.stats.packets.lost += u64::from(sent.carried != Carried::SizeProbe);
            }
            let bytes = sent.bytes;
            self.tracer.record(now, || TraceEvent::PacketLost { number: n, bytes, at_own_rate });
            self.carried_fate(now, n, &sent, false);
        }
        self.scratch.lost = lost;
        self.path.tell_fates(now);
        if self.path.rate.floor().poll_overrun() {
            self.events.push_back(Event::Overrun);
        }
        self.path.forget_packets(now);
        self.leave_if_too_narrow(now);
    }

    /// Passes on whether a packet was received or lost, to the owner of its content.
    pub(super) fn carried_fate(&mut self, now: Time, n: u64, sent: &Sent<Data>, arrived: bool) {
        let udp = sent.payload_len();
        match sent.carried {
            Carried::Data(Data::Source { lane, id, again }) => {
                let Some(Lane { sender, policies, .. }) = self.lanes.get_mut(lane) else { return };
                if arrived {
                    sender.on_source_acked(id);
                } else if !again {
                    sender.on_source_lost(id);
                }
                if again {
                    sender.on_repair_settled(n, arrived);
                    policies.on_resent_settled(id, arrived);
                } else {
                    policies.on_source_settled(id, arrived);
                }
            }
            Carried::Data(Data::Repair { lane, .. }) => {
                let Some(Lane { sender, policies, .. }) = self.lanes.get_mut(lane) else { return };
                if let Some(repair) = sender.on_repair_settled(n, arrived) {
                    policies.on_repair_settled(&repair, arrived);
                }
            }
            Carried::Data(Data::Recoded { generation }) => {
                // A packet that arrives after it was declared lost was settled then.
                if !arrived || !matches!(sent.fate, Fate::Lost { .. }) {
                    self.on_recoded_settled(generation);
                }
            }
            Carried::Data(Data::Slice { lane, id, offset, .. }) => {
                let Some(Lane { sender, .. }) = self.lanes.get_mut(lane) else { return };
                sender.on_slice_settled(id, offset, n, arrived);
            }
            Carried::SizeProbe => {
                match arrived {
                    true => self.path.mtu.on_acked(sent.at, udp, now),
                    false => self.path.mtu.on_lost(sent.at, udp, now, self.path.rtt.smoothed()),
                }
                self.look_for_size();
            }
            Carried::Control => {
                self.agreed.asking.on_fate(n, arrived);
                self.addresses.ids.on_fate(n, arrived);
                self.security.rekey.on_fate(n, arrived);
            }
            Carried::Data(Data::Base { .. }) => {}
        }
        if let Carried::Data(Data::Source { lane, .. } | Data::Repair { lane, .. } | Data::Base { lane }) = sent.carried
            && !arrived
            && let Some(lane) = self.lanes.get_mut(lane)
        {
            lane.sender.on_packet_lost(n);
        }
    }

    /// Writes FEEDBACK. Returns whether it requests an acknowledgement, because it carries credit; `None` if
    /// there was no room.
    pub(super) fn write_feedback(&mut self, now: Time, number: u64, w: &mut Writer<'_>) -> Option<bool> {
        let rtt = self.path.rtt.smoothed();
        self.receiving.receiver.review(now, rtt);
        let inbound = self.receiving.inbound.values_mut().map(|inbound| &mut inbound.receiver);
        inbound.filter(|receiver| receiver.is_reportable()).for_each(|receiver| receiver.review(now, rtt));
        let (reports, count) = lane_reports(&self.receiving.receiver, &self.receiving.inbound);
        let lanes = &reports[..count];
        let credit = self.streams.has_unconfirmed();
        // A limit that moves constantly is confirmed once per round trip, not with every FEEDBACK.
        let elicits = credit && now.since(self.receiving.credit_asked) >= self.path.rtt.smoothed().max(CREDIT_PAUSE);
        let spent = crate::path::IP_UDP_HEADER + crate::wire::SHORT_HEADER_LEN + crate::wire::TAG_LEN;
        let earned = (self.receiving.unreported as f64 * RETURN_SHARE) as usize;
        let room = w.remaining().min(earned.saturating_sub(spent).max(LEAST_FEEDBACK));
        let tally = self.path.received.ecn();
        let ecn = tally.any().then_some(EcnCounts { ect0: tally.ect0, ect1: tally.ect1, ce: tally.ce });
        let received = self.path.received.ranges();
        let delay = self.path.received.delay(now);
        let arrival = Some(time_units(self.path.received.newest_at()));
        let mut frame = FeedbackRepr { received, delay, arrival, ecn, stream_credit: None, lanes, elicits };
        let most = w.remaining().saturating_sub(self.ranks_len()).min(MAX_FEEDBACK);
        let mut credit_len = 0;
        if credit {
            // Include as many limits as fit beside the mandatory part. A FEEDBACK that does not fit would
            // remain due for ever.
            let left = most.saturating_sub(frame.least_len() + CREDIT_HEAD);
            let (streams, limits) = self.streams.unconfirmed(left / LIMIT_LEN);
            credit_len = CREDIT_HEAD + LIMIT_LEN * limits.len();
            frame.stream_credit = Some(StreamCreditRepr { streams, limits });
        }
        let mut scratch = [0; MAX_FEEDBACK];
        let room = room + credit_len + LANE_REPORT * (lanes.len() - 1);
        let room = room.max(frame.least_len()).min(most);
        let mut inner = Writer::new(scratch.get_mut(..room)?);
        frame.emit(&mut inner).ok()?;
        w.bytes(inner.written()).ok()?;
        self.tracer.record(now, || TraceEvent::FeedbackSent {
            packet: number,
            deficit: lanes.iter().map(|report| report.deficit).sum(),
        });
        if credit {
            self.streams.on_credit_sent(number);
        }
        if elicits {
            self.receiving.credit_asked = now;
        }
        self.receiving.inbound.values_mut().for_each(|inbound| inbound.receiver.news = false);
        self.receiving.unreported = 0;
        self.path.feedback.on_sent(now);
        Some(elicits)
    }
}

/// Collects the lane reports: lane 0 always, the others if something is new or missing.
fn lane_reports<'a>(
    streams: &'a LaneReceiver,
    inbound: &'a BTreeMap<u32, Inbound>,
) -> ([LaneRepr<'a>; MAX_LANES], usize) {
    let mut reports = [streams.report(STREAMS); MAX_LANES];
    let mut count = 1;
    let others = inbound.iter().filter(|(_, inbound)| inbound.receiver.is_reportable());
    for (report, (&lane, inbound)) in reports.iter_mut().skip(1).zip(others) {
        *report = inbound.receiver.report(lane);
        count += 1;
    }
    (reports, count)
}

/// Bytes reserved for the report of each lane except the first, without runs and regions. Large numbers need
/// more.
const LANE_REPORT: usize = 21;
/// Maximum length of stream credit in FEEDBACK: the number of streams and of limits, and then each limit.
const CREDIT_HEAD: usize = 10;
const LIMIT_LEN: usize = 16;
/// Maximum length of FEEDBACK. With every range, run and limit at full length it fits the smallest datagram.
const MAX_FEEDBACK: usize = 1_100;
