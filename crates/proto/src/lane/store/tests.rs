//! Tests the store of generations against a minimal sender.

use proptest::prelude::*;
use tidewire_codec::{Code, Elimination, Generation, Reception, RepairId, SourceId};

use super::generations::Generations;
use crate::close::CloseCode;

const SLOT: usize = 64;

/// The packets of one generation: its source symbols and some repairs.
fn packets(code: Code, first: u64, count: u16, repairs: u16) -> Vec<(Option<RepairId>, u64, Vec<u8>)> {
    let sources: Vec<Vec<u8>> = (first..first + u64::from(count)).map(source).collect();
    let generation = Generation::new(code, count).expect("fits").at(SourceId(first)).expect("fits");
    let len = sources.iter().map(Vec::len).max().unwrap_or(0).next_multiple_of(2);
    let mut coded = vec![vec![0; len]; repairs.into()];
    generation.encode(&sources, 0, &mut coded).expect("right lengths");
    let coded = (0..).zip(coded).map(|(key, symbol)| (Some(generation.repair_id(key)), first, symbol));
    (first..).zip(sources).map(|(id, symbol)| (None, id, symbol)).chain(coded).collect()
}

fn source(id: u64) -> Vec<u8> {
    (0..1 + id * 7 % SLOT as u64).map(|n| (n * 31 + id * 17 + 1) as u8).collect()
}

/// Whether `symbol` is as it was sent. Zeros after its end are ignored.
fn is_sent(id: u64, symbol: &[u8]) -> bool {
    let sent = source(id);
    symbol.get(..sent.len()) == Some(&sent[..]) && symbol[sent.len()..].iter().all(|&byte| byte == 0)
}

proptest! {
    /// Losses, order of arrival and order of job results are random. A generation is reported as soon as it
    /// has as many packets as symbols (Cauchy), and all its symbols are known when its job is done.
    #[test]
    fn generations_are_reported_when_their_rank_suffices_and_decoded_when_their_job_is_done(
        sizes in prop::collection::vec((2_u16..20, 0_u16..8), 1..8),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
        results in prop::collection::vec(any::<bool>(), 400),
    ) {
        let (mut first, mut left) = (0, Vec::new());
        let mut generations = Vec::new();
        for &(count, repairs) in &sizes {
            left.extend(packets(Code::Cauchy, first, count, repairs));
            generations.push((first, count, 0_u16, 0_u16));
            first += u64::from(count);
        }
        let mut store = Generations::new(SLOT, 20, Elimination::WhenStuck, 1_024, SourceId(0));
        let (mut jobs, mut results, mut known) = (Vec::new(), results.into_iter(), 0);
        for pick in picks {
            if left.is_empty() {
                break;
            }
            let (repair, id, symbol) = left.swap_remove(pick.index(left.len()));
            let reception = match repair {
                None => store.receive_source(SourceId(id), &symbol),
                Some(repair) => store.receive_repair(Code::Cauchy, repair, &symbol),
            };
            prop_assert!(reception.is_ok());
            let of = generations.iter_mut().rfind(|(first, ..)| *first <= id).expect("the first begins at 0");
            of.2 += u16::from(repair.is_none());
            of.3 += u16::from(repair.is_some());
            while let Some(job) = store.poll_job(..) {
                jobs.push(job);
            }
            if results.next() == Some(true) && !jobs.is_empty() {
                let job = jobs.swap_remove(pick.index(jobs.len()));
                prop_assert_eq!(store.handle_job(job.run()), Ok(()));
            }
            while let Some(decoded) = store.poll_decoded() {
                known += 1;
                prop_assert!(store.symbol(decoded.id).is_some_and(|symbol| is_sent(decoded.id.0, symbol)));
            }
            for &(first, count, sources, repairs) in &generations {
                let all = (first..first + u64::from(count)).all(|id| store.is_decoded(SourceId(id)));
                prop_assert_eq!(all, sources + repairs >= count, "{} {}", first, count);
            }
            prop_assert!(store.edge() <= store.reported() && store.reported() <= store.end());
            let lacking: Vec<_> = (0..store.end().0).filter(|&id| !store.is_decoded(SourceId(id))).collect();
            let named: Vec<_> = store.undecoded().flat_map(|run| run.start.0..run.end.0).collect();
            prop_assert_eq!(&named, &lacking);
            let rows = |&(_, count, sources, repairs): &(u64, u16, u16, u16)| {
                if sources + repairs >= count { 0 } else { u64::from(repairs) }
            };
            prop_assert_eq!(store.rank_deficit(), lacking.len() as u64 - generations.iter().map(rows).sum::<u64>());
            // Each id and each generation is visited here, and by regions there.
            let from = pick.index(store.end().0 as usize + 1) as u64;
            let needed = |ids: core::ops::Range<u64>| {
                let rows = generations.iter().filter(|(first, ..)| ids.contains(first)).map(rows).sum();
                (lacking.iter().filter(|id| ids.contains(id)).count() as u64).saturating_sub(rows)
            };
            let mut deficits = [0; 9];
            prop_assert_eq!(store.region_deficits(SourceId(from), 20, &mut deficits), needed(0..from));
            let regions = (0..9).map(|nth| needed((from / 20 + nth) * 20..(from / 20 + nth + 1) * 20));
            let first = needed(from..(from / 20 + 1) * 20);
            prop_assert!(deficits.into_iter().eq([first].into_iter().chain(regions.skip(1))));
        }
        for job in jobs {
            prop_assert_eq!(store.handle_job(job.run()), Ok(()));
        }
        prop_assert_eq!(store.edge(), store.reported());
        while store.poll_decoded().is_some() {
            known += 1;
        }
        let decoded = (0..store.end().0).filter(|&id| store.is_decoded(SourceId(id))).count();
        prop_assert_eq!(known, decoded, "each symbol is told once");
    }
}

