//! Decodes generations of `Code::RsFft` from any of their symbols, and runs any names and lengths through its
//! plans and ranks.
//!
//! Enough distinct symbols must decode the generation to the true bytes, and a rank must say so exactly then.
//! A plan for too few, or for names that the generation does not have, must fail without a panic.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Unstructured};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use tidewire_codec::{Code, DecodePlan, Generation, GenerationError, PlanError, Rank, RepairId};

/// Chosen: the fourth power of two, and a run stays below a few milliseconds.
const MOST_SYMBOLS: u16 = 40;
const MOST_LEN: usize = 140;

fuzz_target!(|data: &[u8]| {
    // The run ends where the input ends, even in the middle of a step.
    let _ = run(&mut Unstructured::new(data));
});

fn run(input: &mut Unstructured) -> arbitrary::Result<()> {
    let mut plan = DecodePlan::nothing_lost(Generation::new(Code::RsFft, 1).expect("one symbol"));
    while !input.is_empty() {
        let count = input.int_in_range(1..=MOST_SYMBOLS)?;
        let generation = Generation::new(Code::RsFft, count).expect("a short generation");
        if input.ratio(3, 4)? { honest(input, &mut plan, generation)? } else { hostile(input, &mut plan, generation)? }
    }
    Ok(())
}

/// Few keys, so that some come twice, and some anywhere in the field.
fn key(input: &mut Unstructured, count: u16) -> arbitrary::Result<u16> {
    let last = u16::MAX - count.next_power_of_two();
    if input.ratio(7, 8)? { input.int_in_range(0..=99) } else { input.int_in_range(0..=last) }
}

fn honest(input: &mut Unstructured, plan: &mut DecodePlan, generation: Generation) -> arbitrary::Result<()> {
    let count = generation.count();
    let longest = input.int_in_range(1..=MOST_LEN)?;
    let len = longest.next_multiple_of(2);
    let sources: Vec<Vec<u8>> = (0..count)
        .map(|index| {
            let len = longest - usize::from(index) % longest;
            (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (index as u8).wrapping_mul(101)).collect()
        })
        .collect();
    let mut rank = Rank::new(generation);
    rank.end(count).expect("the generation has this length");
    let mut is_lost = vec![true; count.into()];
    let mut keys = Vec::new();
    while !rank.is_recovered() {
        if input.is_empty() {
            return Ok(());
        }
        let is_new = if input.arbitrary()? {
            let index = input.int_in_range(0..=count - 1)?;
            let was_lost = core::mem::replace(&mut is_lost[usize::from(index)], false);
            assert_eq!(rank.add_source(index), Ok(was_lost));
            was_lost
        } else {
            let key = key(input, count)?;
            let is_new = !keys.contains(&key);
            assert_eq!(rank.add_repair(count, key), Ok(is_new));
            if is_new {
                keys.push(key);
            }
            is_new
        };
        let known = is_lost.iter().filter(|is_lost| !**is_lost).count() + keys.len();
        assert_eq!((known == usize::from(count), is_new || known < count.into()), (rank.is_recovered(), true));
    }
    let lost: Vec<u16> = (0..count).filter(|&index| is_lost[usize::from(index)]).collect();
    assert_eq!(rank.lacking().collect::<Vec<_>>(), lost);
    let mut repairs = vec![vec![0; len]; keys.len()];
    for (&key, repair) in keys.iter().zip(&mut repairs) {
        generation.encode(&sources, key, std::slice::from_mut(repair)).expect("a key of the generation");
    }
    plan.renew(generation, &lost, &keys).expect("as many distinct symbols as the generation has");
    let mut decoded = vec![vec![0x55; len]; lost.len()];
    plan.decode(&sources, &repairs, &mut decoded).expect("symbols of equal length");
    for (&index, decoded) in lost.iter().zip(&decoded) {
        let truth = &sources[usize::from(index)];
        assert!(decoded.starts_with(truth) && decoded[truth.len()..].iter().all(|&byte| byte == 0));
    }
    Ok(())
}

fn hostile(input: &mut Unstructured, plan: &mut DecodePlan, generation: Generation) -> arbitrary::Result<()> {
    let count = generation.count();
    let lost: Vec<u16> =
        (0..input.int_in_range(0..=6)?).map(|_| input.int_in_range(0..=count)).collect::<arbitrary::Result<_>>()?;
    let repairs: Vec<RepairId> = (0..input.int_in_range(0..=6)?)
        .map(|_| {
            let count = if input.ratio(7, 8)? { count } else { input.int_in_range(0..=count + 1)? };
            let key = if input.ratio(7, 8)? { input.int_in_range(0..=9)? } else { input.arbitrary()? };
            Ok(RepairId { count, ..generation.repair_id(key) })
        })
        .collect::<arbitrary::Result<_>>()?;
    let is_good = |id: &RepairId| id.count == count && Code::RsFft.check(*id).is_ok();
    let distinct = |names: &mut dyn Iterator<Item = u16>| names.collect::<BTreeSet<_>>().len();
    let are_valid = lost.iter().all(|&index| index < count)
        && repairs.iter().all(is_good)
        && distinct(&mut lost.iter().copied()) == lost.len()
        && distinct(&mut repairs.iter().map(|id| id.key)) == repairs.len();
    let result = plan.renew_from(generation, &lost, &repairs);
    match result {
        Ok(()) => assert!(are_valid && lost.len() <= repairs.len()),
        Err(PlanError::Deficit { .. }) => assert!(are_valid && lost.len() > repairs.len()),
        Err(_) => assert!(!are_valid),
    }
    // Symbols of any lengths: the plan decodes them, or names what contradicts.
    let len = input.int_in_range(0..=MOST_LEN)?;
    let places = usize::from(plan.generation().count());
    let sources = vec![vec![1; input.int_in_range(0..=MOST_LEN)?]; places];
    let symbols = vec![vec![2; len]; repairs.len()];
    let mut decoded = vec![vec![0; len]; plan.lost().len()];
    let result = plan.decode(&sources, &symbols, &mut decoded);
    if len % 2 == 1 && !decoded.is_empty() {
        // A plan that was not renewed may want another number of repair symbols.
        assert!(matches!(result, Err(GenerationError::OddLen { .. } | GenerationError::RepairCount { .. })));
    }
    Ok(())
}
