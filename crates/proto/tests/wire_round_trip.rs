//! Property test: `parse(emit(x)) == x` for every packet and frame.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tidewire_codec::{Code, RepairId, SourceId};
use tidewire_proto::wire::{Layout, *};

/// Values of every varint length, and the limits of each length.
fn varint() -> impl Strategy<Value = u64> {
    prop_oneof![0..=0x3f_u64, 0x3e..=0x4001_u64, 0x3ffe..=0x4000_0001_u64, 0..=VARINT_MAX, Just(VARINT_MAX)]
}

/// One frame, together with the data that it borrows.
#[derive(Clone, Debug)]
struct Parts {
    numbers: [u64; 3],
    lane: u32,
    text: String,
    bytes: Vec<u8>,
    eight: [u8; 8],
    span: u16,
    key: u16,
    flag: bool,
}

fn parts() -> impl Strategy<Value = Parts> {
    (
        [varint(), varint(), varint()],
        any::<u32>(),
        "\\PC{0,64}",
        vec(any::<u8>(), 1..300),
        any::<[u8; 8]>(),
        1..=1024_u16,
        any::<u16>(),
        any::<bool>(),
    )
        .prop_map(|(numbers, lane, text, bytes, eight, span, key, flag)| Parts {
            numbers,
            lane,
            text,
            bytes,
            eight,
            span,
            key,
            flag,
        })
}

impl Parts {
    fn layout(&self) -> Layout {
        if self.flag { Layout::Generations } else { Layout::Sliding }
    }
}

/// Every frame except FEEDBACK, which has its own test, built from `p`. RECODED, SRC and REPAIR come last
/// because they end the packet.
fn frames(p: &Parts) -> Vec<Frame<'_>> {
    let [a, b, c] = p.numbers;
    let first = a.min(VARINT_MAX - 1024);
    vec![
        Frame::Ping,
        Frame::Close { code: b, reason: &p.text },
        Frame::Policy(&p.text),
        Frame::PathChallenge(p.eight),
        Frame::PathResponse(p.eight),
        Frame::NewCid { sequence: a.max(b), retire: a.min(b), path: p.lane, id: ConnectionId(p.eight) },
        Frame::Slice {
            lane: p.lane,
            layout: p.layout(),
            id: SourceId(a),
            offset: (c % 60_000) as usize,
            total: (c % 60_000) as usize + p.bytes.len(),
            bytes: &p.bytes,
        },
        Frame::Rekey { number: a, message: &p.bytes[..p.bytes.len().min(256)] },
        Frame::Base { lane: p.lane, base: SourceId(c) },
        Frame::Train((a % u64::from(MAX_TRAIN - 1)) as u16 + 2),
        Frame::HostDrops(b),
        Frame::TrainReport(TrainReport {
            first: a,
            distance: (b % u64::from(MAX_TRAIN - 1)) as u16 + 1,
            arrival: p.lane,
            span: Duration::from_micros(c),
        }),
        Frame::Ranks(Ranks { edge: a, room: b, ranks: &p.bytes[..p.bytes.len().min(128)] }),
        Frame::Recoded(Recoded {
            relays: p.eight[0],
            generation: a,
            length: p.eight[1],
            vector: &p.bytes[..p.bytes.len().min(64)],
            symbol: &p.bytes,
        }),
        Frame::Source {
            lane: p.lane,
            layout: p.layout(),
            id: SourceId(a),
            base: SourceId(a - b.min(a)),
            again: p.flag,
            symbol: &p.bytes,
        },
        Frame::Repair {
            lane: p.lane,
            layout: p.layout(),
            code: codes()[p.eight[0] as usize % codes().len()],
            id: RepairId { first: SourceId(first), count: p.span, key: p.key },
            base: SourceId(first - b.min(first)),
            on_feedback: p.flag,
            symbol: &p.bytes,
        },
    ]
}

/// Ranges from `(gap, length)` pairs, downward from the top.
fn ranges(mut top: u64, pairs: &[(u64, u64)]) -> Vec<RangeInclusive<u64>> {
    let mut ranges = Vec::new();
    for (gap, length) in pairs {
        let Some(low) = top.checked_sub(*length) else { break };
        ranges.push(low..=top);
        let Some(next) = low.checked_sub(gap + 2) else { break };
        top = next;
    }
    ranges
}

/// Runs from `(gap, length)` pairs, upward from the edge, and one past the last.
fn runs(edge: u64, pairs: &[(u64, u64)]) -> (Vec<Range<SourceId>>, u64) {
    let mut runs = Vec::new();
    let mut next = edge;
    for (gap, length) in pairs {
        let (start, end) = (next + gap, next + gap + length + 1);
        runs.push(SourceId(start)..SourceId(end));
        next = end + 1;
    }
    (runs.clone(), runs.last().map_or(edge, |run| run.end.0))
}