#[test]
fn a_job_holds_the_symbols_of_the_store_themselves() {
    let mut store = Generations::new(SLOT, 20, Elimination::WhenStuck, 256, SourceId(0));
    for (repair, id, symbol) in packets(Code::Cauchy, 0, 10, 4).into_iter().skip(4) {
        let received = match repair {
            None => store.receive_source(SourceId(id), &symbol),
            Some(repair) => store.receive_repair(Code::Cauchy, repair, &symbol),
        };
        assert_eq!(received, Ok(Reception::Innovative));
    }
    assert!(store.has_job());
    let job = store.poll_job(..).expect("recovered");
    for (id, symbol) in (0..).zip(&job.sources) {
        let same = symbol.as_ref().map(|symbol| symbol.as_ptr()) == store.symbol(SourceId(id)).map(<[u8]>::as_ptr);
        assert!(same, "symbol {id} was copied");
    }
}

#[test]
fn what_contradicts_an_earlier_generation_is_the_peers_fault() {
    let id = |first, count| RepairId { first: SourceId(first), count, key: 0 };
    let mut store = Generations::new(SLOT, 20, Elimination::WhenStuck, 256, SourceId(0));
    assert_eq!(store.receive_repair(Code::Cauchy, id(10, 10), &[1; 8]), Ok(Reception::Innovative));
    for wrong in [id(5, 6), id(19, 2), id(10, 9), id(12, 3), id(0, 40)] {
        assert_eq!(store.receive_repair(Code::Cauchy, wrong, &[1; 8]), Err(CloseCode::Protocol), "{wrong:?}");
    }
    assert_eq!(store.receive_repair(Code::Cauchy, id(100, 21), &[1; 8]), Err(CloseCode::Protocol), "too long");
    let second = RepairId { key: 1, ..id(10, 10) };
    assert_eq!(store.receive_repair(Code::Rlc16, second, &[1; 8]), Err(CloseCode::Protocol));
    assert_eq!(store.receive_repair(Code::Cauchy, second, &[1; 9]), Err(CloseCode::Protocol));
    assert_eq!(store.receive_repair(Code::Cauchy, second, &[]), Err(CloseCode::Protocol));
    assert_eq!(store.receive_source(SourceId(0), &[1; SLOT + 1]), Err(CloseCode::Protocol));
    assert_eq!(store.receive_repair(Code::Cauchy, id(20, 10), &[1; 8]), Ok(Reception::Innovative));
}

