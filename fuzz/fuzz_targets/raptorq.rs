//! Decodes generations of `Code::RaptorQ` from any of their symbols, and runs any names through its rows,
//! plans and ranks.
//!
//! A rank and a plan must agree on whether symbols suffice, and what the plan decodes must be the true bytes.
//! Names that the code does not have must fail without a panic.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Unstructured};
use libfuzzer_sys::fuzz_target;
use tidewire_codec::{Code, DecodePlan, Generation, PlanError, Rank, RepairId, SourceId};

/// Chosen: ten sizes of RFC 6330, and a run stays below a few milliseconds.
const MOST_SYMBOLS: u16 = 50;
const MOST_LEN: usize = 70;

fuzz_target!(|data: &[u8]| {
    // The run ends where the input ends, even in the middle of a step.
    let _ = run(&mut Unstructured::new(data));
});

fn run(input: &mut Unstructured) -> arbitrary::Result<()> {
    let mut plan = DecodePlan::nothing_lost(Generation::new(Code::RaptorQ, 1).expect("one symbol"));
    while !input.is_empty() {
        if input.ratio(3, 4)? { honest(input, &mut plan)? } else { hostile(input)? }
    }
    Ok(())
}

/// Few keys, so that some come twice, and some anywhere.
fn key(input: &mut Unstructured) -> arbitrary::Result<u16> {
    if input.ratio(7, 8)? { input.int_in_range(0..=99) } else { input.arbitrary() }
}

fn honest(input: &mut Unstructured, plan: &mut DecodePlan) -> arbitrary::Result<()> {
    let count = input.int_in_range(1..=MOST_SYMBOLS)?;
    let generation = Generation::new(Code::RaptorQ, count).expect("a short generation");
    let len = input.int_in_range(1..=MOST_LEN)?;
    let sources: Vec<Vec<u8>> = (0..count)
        .map(|index| {
            let len = len - usize::from(index) % len;
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
        let before = rank.deficit();
        let is_new = if input.arbitrary()? {
            let index = input.int_in_range(0..=count - 1)?;
            is_lost[usize::from(index)] = false;
            rank.add_source(index)
        } else {
            let key = key(input)?;
            let is_known = keys.contains(&key);
            if !is_known {
                keys.push(key);
            }
            let is_new = rank.add_repair(count, key);
            assert!(!is_known || is_new == Ok(false));
            is_new
        };
        assert_eq!(is_new, Ok(rank.deficit() + 1 == before));
        let lost: Vec<u16> = (0..count).filter(|&index| is_lost[usize::from(index)]).collect();
        match plan.renew(generation, &lost, &keys) {
            Ok(()) => assert!(rank.is_recovered()),
            Err(PlanError::Deficit { deficit, .. }) => assert_eq!(deficit, rank.deficit().into()),
            Err(error) => panic!("{error}"),
        }
    }
    let mut repairs = vec![vec![0; len]; keys.len()];
    for (&key, repair) in keys.iter().zip(&mut repairs) {
        generation.encode(&sources, key, std::slice::from_mut(repair)).expect("every key");
    }
    let lost = plan.lost().to_vec();
    let mut decoded = vec![vec![0x55; len]; lost.len()];
    plan.decode(&sources, &repairs, &mut decoded).expect("symbols of equal length");
    for (&index, decoded) in lost.iter().zip(&decoded) {
        let truth = &sources[usize::from(index)];
        assert!(decoded.starts_with(truth) && decoded[truth.len()..].iter().all(|&byte| byte == 0));
    }
    Ok(())
}

fn hostile(input: &mut Unstructured) -> arbitrary::Result<()> {
    let count = if input.ratio(15, 16)? { input.int_in_range(0..=MOST_SYMBOLS)? } else { input.arbitrary()? };
    let id = RepairId { first: SourceId(input.arbitrary()?), count, key: input.arbitrary()? };
    let is_good = Code::RaptorQ.check(id).is_ok();
    assert_eq!(is_good, (1..=1_024).contains(&count) && id.first.0.checked_add(count.into()).is_some());
    // A name that `check` refuses has no meaning, and its row must end.
    assert!(Code::RaptorQ.row(id).count() <= count.into());
    assert_eq!(Generation::new(Code::RaptorQ, count).is_ok(), (1..=1_024).contains(&count));
    Ok(())
}