/// Adjacent regions of these lengths from `start` up, each with a deficit of at most its length.
fn adjacent(start: u64, lengths: &[(u64, u64)]) -> Vec<(Range<SourceId>, u64)> {
    let mut next = start;
    let mut region = |&(length, deficit): &(u64, u64)| {
        let ids = SourceId(next)..SourceId(next + length);
        next += length;
        (ids, deficit.min(length))
    };
    lengths.iter().map(&mut region).collect()
}

/// Codes with parameters of all lengths.
const fn codes() -> [Code; 6] {
    [
        Code::Rlc,
        Code::Cauchy,
        Code::Lt { c_milli: 1, delta_milli: 1_000 },
        Code::Lt { c_milli: 64, delta_milli: 63 },
        Code::SemiRandomLt { degree: 63 },
        Code::SemiRandomLt { degree: 1_024 },
    ]
}

proptest! {
    #[test]
    fn varints(value in varint(), cut in 0_usize..8) {
        let mut buffer = [0; 8];
        let mut w = Writer::new(&mut buffer);
        w.varint(value).unwrap();
        prop_assert_eq!(w.len(), varint_len(value));
        let written = w.written().to_vec();
        prop_assert_eq!(Reader::new(&written).varint(), Ok(value));
        if cut < written.len() {
            prop_assert_eq!(Reader::new(&written[..cut]).varint(), Err(Truncated));
            let mut short = [0; 8];
            let mut w = Writer::new(&mut short[..cut]);
            prop_assert_eq!(w.varint(value), Err(Full));
            prop_assert_eq!(w.len(), 0);
        }
    }

    #[test]
    fn every_frame_alone(p in parts(), cut in any::<prop::sample::Index>()) {
        for frame in frames(&p) {
            let mut buffer = vec![0; 1200];
            let mut w = Writer::new(&mut buffer);
            frame.emit(&mut w).unwrap();
            let written = w.written().to_vec();
            let back: Vec<_> = Frames::new(&written).collect();
            prop_assert_eq!(&back, &[Ok(frame)]);
            // Nothing is written if there is no room for the last byte.
            let mut w = Writer::new(&mut buffer[..cut.index(written.len())]);
            prop_assert_eq!(frame.emit(&mut w), Err(Full));
            prop_assert_eq!(w.len(), 0);
        }
    }

    #[test]
    fn every_frame_in_one_packet(p in parts(), q in parts(), grease in any::<u16>()) {
        let mut list = frames(&p);
        list.truncate(list.len() - 3);
        let last = list.len() + usize::from(q.eight[2] % 3);
        list.push(frames(&q)[last]);
        let mut buffer = vec![0; 4000];
        let mut w = Writer::new(&mut buffer);
        for frame in &list {
            pad(&mut w, 0);
            write_grease(&mut w, grease, &p.eight).unwrap();
            frame.emit(&mut w).unwrap();
        }
        let back: Result<Vec<_>, _> = Frames::new(w.written()).collect();
        prop_assert_eq!(back, Ok(list));
    }

    #[test]
    fn header_lengths_are_what_is_written(lane: u32, id in varint(), back in varint(), span in 1..=1024_u16, key: u16) {
        for (layout, code) in [Layout::Sliding, Layout::Generations].into_iter().flat_map(|l| codes().map(|code| (l, code))) {
        let id = id.min(VARINT_MAX - 1024);
        let (id, base) = (SourceId(id), SourceId(id - back.min(id)));
        let mut buffer = [0; 64];
        let mut w = Writer::new(&mut buffer);
        write_source_header(&mut w, lane, layout, id, base, false).unwrap();
        prop_assert_eq!(w.len(), source_header_len(lane, id, base));
        let mut w = Writer::new(&mut buffer);
        let repair = RepairId { first: id, count: span, key };
        write_repair_header(&mut w, lane, layout, code, repair, base, true).unwrap();
        prop_assert_eq!(w.len(), repair_header_len(lane, layout, code, repair, base));
        }
    }

    #[test]
    fn feedback(
        top in varint().prop_map(|top| top.min(VARINT_MAX - 1)),
        pairs in vec((0..300_u64, 0..300_u64), 0..80),
        delay in 0..1_u64 << 40,
        arrival in prop::option::of(0..TIME_MODULUS),
        ecn in any::<Option<(u32, u32, u32)>>(),
        limits in prop::option::of(vec((varint(), varint()), 0..70)),
        lanes in vec((any::<u32>(), 0..1_u64 << 50, vec((0..300_u64, 0..300_u64), 0..40), 0..500_u64), 0..18),
        lengths in vec((1..600_u64, 0..600_u64), 0..70),
        elicits: bool,
        room in 0..6000_usize,
    ) {
        let received = ranges(top, &pairs);
        let undecoded: Vec<_> = lanes.iter().map(|(_, edge, pairs, _)| runs(*edge, pairs)).collect();
        let regions: Vec<_> = undecoded.iter().map(|(_, end)| adjacent(*end, &lengths)).collect();
        let lanes: Vec<_> = lanes
            .iter()
            .zip(&undecoded)
            .zip(&regions)
            .map(|(((lane, edge, _, credit), (runs, end)), regions)| LaneRepr {
                lane: *lane,
                edge: SourceId(*edge),
                end: SourceId(*end),
                deficit: (end - edge) / 2,
                limit: SourceId(edge + credit),
                undecoded: runs,
                regions,
            })
            .collect();
        let repr = FeedbackRepr {
            received: &received,
            delay: Duration::from_micros(delay),
            arrival,
            ecn: ecn.map(|(a, b, c)| EcnCounts { ect0: a.into(), ect1: b.into(), ce: c.into() }),
            stream_credit: limits.as_ref().map(|limits| StreamCreditRepr { streams: top, limits }),
            lanes: &lanes,
            elicits,
        };
        let mut buffer = vec![0; room];
        let mut w = Writer::new(&mut buffer);
        if repr.emit(&mut w).is_err() {
            prop_assert_eq!(w.len(), 0);
            prop_assert!(room < 4000, "a frame without ranges and runs is shorter than that");
            return Ok(());
        }
        let mut frames = Frames::new(w.written());
        let Some(Ok(Frame::Feedback(back))) = frames.next() else { panic!("not a feedback") };
        prop_assert!(frames.next().is_none());
        let mut again = vec![0; room];
        let mut second = Writer::new(&mut again);
        Frame::Feedback(back).emit(&mut second).unwrap();
        prop_assert_eq!(second.written(), w.written());

        prop_assert_eq!(back.largest(), received.first().map(|r| *r.end()));
        prop_assert_eq!(back.delay(), Duration::from_micros(delay / 16 * 16));
        prop_assert_eq!(back.arrival(), arrival.filter(|_| !received.is_empty()));
        prop_assert_eq!(back.ecn(), repr.ecn);
        prop_assert_eq!(back.elicits(), elicits);
        let shown: Vec<_> = back.received().collect();
        prop_assert_eq!(&shown[..], &received[..shown.len()]);
        prop_assert_eq!(shown.is_empty(), received.is_empty());
        let said = back.stream_credit().map(|(streams, limits)| (streams, limits.collect::<Vec<_>>()));
        let meant = limits.map(|limits| (top, limits.into_iter().take(64).collect::<Vec<_>>()));
        prop_assert_eq!(said, meant);
        prop_assert_eq!(back.lanes().count(), lanes.len().min(16));
        let mut whole = shown.len() == received.len().min(63);
        for (said, meant) in back.lanes().zip(&lanes) {
            prop_assert_eq!((said.lane, said.edge, said.limit), (meant.lane, meant.edge, meant.limit));
            let (end, deficit) = (said.end, said.deficit);
            let shown: Vec<_> = said.undecoded.collect();
            prop_assert_eq!(&shown[..], &meant.undecoded[..shown.len()]);
            // The report does not cover ids after the last run shown, unless all runs are shown.
            let cut = shown.len() < meant.undecoded.len();
            prop_assert_eq!(end, if cut { shown.last().map_or(meant.edge, |run| run.end) } else { meant.end });
            prop_assert_eq!(deficit, meant.deficit.min(end.0 - meant.edge.0));
            whole &= shown.len() == meant.undecoded.len().min(32);
            let regions: Vec<_> = said.regions.collect();
            prop_assert!(regions.is_empty() || !cut);
            prop_assert_eq!(&regions[..], &meant.regions[..regions.len()]);
            whole &= cut || regions.len() == meant.regions.len().min(63);
        }
        // Parts are omitted only for lack of room: neither a gap of 8 bytes nor a length of 8 bytes would
        // still fit.
        prop_assert!(whole || w.remaining() < room / 2 + 16, "{} of {room} left", w.remaining());
    }

    #[test]
    fn symbols(p in parts(), extra in 0..50_usize, time in 0..TIME_MODULUS) {
        let [a, b, c] = p.numbers;
        let list = [
            SymbolFrame::Stop { stream: a, code: b },
            SymbolFrame::Reset { stream: c, code: a, last: b },
            SymbolFrame::Message { begins: p.flag, ends: a % 2 == 0, in_order: b % 2 == 0, data: &p.bytes },
            SymbolFrame::Stream { stream: a, offset: b.min(VARINT_MAX - 400), fin: p.flag, data: &p.bytes, data_at: 0 },
        ];
        let mut symbol = vec![0; 2000];
        let mut w = Writer::resume(&mut symbol, SYMBOL_HEADER_LEN);
        for frame in &list {
            frame.emit(&mut w).unwrap();
        }
        let length = w.len();
        SymbolHeader { length: length as u16, time }.emit(&mut symbol).unwrap();
        symbol.truncate(length + extra);
        let (header, frames) = SymbolFrames::new(&symbol).unwrap();
        prop_assert_eq!(header, SymbolHeader { length: length as u16, time });
        let back: Vec<_> = frames.collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(back.len(), 4);
        prop_assert_eq!(&back[..3], &list[..3]);
        let SymbolFrame::Stream { stream, offset, fin, data, data_at } = back[3] else { panic!() };
        prop_assert_eq!((stream, offset, fin, data), (a, b.min(VARINT_MAX - 400), p.flag, &p.bytes[..]));
        prop_assert_eq!(&symbol[data_at..data_at + data.len()], data);
    }

    #[test]
    fn open_streams_grow(chunks in vec((0..3_u64, vec(any::<u8>(), 0..60)), 1..30), size in 20..900_usize) {
        let mut symbol = vec![0; size];
        let mut len = SYMBOL_HEADER_LEN;
        let mut open: Option<OpenStream> = None;
        let mut wrote = vec![Vec::new(); 3];
        for (stream, chunk) in &chunks {
            let sent = &mut wrote[*stream as usize];
            let mut w = Writer::resume(&mut symbol, len);
            let mut frame = match open {
                Some(frame) if frame.continues(*stream, sent.len() as u64) => frame,
                _ => match OpenStream::begin(&mut w, *stream, sent.len() as u64) {
                    Ok(frame) => frame,
                    Err(Full) => break,
                },
            };
            let taken = frame.append(&mut w, chunk);
            sent.extend_from_slice(&chunk[..taken]);
            open = Some(frame);
            len = w.len();
        }
        let mut w = Writer::resume(&mut symbol, len);
        if let Some(frame) = &mut open {
            frame.finish(&mut w);
        }
        SymbolHeader { length: len as u16, time: 0 }.emit(&mut symbol).unwrap();
        let (_, frames) = SymbolFrames::new(&symbol).unwrap();
        let mut read = vec![Vec::new(); 3];
        let mut fins = Vec::new();
        for frame in frames {
            let Ok(SymbolFrame::Stream { stream, offset, fin, data, .. }) = frame else { panic!("{frame:?}") };
            prop_assert_eq!(offset, read[stream as usize].len() as u64);
            read[stream as usize].extend_from_slice(data);
            fins.push(fin);
        }
        prop_assert_eq!(read, wrote);
        prop_assert_eq!(fins.iter().filter(|fin| **fin).count(), usize::from(open.is_some()));
        prop_assert_eq!(fins.last().copied().unwrap_or_default(), open.is_some());
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in vec(any::<u8>(), 0..400)) {
        let _ = Datagram::parse(&bytes);
        let found: Vec<_> = Frames::new(&bytes).collect();
        // An error ends the iteration and its offset lies inside the packet.
        for (index, frame) in found.iter().enumerate() {
            if let Err(error) = frame {
                prop_assert_eq!(index + 1, found.len());
                prop_assert!(error.offset < bytes.len());
            }
        }
        // A parsed frame can be written again with the same meaning.
        let mut buffer = vec![0; 4000];
        let mut w = Writer::new(&mut buffer);
        let good: Vec<_> = found.iter().flatten().copied().collect();
        for frame in &good {
            frame.emit(&mut w).unwrap();
        }
        let back: Result<Vec<_>, _> = Frames::new(w.written()).collect();
        prop_assert_eq!(back, Ok(good));
        if let Ok((_, frames)) = SymbolFrames::new(&bytes) {
            frames.for_each(drop);
        }
    }
}

#[test]
fn the_stream_length_limit_starts_a_new_frame() {
    let mut symbol = vec![0; 40_000];
    let mut w = Writer::resume(&mut symbol, SYMBOL_HEADER_LEN);
    let mut frame = OpenStream::begin(&mut w, 0, 0).unwrap();
    let data = vec![7; 20_000];
    let taken = frame.append(&mut w, &data);
    assert_eq!(taken, 16_383, "the largest varint of two bytes");
    assert!(!frame.continues(0, taken as u64));
    let mut next = OpenStream::begin(&mut w, 0, taken as u64).unwrap();
    assert_eq!(next.append(&mut w, &data[taken..]), 20_000 - taken);
}
