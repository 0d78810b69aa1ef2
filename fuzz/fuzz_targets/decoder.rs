//! Runs any sequence of operations on a small decoder.
//!
//! An honest sequence also runs on the naive decoder of the codec's tests: both must know the same symbols
//! after every step, and every decoded byte must be correct. A hostile sequence has contents and ids that
//! contradict each other: the decoder must keep its invariants and its bounds of work and memory, and must
//! not change when it returns an error.
#![no_main]

#[path = "../../crates/codec/tests/codec/bounded/mod.rs"]
mod bounded;
#[path = "../../crates/codec/tests/codec/reference/mod.rs"]
mod reference;

use libfuzzer_sys::arbitrary::{self, Unstructured};
use libfuzzer_sys::fuzz_target;
use reference::pair::{self, IDS, Pair};
use tidewire_codec::{Code, Decoder, Limits, Reception, RepairId, SourceId};

const SLOT: usize = 64;
const LIMITS: Limits = Limits { slot_len: SLOT, capacity: 32, max_span: 16, max_rows: 5 };

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    // The run ends where the input ends, even in the middle of a step.
    let _ = if input.arbitrary().unwrap_or(false) { honest(&mut input) } else { hostile(&mut input) };
});

fn code(input: &mut Unstructured) -> arbitrary::Result<Code> {
    input.choose(&[Code::Rlc, Code::Rlc8681, Code::Cauchy]).copied()
}

fn honest(input: &mut Unstructured) -> arbitrary::Result<()> {
    let mut pair = Pair::new();
    while !input.is_empty() {
        let first = input.int_in_range(0..=IDS - 1)?;
        let count = input.int_in_range(1..=IDS - first)?;
        let step = match input.int_in_range(0..=15u8)? {
            0..6 => pair::Step::Source(first),
            6..12 => {
                let (first, count) = (SourceId(first as u64), count as u16);
                pair::Step::Repair(code(input)?, RepairId { first, count, key: input.int_in_range(0..=5)? })
            }
            12..14 => {
                let row = input.bytes(count.min(input.len()))?;
                if row.iter().all(|&factor| factor == 0) {
                    continue;
                }
                pair::Step::Recoded(first, row.to_vec())
            }
            14 => pair::Step::Skip(first),
            _ => pair::Step::Grow(count),
        };
        pair.take(&step);
    }
    Ok(())
}

/// Reads a symbol from a few bytes of input: a length, mostly the longest, and the byte that fills it.
fn symbol(input: &mut Unstructured) -> arbitrary::Result<Vec<u8>> {
    let len = match input.int_in_range(0..=7u8)? {
        0 => input.int_in_range(0..=SLOT + 1)?,
        _ => SLOT,
    };
    Ok(vec![input.arbitrary()?; len])
}

fn hostile_step(input: &mut Unstructured) -> arbitrary::Result<bounded::Step> {
    use bounded::Step;
    Ok(match input.int_in_range(0..=15u8)? {
        0..4 => Step::SourceAhead(input.int_in_range(0..=40)?, symbol(input)?),
        4..9 => {
            let (code, ahead, count) = (code(input)?, input.int_in_range(-30..=40)?, input.int_in_range(0..=18)?);
            Step::RepairAhead(code, ahead, count, input.int_in_range(0..=300)?, symbol(input)?)
        }
        9..11 => {
            let count = input.int_in_range(0..=18usize)?;
            let row = input.bytes(count.min(input.len()))?.to_vec();
            Step::RecodedAhead(input.int_in_range(-30..=40)?, row, symbol(input)?)
        }
        11 => Step::Source(input.arbitrary()?, symbol(input)?),
        12 => {
            let id =
                RepairId { first: SourceId(input.arbitrary()?), count: input.arbitrary()?, key: input.arbitrary()? };
            Step::Repair(code(input)?, id, symbol(input)?)
        }
        13 => Step::SkipAhead(input.int_in_range(0..=50)?),
        14 => Step::Poll,
        _ => Step::Grow(input.int_in_range(0..=200)?),
    })
}

fn hostile(input: &mut Unstructured) -> arbitrary::Result<()> {
    let mut meter = bounded::Meter::default();
    let mut decoder = meter.run(|| Decoder::new(LIMITS));
    while !input.is_empty() {
        let step = hostile_step(input)?;
        let (before, operations) = (bounded::state(&decoder), decoder.row_operations());
        let result = meter.run(|| bounded::perform(&mut decoder, &step));
        bounded::check_invariants(&decoder, LIMITS);
        assert!(decoder.row_operations() - operations <= LIMITS.max_rows as u64 + 1, "{step:?}");
        let limits = Limits { capacity: decoder.capacity(), ..LIMITS };
        assert!(meter.most <= bounded::promised(limits), "{} bytes held after {step:?}", meter.most);
        if matches!(result, Some(Err(_) | Ok(Reception::Redundant))) {
            assert_eq!(bounded::state(&decoder), before, "{step:?} gave {result:?}");
        }
    }
    Ok(())
}
