//! The fields of each event (docs/recording.md, "Blocks of events"), once for both directions.
//!
//! [`put`] writes an event and [`take`] reads one. Both go over its fields with [`visit`]: reading begins
//! with a blank event of the tag and fills it in.

use core::net::SocketAddr;
use core::time::Duration;

use tidewire_codec::SourceId;
use tidewire_proto::connection::{CloseCode, CloseReason, LaneId, Side, StreamId};
use tidewire_proto::profile::Profile;
use tidewire_proto::redundancy::plan::{Conditions, Nearest, Plan, Planned, Target};
use tidewire_proto::trace::{Choices, PacketContent, SymbolOrigin, TraceEvent};

use super::axes;
use super::bytes::{Corrupt, Decoder, Encoder, Pass, Series};

const SENT: Series = Series(0);
const ACKED: Series = Series(1);
const LOST: Series = Series(2);
const RECEIVED: Series = Series(3);
const CARRIED: Series = Series(4);
const REPAIRED: Series = Series(5);
const PASSED: Series = Series(6);
const WINDOW: Series = Series(7);
const IN_FLIGHT: Series = Series(8);
const PACING: Series = Series(9);
/// The first of four, for the times of [`TraceEvent::Rate`].
const TIMES: usize = 10;
const FEEDBACK: Series = Series(14);
const EDGE: Series = Series(15);
const STREAM: Series = Series(16);

/// Writes an event, which has this tag.
pub(crate) fn put(encoder: &mut Encoder, event: &TraceEvent) {
    let visited = visit(&mut event.clone(), encoder);
    debug_assert_eq!(visited, Ok(()), "what was never read cannot be corrupt");
}

/// Reads the fields of the event with `tag`.
pub(crate) fn take(decoder: &mut Decoder<'_>, tag: u8) -> Result<TraceEvent, Corrupt> {
    let mut event = blank(tag).ok_or(Corrupt::Tag(tag))?;
    visit(&mut event, decoder)?;
    Ok(event)
}

/// The tag of an event; `None` if this version has none for it.
pub(crate) fn tag(event: &TraceEvent) -> Option<u8> {
    Some(match event {
        TraceEvent::Connected { .. } => 2,
        TraceEvent::Agreed(_) => 3,
        TraceEvent::Closed(_) => 4,
        TraceEvent::PacketSent { .. } => 5,
        TraceEvent::PacketAcked { .. } => 6,
        TraceEvent::PacketLost { .. } => 7,
        TraceEvent::PacketReceived { .. } => 8,
        TraceEvent::PacketRedundant { .. } => 9,
        TraceEvent::SymbolRepaired { .. } => 10,
        TraceEvent::SymbolPassed { .. } => 11,
        TraceEvent::Rate { .. } => 12,
        TraceEvent::Planned { .. } => 13,
        TraceEvent::FeedbackReceived { .. } => 14,
        TraceEvent::LaneReported { .. } => 15,
        TraceEvent::FeedbackSent { .. } => 16,
        TraceEvent::StreamWritten { .. } => 17,
        TraceEvent::MessageWritten { .. } => 18,
        TraceEvent::KeyUpdated => 19,
        TraceEvent::FreshKeys => 20,
        TraceEvent::Moved { .. } => 21,
        TraceEvent::StreamRead { .. } => 22,
        TraceEvent::MessageRead { .. } => 23,
        TraceEvent::RateState { .. } => 24,
        _ => return None,
    })
}

