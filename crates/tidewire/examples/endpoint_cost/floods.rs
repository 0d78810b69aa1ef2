//! Datagrams full of frames that a hostile peer may send at any time.
//!
//! `hostile` times each of them without a socket, `sockets` sends them to a real endpoint beside an honest
//! connection. The peer acknowledges nothing.

use tidewire_codec::{Code, Encoder, Generation, RepairId, SourceId};
use tidewire_proto::wire::{
    ConnectionId, Frame, Layout, SYMBOL_HEADER_LEN, SymbolFrame, SymbolHeader, TAG_LEN, Writer,
};

/// Bytes of a packet that frames may fill.
const ROOM: usize = 1_400;
/// Symbols of a span, all lost, and how many repairs of them come before the symbols themselves.
const SPAN: u64 = 256;
const REPAIRS: u64 = 200;

/// Spans that overlap by half: how far each begins above the one before, how many there are, and repairs of
/// each. All symbols are lost, so that the matrix is full (1,024 rows) and rows mention symbols of the spans
/// below.
const CHAIN: (u64, u64, u64) = (128, 15, 64);
/// Symbols that come before the chain, so that the receiver's credit covers it.
const CREDIT: u64 = 24_000;

/// Generations that are open at once: half of those for which a receiver gives credit.
const OPEN: usize = 8_000;

/// Writes the frames of the nth datagram.
pub type Frames = Box<dyn FnMut(usize, &mut Writer<'_>) + Send>;

/// Every flood with its name.
pub fn all() -> Vec<(&'static str, Frames)> {
    vec![
        ("PING", Box::new(|_, w| Frame::Ping.emit(w).expect("room"))),
        ("PATH_CHALLENGE, 150 in a packet", Box::new(|_, w| fill(w, |_| Frame::PathChallenge([7; 8])))),
        ("BASE, 450 in a packet", Box::new(|_, w| fill(w, |_| Frame::Base { lane: 1, base: SourceId(0) }))),
        ("NEW_CID, 60 in a packet", Box::new(new_cids)),
        ("SLICE of 256 bytes, five in a packet", Box::new(slices)),
        ("a byte of a stream in order", Box::new(|n, w| source(w, n as u64, &symbol(1, |_| byte(0, n))))),
        ("16 bytes amid a stream", Box::new(amid)),
        (
            "120 bytes of 60 streams",
            Box::new(|n, w| source(w, n as u64, &symbol(120, |k| byte(k % 60, n * 2 + k / 60)))),
        ),
        ("250 empty frames of streams", Box::new(|n, w| source(w, n as u64, &symbol(250, |k| empty(k % 60))))),
        ("repairs over 256 symbols of 20 bytes", decoding(&[1; 1])),
        ("repairs over 256 symbols of 1,200 bytes", decoding(&[1; 1_200])),
        ("repairs over a chain of spans", chain()),
        ("generations of 256 symbols in rlc16", generations(Code::Rlc16, 256)),
        ("generations of 127 symbols in cauchy", generations(Code::Cauchy, 127)),
        ("8,000 open generations of 2 symbols", halves()),
    ]
}

fn byte(stream: usize, offset: usize) -> SymbolFrame<'static> {
    SymbolFrame::Stream { stream: 2 * stream as u64, offset: offset as u64, fin: false, data: b"x", data_at: 0 }
}

fn empty(stream: usize) -> SymbolFrame<'static> {
    SymbolFrame::Stream { stream: 2 * stream as u64, offset: 0, fin: false, data: b"", data_at: 0 }
}

/// Each retires the one before.
fn new_cids(n: usize, w: &mut Writer<'_>) {
    for k in 0..60 {
        let sequence = (n * 60 + k + 1) as u64;
        let id = ConnectionId((sequence << 8).to_be_bytes());
        Frame::NewCid { sequence, retire: sequence, path: 0, id }.emit(w).expect("room");
    }
}

/// The shortest parts that are allowed, three of five of each symbol.
fn slices(n: usize, w: &mut Writer<'_>) {
    let (lane, total, bytes) = (0, 1_200, &[0; 256]);
    fill(w, |k| {
        let part = 5 * n + k;
        let (id, offset) = (SourceId(1 + part as u64 % 60), 256 * (part / 60 % 3));
        Frame::Slice { lane, layout: Layout::Sliding, id, offset, total, bytes }
    });
}

/// Symbol 0 is missing; the credit of a new connection is 256 symbols.
fn amid(n: usize, w: &mut Writer<'_>) {
    let id = n % 255 + 1;
    source(w, id as u64, &symbol(16, |k| byte(0, 1 + 2 * (id * 16 + k) * 7 % 8_192)));
}

/// Spans that are lost whole: repairs of each, then the symbols themselves, the last first, until the rest is
/// decoded at once. `data`: of each symbol.
fn decoding(data: &'static [u8]) -> Frames {
    let mut encoder = Encoder::new(ROOM, 2 * SPAN as usize);
    Box::new(move |n, w| {
        let (first, turn) = (n as u64 / SPAN * SPAN, n as u64 % SPAN);
        encoder.release_before(SourceId(first));
        for id in encoder.window().end.0..first + SPAN {
            let offset = id * data.len() as u64;
            let frame = SymbolFrame::Stream { stream: 0, offset, fin: false, data, data_at: 0 };
            encoder.push(&symbol(1, |_| frame)).expect("room");
        }
        if turn >= REPAIRS {
            let id = SourceId(first + SPAN - 1 - (turn - REPAIRS));
            return source(w, id.0, encoder.symbol(id).expect("held"));
        }
        let mut out = [0; ROOM];
        let id = RepairId { first: SourceId(first), count: SPAN as u16, key: n as u16 };
        let len = encoder.write_repair(Code::Rlc, id, &mut out).expect("held");
        repair(w, Layout::Sliding, Code::Rlc, id, SourceId(first), &out[..len]);
    })
}

