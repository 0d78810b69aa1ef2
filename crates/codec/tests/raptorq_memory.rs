//! What a process keeps for `Code::RaptorQ`: a bounded number of coefficients and encoding plans, whatever
//! blocks it encodes and whatever a peer names.
//!
//! A file of its own, because all of it is kept for the whole process.
#![cfg(all(feature = "raptorq", not(miri)))]

#[path = "codec/bounded/mod.rs"]
mod bounded;

use bounded::{Meter, allocations};
use tidewire_codec::kernel::Kernel;
use tidewire_codec::{Code, Generation};

const MB: isize = 1_000_000;

/// The rows of low keys take 13.3 MB for blocks of all sizes, and what the rows of high keys are computed
/// from takes 69 MB.
#[test]
fn blocks_of_every_length_keep_a_bounded_number_of_coefficients_once() {
    let row = |count, key| Code::RaptorQ.row(Generation::new(Code::RaptorQ, count).unwrap().repair_id(key)).count();
    let mut meter = Meter::default();
    for (key, bound) in [(0, 14 * MB), (300, 83 * MB)] {
        meter.most = 0;
        for count in 2..=1_024 {
            assert_eq!(meter.run(|| row(count, key)), count.into());
        }
        // Building the largest size takes 5 MB for the moment.
        println!("key {key}: at most {} bytes", meter.most);
        assert!(meter.most <= bound + 5 * MB, "{} bytes", meter.most);
    }
    let before = allocations();
    (2..=1_024).for_each(|count| assert_eq!(row(count, 255), count.into()));
    assert_eq!(allocations(), before, "the rows are kept");
    let held = meter.most;
    for count in (2..=1_024).step_by(7) {
        (0..=u16::MAX).step_by(9_999).for_each(|key| assert_eq!(meter.run(|| row(count, key)), count.into()));
    }
    assert_eq!(meter.most, held, "high keys keep nothing more");
}

/// An encoder that makes many repair symbols at once keeps eight plans of at most 2.5 MB. The other blocks
/// are encoded without one.
#[test]
fn encoding_blocks_of_every_length_keeps_few_plans() {
    // The kernel that takes the way with plans for the fewest repair symbols.
    Kernel::named("scalar").unwrap().activate();
    let mut meter = Meter::default();
    for count in [1_024, 1_020, 1_000, 950, 940, 930, 920, 910, 900, 890, 870, 850, 840, 830, 820, 810, 800] {
        let generation = Generation::new(Code::RaptorQ, count).unwrap();
        let sources: Vec<[u8; 2]> = (0..count).map(u16::to_le_bytes).collect();
        let mut repairs = vec![[0; 2]; 40];
        // Computes the rows of the keys, so that they are not counted.
        Code::RaptorQ.row(generation.repair_id(0)).for_each(drop);
        meter.run(|| generation.encode(&sources, 0, &mut repairs).unwrap());
        let mut repair = [[0; 2]];
        generation.encode(&sources, 39, &mut repair).unwrap();
        assert_eq!(repair[0], repairs[39], "{count}");
    }
    // What is kept, and 5 MB for the moment to make a plan.
    println!("at most {} bytes", meter.most);
    assert!((10 * MB..8 * 5 * MB / 2 + 5 * MB).contains(&meter.most), "{} bytes", meter.most);
}