/// An event of this tag without content.
fn blank(tag: u8) -> Option<TraceEvent> {
    let (lane, id, content, none) = (LaneId(0), SourceId(0), PacketContent::Control, Duration::ZERO);
    let remote = SocketAddr::from(([0; 4], 0));
    Some(match tag {
        2 => TraceEvent::Connected { remote, side: Side::Initiator },
        3 => TraceEvent::Agreed(Choices {
            profile: Profile::default(),
            latency: None,
            deliver: 0.0,
            max_overhead: 0.0,
            max_rate: None,
        }),
        4 => TraceEvent::Closed(CloseReason::Local),
        5 => TraceEvent::PacketSent { number: 0, bytes: 0, content },
        6 => TraceEvent::PacketAcked { number: 0, was_lost: false },
        7 => TraceEvent::PacketLost { number: 0, bytes: 0, at_own_rate: false },
        8 => TraceEvent::PacketReceived { number: 0, bytes: 0, content },
        9 => TraceEvent::PacketRedundant { number: 0 },
        10 => TraceEvent::SymbolRepaired { lane, id, packet: 0 },
        11 => TraceEvent::SymbolPassed { lane, id, origin: SymbolOrigin::Direct, delay: none },
        12 => TraceEvent::Rate {
            window: 0,
            in_flight: 0,
            pacing_bps: 0,
            rtt: none,
            latest_rtt: none,
            least_rtt: none,
            queueing: none,
            loss: 0.0,
        },
        13 => TraceEvent::Planned { lane, planned: Planned::NONE },
        14 => TraceEvent::FeedbackReceived { packet: 0, delay: none },
        15 => TraceEvent::LaneReported { lane, edge: id, end: id, deficit: 0 },
        16 => TraceEvent::FeedbackSent { packet: 0, deficit: 0 },
        17 => TraceEvent::StreamWritten { stream: StreamId(0), bytes: 0, end: false },
        18 => TraceEvent::MessageWritten { lane, bytes: 0, lifetime: none, in_order: false },
        19 => TraceEvent::KeyUpdated,
        20 => TraceEvent::FreshKeys,
        21 => TraceEvent::Moved { remote },
        22 => TraceEvent::StreamRead { stream: StreamId(0), bytes: 0 },
        23 => TraceEvent::MessageRead { bytes: 0 },
        24 => TraceEvent::RateState { state: "".into() },
        _ => return None,
    })
}

/// Goes over the fields of an event.
fn visit<P: Pass>(event: &mut TraceEvent, pass: &mut P) -> Result<(), Corrupt> {
    match event {
        TraceEvent::Connected { remote, side } => {
            address(remote, pass)?;
            let mut accepted = *side == Side::Responder;
            pass.flag(&mut accepted)?;
            *side = if accepted { Side::Responder } else { Side::Initiator };
            Ok(())
        }
        TraceEvent::Agreed(choices) => visit_choices(choices, pass),
        TraceEvent::Closed(reason) => visit_reason(reason, pass),
        TraceEvent::Moved { remote } => address(remote, pass),
        TraceEvent::KeyUpdated | TraceEvent::FreshKeys => Ok(()),
        TraceEvent::Planned { lane, planned } => {
            visit_lane(lane, pass)?;
            visit_planned(planned, pass)
        }
        TraceEvent::StreamWritten { stream, bytes, end } => {
            pass.follow(STREAM, &mut stream.0)?;
            pass.number(bytes)?;
            pass.flag(end)
        }
        TraceEvent::MessageWritten { lane, bytes, lifetime, in_order } => {
            visit_lane(lane, pass)?;
            short(bytes, "bytes", pass)?;
            pass.time(lifetime)?;
            pass.flag(in_order)
        }
        TraceEvent::StreamRead { stream, bytes } => {
            pass.follow(STREAM, &mut stream.0)?;
            pass.number(bytes)
        }
        TraceEvent::MessageRead { bytes } => short(bytes, "bytes", pass),
        TraceEvent::SymbolRepaired { lane, id, packet } => {
            visit_lane(lane, pass)?;
            pass.follow(REPAIRED, &mut id.0)?;
            pass.follow(RECEIVED, packet)
        }
        TraceEvent::SymbolPassed { lane, id, origin, delay } => {
            visit_lane(lane, pass)?;
            pass.follow(PASSED, &mut id.0)?;
            choose(origin, &ORIGINS, "origin", pass)?;
            pass.time(delay)
        }
        _ => visit_packet(event, pass),
    }
}