/// Spans that overlap, all of them lost, then their symbols, the lowest first: each changes every row of the
/// matrix.
fn chain() -> Frames {
    let (step, spans, repairs) = CHAIN;
    let (length, turns) = (step * (spans + 1), spans * repairs + step * (spans + 1));
    let mut encoder = Encoder::new(ROOM, 2 * length as usize);
    Box::new(move |n, w| {
        let Some(n) = (n as u64).checked_sub(CREDIT) else { return source(w, n as u64, &one_byte(n as u64)) };
        let (first, turn) = (CREDIT + n / turns * length, n % turns);
        let Some(at) = turn.checked_sub(spans * repairs) else {
            let id = RepairId { first: SourceId(first + turn / repairs * step), count: SPAN as u16, key: turn as u16 };
            while encoder.window().end.0 < first + length {
                let next = encoder.window().end;
                encoder.push(&one_byte(next.0)).expect("room");
                encoder.release_before(SourceId(first.min(next.0)));
            }
            let mut out = [0; ROOM];
            let len = encoder.write_repair(Code::Rlc, id, &mut out).expect("held");
            return repair(w, Layout::Sliding, Code::Rlc, id, SourceId(first), &out[..len]);
        };
        source(w, first + at, &one_byte(first + at));
    })
}

/// Generations of which no symbol comes, but as many repairs.
fn generations(code: Code, count: u16) -> Frames {
    let mut repairs = vec![vec![0; 64]; count.into()];
    Box::new(move |n, w| {
        let (first, key) = (n as u64 / u64::from(count) * u64::from(count), n % usize::from(count));
        let generation = Generation::new(code, count).and_then(|generation| generation.at(SourceId(first)));
        let generation = generation.expect("within the code");
        if key == 0 {
            let sources: Vec<_> = (first..first + u64::from(count)).map(one_byte).collect();
            let len = sources.iter().map(Vec::len).max().expect("some").next_multiple_of(2);
            repairs.iter_mut().for_each(|repair| repair.resize(len, 0));
            generation.encode(&sources, 0, &mut repairs).expect("of one length");
        }
        repair(w, Layout::Generations, code, generation.repair_id(key as u16), SourceId(first), &repairs[key]);
    })
}

/// Generations of two symbols: a repair of each, then another of each, the last first.
fn halves() -> Frames {
    let mut repairs = vec![vec![0; 64]; 2];
    Box::new(move |n, w| {
        let (turn, at) = (n / (2 * OPEN), n % (2 * OPEN));
        let (nth, key) = if at < OPEN { (at, 0) } else { (2 * OPEN - 1 - at, 1) };
        let first = 2 * (turn * OPEN + nth) as u64;
        let generation = Generation::new(Code::Cauchy, 2).and_then(|generation| generation.at(SourceId(first)));
        let generation = generation.expect("within the code");
        let sources = [one_byte(first), one_byte(first + 1)];
        let len = sources.iter().map(Vec::len).max().expect("some");
        repairs.iter_mut().for_each(|repair| repair.resize(len, 0));
        generation.encode(&sources, 0, &mut repairs).expect("of one length");
        let id = generation.repair_id(key as u16);
        repair(w, Layout::Generations, Code::Cauchy, id, SourceId(2 * (turn * OPEN) as u64), &repairs[key]);
    })
}

/// The source symbol of an id: a byte of a stream.
fn one_byte(id: u64) -> Vec<u8> {
    symbol(1, |_| byte(0, id as usize))
}

fn repair(w: &mut Writer<'_>, layout: Layout, code: Code, id: RepairId, base: SourceId, symbol: &[u8]) {
    Frame::Repair { lane: 0, layout, code, id, base, on_feedback: false, symbol }.emit(w).expect("room");
}

fn fill(w: &mut Writer<'_>, frame: impl Fn(usize) -> Frame<'static>) {
    let mut k = 0;
    while w.len() < ROOM && frame(k).emit(w).is_ok() {
        k += 1;
    }
}

/// A source symbol of `count` frames.
fn symbol(count: usize, frame: impl Fn(usize) -> SymbolFrame<'static>) -> Vec<u8> {
    let mut symbol = vec![0; ROOM - TAG_LEN - 60];
    let mut inner = Writer::new(&mut symbol[SYMBOL_HEADER_LEN..]);
    (0..count).for_each(|k| frame(k).emit(&mut inner).expect("room"));
    let length = SYMBOL_HEADER_LEN + inner.len();
    SymbolHeader { length: length as u16, time: 0 }.emit(&mut symbol).expect("room");
    symbol.truncate(length);
    symbol
}

fn source(w: &mut Writer<'_>, id: u64, symbol: &[u8]) {
    Frame::Source { lane: 0, layout: Layout::Sliding, id: SourceId(id), base: SourceId(0), again: false, symbol }
        .emit(w)
        .expect("room");
}
