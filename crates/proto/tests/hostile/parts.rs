//! Symbols in parts (SLICE) that never become whole: one byte of many symbols, all but one byte of many, and
//! many parts of one.

use tidewire_codec::SourceId;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseCode, CloseReason};
use tidewire_proto::wire::{Frame, Layout};

use super::host::Host;

const KIB: isize = 1_024;
/// Symbols accepted from the start, and how many of them may be in parts.
const CREDIT: u64 = 256;
const IN_PARTS: isize = 64;
/// Memory of the packets that answer a flood of some hundred packets, which nobody acknowledges.
const ANSWERS: isize = 128 * KIB;

fn part(id: u64, offset: usize, total: usize, bytes: &[u8]) -> Frame<'_> {
    Frame::Slice { lane: 0, layout: Layout::Sliding, id: SourceId(id), offset, total, bytes }
}

/// Sends packets of several parts each. Returns the most memory held, what the connection says it holds, and
/// how it ended.
fn flood<'a>(config: Config, parts: impl Iterator<Item = Frame<'a>>, each: usize) -> (isize, isize, Vec<CloseReason>) {
    let mut host = Host::new(config, 2);
    let mut peer = host.meet(1);
    let before = host.meter.held;
    host.meter.most = before;
    let mut parts = parts.peekable();
    while parts.peek().is_some() && host.closed.is_empty() {
        host.hear(&mut peer, |w| parts.by_ref().take(each).for_each(|part| part.emit(w).expect("room")));
        host.turn(|_, _| {});
    }
    let said = if host.closed.is_empty() { host.with(|connection| connection.memory()) } else { 0 };
    (host.meter.most - before, said as isize, host.closed)
}

/// A hundred symbols in a packet, each with its last byte, in any order, again and again.
#[test]
fn one_byte_of_many_symbols_costs_no_symbol() {
    for total in [1_424, 65_472] {
        let config = Config::builder().max_datagram(65_527).build().expect("in range");
        let ids = (0..20_000_u64).map(|n| n * 101 % CREDIT);
        let (most, said, closed) = flood(config, ids.map(|id| part(id, total - 1, total, &[7])), 100);
        println!("{most} bytes held, {said} said");
        assert!(closed.is_empty() && most <= 48 * KIB && said <= most, "{most} bytes, {said} said, {closed:?}");
    }
}

#[test]
fn all_but_one_byte_of_many_symbols_costs_a_quarter_of_the_credit() {
    let symbol = [7; 1_423];
    let (most, said, closed) =
        flood(Config::default(), (0..2 * CREDIT).map(|n| part(n % CREDIT, 0, 1_424, &symbol)), 1);
    println!("{most} bytes held, {said} said");
    assert!(closed.is_empty() && most <= IN_PARTS * 1_424 + ANSWERS, "{most} bytes, {closed:?}");
    assert!(said >= IN_PARTS * 1_423 && said <= most, "{most} bytes held, {said} said");
}

/// Parts of a long symbol that overlap, upward, downward and with gaps between them.
#[test]
fn many_parts_of_one_symbol_cost_the_symbol() {
    const TOTAL: usize = 65_472;
    let config = || Config::builder().max_datagram(65_527).build().expect("in range");
    let last = TOTAL - 256;
    type Offsets = fn(usize) -> usize;
    let orders: [Offsets; 3] = [|n| 1 + n * 3, |n| TOTAL - 257 - n * 3, |n| 1 + n * 512 % (TOTAL - 257)];
    for order in orders {
        let offsets = (0..2_500).map(|n| order(n * 29 % (last / 3)));
        let (most, _, closed) = flood(config(), offsets.map(|offset| part(0, offset, TOTAL, &[7; 256])), 5);
        println!("{most} bytes held");
        // A symbol whose runs are joined exists twice for a moment.
        assert!(closed.is_empty() && most <= 2 * TOTAL as isize + ANSWERS, "{most} bytes, {closed:?}");
    }
}

#[test]
fn short_parts_end_the_connection() {
    let (_, _, closed) = flood(Config::default(), (0..10).map(|n| part(0, 2 * n, 1_424, &[7])), 1);
    assert_eq!(closed, [CloseReason::Fault(CloseCode::Protocol)]);
}