/// Goes over the fields of an event about packets and their feedback.
fn visit_packet<P: Pass>(event: &mut TraceEvent, pass: &mut P) -> Result<(), Corrupt> {
    match event {
        TraceEvent::PacketSent { number, bytes, content } => {
            pass.follow(SENT, number)?;
            short(bytes, "bytes", pass)?;
            visit_content(content, pass)
        }
        TraceEvent::PacketAcked { number, was_lost } => {
            pass.follow(ACKED, number)?;
            pass.flag(was_lost)
        }
        TraceEvent::PacketLost { number, bytes, at_own_rate } => {
            pass.follow(LOST, number)?;
            short(bytes, "bytes", pass)?;
            pass.flag(at_own_rate)
        }
        TraceEvent::PacketReceived { number, bytes, content } => {
            pass.follow(RECEIVED, number)?;
            short(bytes, "bytes", pass)?;
            visit_content(content, pass)
        }
        TraceEvent::PacketRedundant { number } => pass.follow(RECEIVED, number),
        TraceEvent::Rate { window, in_flight, pacing_bps, rtt, latest_rtt, least_rtt, queueing, loss } => {
            pass.follow(WINDOW, window)?;
            pass.follow(IN_FLIGHT, in_flight)?;
            pass.follow(PACING, pacing_bps)?;
            for (series, time) in (TIMES..).map(Series).zip([rtt, latest_rtt, least_rtt, queueing]) {
                let mut micros = super::bytes::micros(*time);
                pass.follow(series, &mut micros)?;
                *time = Duration::from_micros(micros);
            }
            pass.short_float(loss)
        }
        TraceEvent::RateState { state } => pass.text(state.to_mut()),
        TraceEvent::FeedbackReceived { packet, delay } => {
            pass.follow(FEEDBACK, packet)?;
            pass.time(delay)
        }
        TraceEvent::LaneReported { lane, edge, end, deficit } => {
            visit_lane(lane, pass)?;
            pass.follow(EDGE, &mut edge.0)?;
            let mut beyond = end.0.saturating_sub(edge.0);
            pass.number(&mut beyond)?;
            end.0 = edge.0.saturating_add(beyond);
            pass.number(deficit)
        }
        TraceEvent::FeedbackSent { packet, deficit } => {
            pass.follow(SENT, packet)?;
            pass.number(deficit)
        }
        _ => Ok(()),
    }
}

const ORIGINS: [SymbolOrigin; 4] =
    [SymbolOrigin::Direct, SymbolOrigin::Resent, SymbolOrigin::Repaired, SymbolOrigin::GivenUp];

/// A value as its place in a list.
pub(crate) fn choose<T: Copy + PartialEq, P: Pass>(
    value: &mut T,
    all: &[T],
    field: &'static str,
    pass: &mut P,
) -> Result<(), Corrupt> {
    let mut place = all.iter().position(|known| known == value).unwrap_or(0) as u8;
    pass.byte(&mut place)?;
    *value = *all.get(usize::from(place)).ok_or(Corrupt::Value(field))?;
    Ok(())
}

fn short<P: Pass>(value: &mut u32, field: &'static str, pass: &mut P) -> Result<(), Corrupt> {
    let mut number = u64::from(*value);
    pass.number(&mut number)?;
    *value = u32::try_from(number).map_err(|_| Corrupt::Value(field))?;
    Ok(())
}

fn visit_lane<P: Pass>(lane: &mut LaneId, pass: &mut P) -> Result<(), Corrupt> {
    short(&mut lane.0, "lane", pass)
}

fn address<P: Pass>(address: &mut SocketAddr, pass: &mut P) -> Result<(), Corrupt> {
    let mut text = address.to_string();
    pass.text(&mut text)?;
    *address = text.parse().map_err(|_| Corrupt::Value("address"))?;
    Ok(())
}

/// Something that may be missing. `blank` is what a reader fills in.
pub(crate) fn optional<T, P: Pass>(
    value: &mut Option<T>,
    blank: impl FnOnce() -> T,
    pass: &mut P,
    visit: impl FnOnce(&mut T, &mut P) -> Result<(), Corrupt>,
) -> Result<(), Corrupt> {
    let mut is_there = value.is_some();
    pass.flag(&mut is_there)?;
    if !is_there {
        *value = None;
        return Ok(());
    }
    visit(value.get_or_insert_with(blank), pass)
}