#[test]
fn what_was_reported_is_decoded_whatever_the_base() {
    let mut store = Generations::new(SLOT, 20, Elimination::WhenStuck, 256, SourceId(0));
    for (repair, id, symbol) in packets(Code::Rlc16, 0, 10, 4).into_iter().skip(4) {
        let received = match repair {
            None => store.receive_source(SourceId(id), &symbol),
            Some(repair) => store.receive_repair(Code::Rlc16, repair, &symbol),
        };
        assert_eq!(received, Ok(Reception::Innovative));
    }
    store.skip_before(SourceId(50));
    assert_eq!((store.edge(), store.reported()), (SourceId(0), SourceId(50)));
    let job = store.poll_job(..).expect("recovered");
    assert_eq!(store.handle_job(job.run()), Ok(()));
    assert!((0..10).all(|id| store.symbol(SourceId(id)).is_some_and(|symbol| is_sent(id, symbol))));
    assert_eq!(store.edge(), SourceId(50));
    store.release_before(SourceId(40));
    assert!(store.symbol(SourceId(0)).is_none() && store.memory() < 64 * size_of::<Option<u64>>());
}

proptest! {
    /// Symbols of 4 bytes in a generation of 64, whose repairs arrive first: no job is needed.
    #[test]
    fn short_symbols_are_decoded_as_they_come(
        code in prop_oneof![Just(Code::Rlc16), Just(Code::Cauchy)],
        early in prop::collection::vec(0_u64..64, 0..12),
        late in prop::collection::vec(0_u64..64, 0..64),
        skipped in 0_u16..8,
    ) {
        let symbol = |id: u64| [id as u8, 7, id as u8 ^ 0x5a, 1];
        let sources: Vec<_> = (0..64).map(symbol).collect();
        let generation = Generation::new(code, 64).expect("fits").at(SourceId(64)).expect("fits");
        let mut repairs = vec![[0; 4]; 80];
        generation.encode(&sources, 0, &mut repairs).expect("right lengths");
        let mut store = Generations::new(SLOT, 64, Elimination::WhenStuck, 256, SourceId(64));
        for &index in &early {
            prop_assert!(store.receive_source(SourceId(64 + index), &symbol(index)).is_ok());
        }
        let mut late = late.into_iter();
        for (key, repair) in (0..).zip(&repairs).skip(skipped.into()) {
            prop_assert!(store.receive_repair(code, generation.repair_id(key), repair).is_ok());
            if let Some(index) = late.next() {
                prop_assert!(store.receive_source(SourceId(64 + index), &symbol(index)).is_ok());
            }
        }
        prop_assert!(!store.has_job());
        prop_assert_eq!((store.edge(), store.reported(), store.rank_deficit()), (SourceId(128), SourceId(128), 0));
        let mut known: Vec<_> = core::iter::from_fn(|| store.poll_decoded()).map(|decoded| decoded.id.0).collect();
        known.sort_unstable();
        prop_assert!(known.into_iter().eq(64..128), "each symbol is told once");
        prop_assert!((0..64).all(|index| store.symbol(SourceId(64 + index)) == Some(&symbol(index)[..])));
        store.release_before(SourceId(128));
        prop_assert!(store.memory() < 256 * size_of::<Option<u64>>(), "{} bytes", store.memory());
    }
}

#[test]
fn a_source_symbol_longer_than_short_repairs_is_the_peers_fault() {
    let mut store = Generations::new(SLOT, 64, Elimination::WhenStuck, 256, SourceId(0));
    let id = RepairId { first: SourceId(0), count: 64, key: 0 };
    assert_eq!(store.receive_repair(Code::Rlc16, id, &[1; 4]), Ok(Reception::Innovative));
    assert_eq!(store.receive_repair(Code::Rlc16, RepairId { key: 1, ..id }, &[1; 6]), Err(CloseCode::Protocol));
    assert_eq!(store.receive_source(SourceId(5), &[1; 5]), Err(CloseCode::Protocol));
}
