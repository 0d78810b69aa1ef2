//! A peer with valid keys writes anything into the frames of the relayed lane: each is counted by reason, the
//! session lives on, and nothing grows beyond its bound.

use std::time::Duration;

use tidewire_proto::config::Config;
use tidewire_proto::recode::{RELAYED_SYMBOL, Relaying};
use tidewire_proto::wire::{Frame, Ranks, Recoded};

use super::host::{Host, Random};

/// Frames sent.
const FRAMES: usize = 50_000;
/// Most memory for them: 16 generations of ranks, each 64 rows of 64 bytes and some more, and 64 rows that
/// wait to be taken.
const GROWTH: isize = 16 * (64 * 64 + 1_024) + 4 * 64 * (RELAYED_SYMBOL as isize + 64) + (64 << 10);

#[test]
fn frames_that_break_a_rule_are_counted_by_reason_and_cost_no_memory() {
    let mut relaying = Relaying::default();
    relaying.generations = 16;
    let mut host = Host::new(Config::builder().relaying(Some(relaying)).build().expect("in range"), 2);
    let mut peer = host.meet(1);
    let handle = host.endpoint.connections().next().expect("connected").0;
    let before = host.meter.held;
    host.meter.most = before;
    let mut random = Random(7);
    let bytes = [5; 2 * RELAYED_SYMBOL];
    for n in 0..FRAMES {
        let most = if random.below(8) == 0 { 1_300 } else { 100 };
        let vector: Vec<u8> = match random.below(4) {
            0 => vec![0; random.below(70)],
            _ => (0..random.below(70)).map(|_| random.below(256) as u8).collect(),
        };
        let symbol = &bytes[..random.below(most) * usize::from(random.below(16) > 0)];
        let length = if random.below(8) == 0 { random.below(256) as u8 } else { 64 };
        let generation =
            if random.below(8) == 0 { u64::MAX >> (2 + random.below(60)) } else { random.below(20) as u64 };
        let frame = Frame::Recoded(Recoded { relays: 0, generation, length, vector: &vector, symbol });
        host.hear(&mut peer, |w| frame.emit(w).expect("room"));
        if n % 400 == 0 {
            host.wait(Duration::from_millis(1));
            host.turn(|_, _| {});
            // An owner that takes rows, and never gives room back.
            let hop = host.endpoint.connection_mut(handle).expect("it lives");
            hop.take_recoded(|row| assert!(row.vector.len() <= 64 && row.generation < 16));
        }
    }
    let stats = host.endpoint.connection(handle).expect("it lives").relay_stats();
    let parts = [stats.innovative, stats.redundant, stats.zero, stats.misplaced, stats.malformed, stats.overrun];
    assert!(parts.iter().all(|&count| count > 0), "{stats:?}");
    assert_eq!((stats.received, parts.iter().sum::<u64>()), (FRAMES as u64, FRAMES as u64));
    assert!(stats.innovative <= 16 * 64, "{stats:?}");
    let grown = host.meter.most - before;
    println!("{grown} bytes, {stats:?}");
    assert!(grown <= GROWTH, "{grown} bytes");
}

#[test]
fn reports_of_what_was_never_sent_and_frames_at_an_ordinary_end_end_the_session() {
    let ranks = |edge, room, ranks: &'static [u8]| Frame::Ranks(Ranks { edge, room, ranks });
    let recoded = Frame::Recoded(Recoded { relays: 0, generation: 0, length: 1, vector: &[1], symbol: &[1] });
    for (is_relaying, frame, is_fault) in [
        (true, ranks(0, 1 << 40, &[0, 0]), false),
        (true, ranks(1, 4, &[]), true),
        (true, ranks(0, 4, &[1]), true),
        (true, ranks((1 << 62) - 1, (1 << 62) - 1, &[]), true),
        (true, recoded, false),
        (false, ranks(0, 4, &[]), true),
        (false, recoded, true),
    ] {
        let relaying = is_relaying.then(Relaying::default);
        let mut host = Host::new(Config::builder().relaying(relaying).build().expect("in range"), 2);
        let mut peer = host.meet(1);
        host.hear(&mut peer, |w| frame.emit(w).expect("room"));
        let alive = host.endpoint.connections().any(|(_, connection)| connection.is_established());
        assert_eq!(alive, !is_fault, "{is_relaying} {frame:?}");
    }
}