fn visit_content<P: Pass>(content: &mut PacketContent, pass: &mut P) -> Result<(), Corrupt> {
    let mut kind = match content {
        PacketContent::SizeProbe => 1,
        PacketContent::Base { .. } => 2,
        PacketContent::Source { again, .. } => 3 + u8::from(*again),
        PacketContent::Repair { on_feedback, .. } => 5 + u8::from(*on_feedback),
        PacketContent::Recoded { .. } => 7,
        _ => 0,
    };
    pass.byte(&mut kind)?;
    let (mut lane, mut id, mut count, mut generation) = match *content {
        PacketContent::Base { lane } => (lane, SourceId(0), 0, 0),
        PacketContent::Source { lane, id, .. } => (lane, id, 0, 0),
        PacketContent::Repair { lane, first, count, .. } => (lane, first, u32::from(count), 0),
        PacketContent::Recoded { generation } => (LaneId(0), SourceId(0), 0, generation),
        _ => (LaneId(0), SourceId(0), 0, 0),
    };
    if (2..7).contains(&kind) {
        visit_lane(&mut lane, pass)?;
    }
    if (3..7).contains(&kind) {
        pass.follow(CARRIED, &mut id.0)?;
    }
    *content = match kind {
        0 => PacketContent::Control,
        1 => PacketContent::SizeProbe,
        2 => PacketContent::Base { lane },
        3 | 4 => PacketContent::Source { lane, id, again: kind == 4 },
        5 | 6 => {
            short(&mut count, "count", pass)?;
            let count = u16::try_from(count).map_err(|_| Corrupt::Value("count"))?;
            PacketContent::Repair { lane, first: id, count, on_feedback: kind == 6 }
        }
        7 => {
            pass.number(&mut generation)?;
            PacketContent::Recoded { generation }
        }
        _ => return Err(Corrupt::Value("content")),
    };
    Ok(())
}

fn visit_choices<P: Pass>(choices: &mut Choices, pass: &mut P) -> Result<(), Corrupt> {
    axes::visit(&mut choices.profile, pass)?;
    optional(&mut choices.latency, || Duration::ZERO, pass, |latency, pass| pass.time(latency))?;
    pass.float(&mut choices.deliver)?;
    pass.float(&mut choices.max_overhead)?;
    optional(&mut choices.max_rate, || 0, pass, |rate, pass| pass.number(rate))
}

fn visit_planned<P: Pass>(planned: &mut Planned, pass: &mut P) -> Result<(), Corrupt> {
    pass.float(&mut planned.share)?;
    pass.flag(&mut planned.saturated)?;
    let none = || {
        let target = Target { latency: Duration::ZERO, deliver: 0.0, max_overhead: 0.0 };
        let conditions = Conditions { loss: 0.0, burst: 0.0, rtt: Duration::ZERO, interval: Duration::ZERO };
        Plan::restored(target, conditions, 0.0, 0.0, None)
    };
    optional(&mut planned.plan, none, pass, |plan, pass| {
        pass.flag(&mut plan.stated)?;
        pass.time(&mut plan.target.latency)?;
        pass.float(&mut plan.target.deliver)?;
        pass.float(&mut plan.target.max_overhead)?;
        pass.float(&mut plan.conditions.loss)?;
        pass.float(&mut plan.conditions.burst)?;
        pass.time(&mut plan.conditions.rtt)?;
        pass.time(&mut plan.conditions.interval)?;
        pass.float(&mut plan.share)?;
        pass.float(&mut plan.late)?;
        let none = || Nearest { latency: Duration::ZERO, deliver: 0.0, max_overhead: None };
        optional(&mut plan.nearest, none, pass, |nearest, pass| {
            pass.time(&mut nearest.latency)?;
            pass.float(&mut nearest.deliver)?;
            optional(&mut nearest.max_overhead, || 0.0, pass, |cap, pass| pass.float(cap))
        })
    })
}

