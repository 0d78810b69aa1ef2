//! Tests messages of many symbols, put into a real store.

use tidewire_codec::{Elimination, Limits, SourceId};

use super::*;
use crate::wire::{SYMBOL_HEADER_LEN, SymbolHeader, Writer};

/// Symbols of a ring of 32 MiB, the default of `tunnel` and `live`, rounded up to a power of two.
const RING: usize = 1 << 15;

/// The most parts that may be looked at for each symbol that comes: two neighbours, two ends of a run, and
/// where a message begins and ends.
const LOOKS: u64 = 12;

/// A lane's store, and its messages.
struct Lane {
    store: Store,
    messages: Messages,
}

impl Lane {
    fn new() -> Self {
        let limits = Limits { slot_len: 64, capacity: RING, max_span: 16, max_rows: 16 };
        Self { store: Store::new(limits, Elimination::WhenStuck), messages: Messages::new(1) }
    }

    /// Symbol `id` comes, with one frame.
    fn hear(&mut self, id: u64, begins: bool, ends: bool, data: &[u8]) -> Result<(), CloseCode> {
        let mut symbol = [0; 64];
        let mut w = Writer::new(&mut symbol[SYMBOL_HEADER_LEN..]);
        SymbolFrame::Message { begins, ends, in_order: false, data }.emit(&mut w).expect("room");
        let length = SYMBOL_HEADER_LEN + w.len();
        SymbolHeader { length: length as u16, time: 0 }.emit(&mut symbol).expect("room");
        self.store.receive_source(SourceId(id), &symbol[..length])?;
        while let Some(decoded) = self.store.poll_decoded() {
            let Some((_, frames)) = self.store.symbol(decoded.id).and_then(|symbol| SymbolFrames::new(symbol).ok())
            else {
                continue;
            };
            self.messages.on_symbol(decoded.id, frames, &self.store)?;
        }
        Ok(())
    }

    fn looks(&self) -> u64 {
        self.messages.parts.looks.get()
    }
}

/// The symbols 1 to `last` in an order.
type Order = fn(u64) -> Vec<u64>;

const ORDERS: [Order; 3] = [
    |last| (1..=last).collect(),
    |last| (1..=last).rev().collect(),
    |last| (1..=last).step_by(2).chain((2..=last).step_by(2)).collect(),
];

/// A message has a ring of parts without data, and its first symbol is missing. Before the fix, the receiver
/// walked over all parts before each one: 16,000 of them for a symbol of seven bytes.
#[test]
fn parts_behind_a_missing_first_symbol_cost_the_same_however_many_there_are() {
    for order in ORDERS {
        let mut lane = Lane::new();
        let last = RING as u64 - 1;
        for id in order(last) {
            let before = lane.looks();
            lane.hear(id, false, id == last, &[]).expect("as allowed");
            let looks = lane.looks() - before;
            assert!(looks <= LOOKS, "{looks} parts looked at for symbol {id}");
        }
        assert!(!lane.messages.is_ready());
        let before = lane.looks();
        lane.hear(0, true, false, b"first").expect("as allowed");
        assert!(lane.looks() - before <= LOOKS);
        assert_eq!(lane.messages.take().map(|message| message.data), Some(b"first".to_vec()));
        assert!(!lane.messages.is_ready());
    }
}

/// The first symbol is known, and the parts after it come in any order: no walk forward for each of them
/// either.
#[test]
fn parts_behind_a_known_first_symbol_cost_the_same_however_many_there_are() {
    for order in ORDERS {
        let mut lane = Lane::new();
        let last = RING as u64 - 1;
        lane.hear(0, true, false, b"a").expect("as allowed");
        for id in order(last) {
            let before = lane.looks();
            lane.hear(id, false, id == last, if id % 2 == 0 { b"b" } else { b"" }).expect("as allowed");
            assert!(lane.looks() - before <= LOOKS, "symbol {id}");
        }
        let data = lane.messages.take().expect("it is complete").data;
        assert_eq!((data.len(), data[0], data[1]), (RING / 2, b'a', b'b'));
    }
}

#[test]
fn a_part_beside_a_message_that_is_over_is_a_fault() {
    let mut lane = Lane::new();
    lane.hear(3, true, true, b"whole").expect("as allowed");
    assert_eq!(lane.hear(4, false, false, b""), Err(CloseCode::Protocol));
    let mut lane = Lane::new();
    lane.hear(6, true, false, b"a").expect("as allowed");
    lane.hear(8, true, true, b"whole").expect("as allowed");
    assert_eq!(lane.hear(7, false, false, b""), Err(CloseCode::Protocol));
}
