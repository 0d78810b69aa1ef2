//! Datagrams full of frames that a hostile peer may send at any time.
//!
//! `hostile` times each of them without a socket, `sockets` sends them to a real endpoint beside an honest
//! connection. The peer acknowledges nothing.

use tidewire_codec::{Code, Encoder, RepairId, SourceId};
use tidewire_proto::wire::{
    ConnectionId, Frame, Layout, SYMBOL_HEADER_LEN, SymbolFrame, SymbolHeader, TAG_LEN, Writer,
};

/// Bytes of a packet that frames may fill.
const ROOM: usize = 1_400;
/// Symbols of a span, all lost, and how many repairs of them come before the symbols themselves.
const SPAN: u64 = 256;
const REPAIRS: u64 = 200;

/// Writes the frames of the nth datagram.
pub type Frames = Box<dyn FnMut(usize, &mut Writer<'_>) + Send>;

/// Every flood with its name.
pub fn all() -> Vec<(&'static str, Frames)> {
    vec![
        ("PING", Box::new(|_, w| Frame::Ping.emit(w).expect("room"))),
        ("PATH_CHALLENGE, 150 in a packet", Box::new(|_, w| fill(w, |_| Frame::PathChallenge([7; 8])))),
        ("BASE, 450 in a packet", Box::new(|_, w| fill(w, |_| Frame::Base { lane: 1, base: SourceId(0) }))),
        ("NEW_CID, 60 in a packet", Box::new(new_cids)),
        ("SLICE of one byte, 180 in a packet", Box::new(slices)),
        ("a byte of a stream in order", Box::new(|n, w| source(w, n as u64, &symbol(1, |_| byte(0, n))))),
        ("16 bytes amid a stream", Box::new(amid)),
        (
            "120 bytes of 60 streams",
            Box::new(|n, w| source(w, n as u64, &symbol(120, |k| byte(k % 60, n * 2 + k / 60)))),
        ),
        ("250 empty frames of streams", Box::new(|n, w| source(w, n as u64, &symbol(250, |k| empty(k % 60))))),
        ("repairs over 256 symbols of 20 bytes", decoding(&[1; 1])),
        ("repairs over 256 symbols of 1,200 bytes", decoding(&[1; 1_200])),
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

fn slices(n: usize, w: &mut Writer<'_>) {
    let (lane, total, bytes) = (0, 1_200, b"x");
    let id = |k: usize| SourceId(1 + k as u64 % 100);
    fill(w, |k| Frame::Slice { lane, layout: Layout::Sliding, id: id(k), offset: 2 * (n + k) % 1_000, total, bytes });
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
        let (lane, code, base, on_feedback) = (0, Code::Rlc, SourceId(first), false);
        Frame::Repair { lane, layout: Layout::Sliding, code, id, base, on_feedback, symbol: &out[..len] }
            .emit(w)
            .expect("room");
    })
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
