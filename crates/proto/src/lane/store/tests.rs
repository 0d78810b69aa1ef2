//! The store of generations against a sender that is as simple as can be.

use proptest::prelude::*;
use tidewire_codec::{Code, Generation, Reception, RepairId, SourceId};

use super::generations::Generations;
use crate::close::CloseCode;

const SLOT: usize = 64;

/// What leaves for one generation: its source symbols and some repairs.
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

/// A symbol as it was sent, zeros behind its end left out.
fn is_sent(id: u64, symbol: &[u8]) -> bool {
    let sent = source(id);
    symbol.get(..sent.len()) == Some(&sent[..]) && symbol[sent.len()..].iter().all(|&byte| byte == 0)
}

proptest! {
    /// Whatever is lost, in whatever order the rest and the results of jobs come: a generation is reported as
    /// soon as it has as many packets as symbols (Cauchy), and all of it is there when its job is done.
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
        let mut store = Generations::new(SLOT, 20, 1_024, SourceId(0));
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
            let rows: u64 = generations.iter().map(rows).sum();
            prop_assert_eq!(store.rank_deficit(), lacking.len() as u64 - rows);
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
    let mut store = Generations::new(SLOT, 20, 256, SourceId(0));
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
    let mut store = Generations::new(SLOT, 20, 256, SourceId(0));
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
    let mut store = Generations::new(SLOT, 20, 256, SourceId(0));
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