/// Codes of a CLOSE as numbers, those of applications beside them.
const CODES: [CloseCode; 9] = [
    CloseCode::Done,
    CloseCode::Malformed,
    CloseCode::Protocol,
    CloseCode::FlowControl,
    CloseCode::TooManyStreams,
    CloseCode::Internal,
    CloseCode::Refused,
    CloseCode::Polluted,
    CloseCode::PathTooNarrow,
];

fn visit_code<P: Pass>(code: &mut CloseCode, pass: &mut P) -> Result<(), Corrupt> {
    let mut number = match *code {
        CloseCode::Application(code) => code.max(256),
        known => CODES.iter().position(|code| *code == known).unwrap_or(0) as u64,
    };
    pass.number(&mut number)?;
    *code = match CODES.get(usize::try_from(number).unwrap_or(usize::MAX)) {
        Some(code) => *code,
        None if number >= 256 => CloseCode::Application(number),
        None => return Err(Corrupt::Value("close code")),
    };
    Ok(())
}

fn visit_reason<P: Pass>(reason: &mut CloseReason, pass: &mut P) -> Result<(), Corrupt> {
    let mut is_of_hop = matches!(reason, CloseReason::Hop(_));
    pass.flag(&mut is_of_hop)?;
    if !is_of_hop {
        return visit_own_reason(reason, pass);
    }
    // A hop itself runs over no other.
    let mut inner = if let CloseReason::Hop(inner) = reason { (**inner).clone() } else { CloseReason::Local };
    visit_own_reason(&mut inner, pass)?;
    *reason = CloseReason::Hop(Box::new(inner));
    Ok(())
}

fn visit_own_reason<P: Pass>(reason: &mut CloseReason, pass: &mut P) -> Result<(), Corrupt> {
    let mut kind = match reason {
        CloseReason::Peer { .. } => 1,
        CloseReason::Fault(_) => 2,
        CloseReason::Idle => 3,
        CloseReason::Forgotten => 4,
        CloseReason::NoAnswer => 5,
        CloseReason::UnknownCode(_) => 6,
        CloseReason::KeyExhausted => 7,
        CloseReason::Polluted(_) => 8,
        CloseReason::PathTooNarrow { .. } => 9,
        _ => 0,
    };
    pass.byte(&mut kind)?;
    let (mut code, mut text) = match reason {
        CloseReason::Peer { code, reason } => (*code, reason.clone()),
        CloseReason::Fault(code) => (*code, String::new()),
        CloseReason::UnknownCode(name) => (CloseCode::Done, (*name).to_owned()),
        CloseReason::Polluted(suspects) => (CloseCode::Done, suspects.clone()),
        _ => (CloseCode::Done, String::new()),
    };
    if matches!(kind, 1 | 2) {
        visit_code(&mut code, pass)?;
    }
    if matches!(kind, 1 | 6 | 8) {
        pass.text(&mut text)?;
    }
    let mut sizes = match reason {
        CloseReason::PathTooNarrow { carries, needed } => [*carries, *needed].map(u64::from),
        _ => [0; 2],
    };
    if kind == 9 {
        sizes.iter_mut().try_for_each(|size| pass.number(size))?;
    }
    let [carries, needed] = sizes.map(|size| u16::try_from(size).unwrap_or(u16::MAX));
    *reason = match kind {
        0 => CloseReason::Local,
        1 => CloseReason::Peer { code, reason: text },
        2 => CloseReason::Fault(code),
        3 => CloseReason::Idle,
        4 => CloseReason::Forgotten,
        5 => CloseReason::NoAnswer,
        6 => CloseReason::UnknownCode(axes::code_named(&text)),
        7 => CloseReason::KeyExhausted,
        8 => CloseReason::Polluted(text),
        9 => CloseReason::PathTooNarrow { carries, needed },
        _ => return Err(Corrupt::Value("close reason")),
    };
    Ok(())
}
