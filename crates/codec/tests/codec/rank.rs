//! The rank of a growing generation against plain elimination, and against the plans that it allows.

use crate::setup::{activate_kernel, cases};
use proptest::prelude::*;
use tidewire_codec::field::{gf256, gf65536};
use tidewire_codec::{Code, Generation, Rank, RankError, RepairId, SourceId, SpanError};

/// A symbol that a receiver learns of.
#[derive(Clone, Copy, Debug)]
enum Event {
    Source(u16),
    Repair { count: u16, key: u16 },
    End,
}

/// Rows over the whole generation, each 0 before the column at its place and 1 there.
struct Naive {
    code: Code,
    rows: Vec<Option<Vec<u16>>>,
}

impl Naive {
    fn mul(&self, a: u16, b: u16) -> u16 {
        if self.code == Code::Rlc16 { gf65536::mul(a, b) } else { gf256::mul(a as u8, b as u8).into() }
    }

    fn inv(&self, a: u16) -> u16 {
        if self.code == Code::Rlc16 { gf65536::inv(a) } else { gf256::inv(a as u8).into() }
    }

    /// Whether the row is innovative.
    fn add(&mut self, mut row: Vec<u16>) -> bool {
        row.resize(self.rows.len(), 0);
        for at in 0..row.len() {
            if row[at] == 0 {
                continue;
            }
            let Some(known) = &self.rows[at] else {
                let scale = self.inv(row[at]);
                self.rows[at] = Some(row.iter().map(|&c| self.mul(c, scale)).collect());
                return true;
            };
            let factor = row[at];
            row = row.iter().zip(known).map(|(&c, &k)| c ^ self.mul(factor, k)).collect();
        }
        false
    }

    fn rank(&self) -> u16 {
        self.rows.iter().flatten().count() as u16
    }
}

fn row(code: Code, id: RepairId) -> Vec<u16> {
    code.row(id).map(u16::from).chain(code.row_16(id)).collect()
}

/// The most symbols that a generation may have, how many it has, and which symbols arrive, in any order. Few
/// keys and spans, so that many repairs are dependent.
fn history() -> impl Strategy<Value = (Generation, u16, Vec<Event>)> {
    let dense = prop_oneof![Just(Code::Rlc), Just(Code::Rlc8681), Just(Code::Cauchy), Just(Code::Rlc16)];
    let sparse = prop_oneof![
        (1..=300u16, 1..=900u16).prop_map(|(c_milli, delta_milli)| Code::Lt { c_milli, delta_milli }),
        (1..=60u16).prop_map(|degree| Code::SemiRandomLt { degree }),
    ];
    let code = prop_oneof![2 => dense, 1 => sparse];
    (code, 1..=100u16, 0..60u16, 0..1_000u64).prop_flat_map(|(code, count, more, first)| {
        let longest = Generation::new(code, count + more).unwrap().at(SourceId(first)).unwrap();
        let spans = 1.max(count.saturating_sub(5))..=count;
        let event = prop_oneof![
            3 => (0..count).prop_map(Event::Source),
            2 => (spans, 0..40u16).prop_map(|(count, key)| Event::Repair { count, key }),
            1 => (1..=count, 0..40u16).prop_map(|(count, key)| Event::Repair { count, key }),
        ];
        let events = prop::collection::vec(event, 0..3 * usize::from(count));
        let sources: Vec<Event> = (0..count).map(Event::Source).collect();
        let most = sources.len();
        let some = prop::sample::subsequence(sources, most * 3 / 4..=most);
        let events = (events, some).prop_map(|(mut events, some)| {
            events.extend(some);
            events.push(Event::End);
            events
        });
        (Just(longest), Just(count), events.prop_shuffle())
    })
}

/// Memory that the documentation of [`Rank`] promises.
fn bound(most_lacking: usize, count: u16) -> usize {
    (most_lacking + 64).pow(2) + 32 * usize::from(count)
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn the_rank_is_that_of_elimination_and_a_generation_is_recovered_when_it_has_a_plan(
        (longest, count, events) in history(),
    ) {
        let code = longest.code();
        let generation = Generation::new(code, count).unwrap().at(longest.first()).unwrap();
        let mut rank = Rank::new(longest);
        let mut naive = Naive { code, rows: vec![None; count.into()] };
        let (mut seen, mut has_ended, mut most_lacking) = (0, false, 0);
        let (mut arrived, mut innovative) = (vec![false; count.into()], Vec::new());
        for event in events {
            match event {
                Event::Source(index) => {
                    seen = seen.max(index + 1);
                    arrived[usize::from(index)] = true;
                    let mut unit = vec![0; usize::from(index) + 1];
                    unit[usize::from(index)] = 1;
                    prop_assert_eq!(rank.add_source(index), Ok(naive.add(unit)), "{:?}", event);
                }
                Event::Repair { count, key } => {
                    let id = RepairId { first: longest.first(), count, key };
                    seen = seen.max(count);
                    let is_innovative = naive.add(row(code, id));
                    if is_innovative {
                        innovative.push(id);
                    }
                    prop_assert_eq!(rank.add_repair(count, key), Ok(is_innovative), "{:?}", event);
                }
                Event::End => {
                    (seen, has_ended) = (count, true);
                    prop_assert_eq!(rank.end(count), Ok(()));
                }
            }
            prop_assert_eq!((rank.count(), rank.has_ended()), (seen, has_ended));
            prop_assert_eq!(rank.deficit(), seen - naive.rank(), "after {:?}", event);
            let lacking: Vec<u16> = rank.lacking().collect();
            prop_assert!(lacking.iter().copied().eq((0..seen).filter(|&index| !arrived[usize::from(index)])));
            most_lacking = most_lacking.max(lacking.len());
            prop_assert!(rank.memory() <= bound(most_lacking, count), "{} bytes", rank.memory());
            if has_ended {
                let plan = generation.plan_from(&lacking, &innovative);
                prop_assert_eq!(rank.is_recovered(), plan.is_ok(), "after {:?}: {:?}", event, plan);
            } else {
                prop_assert!(!rank.is_recovered());
            }
        }
    }
}

/// A generation of the greatest length: first only repair symbols arrive, then sources in any order.
#[test]
fn the_longest_generation_is_counted_in_bounded_memory() {
    activate_kernel();
    for code in [Code::Rlc, Code::Rlc16] {
        let mut rank = Rank::new(Generation::new(code, 1_024).unwrap());
        for key in 0..512 {
            assert_eq!(rank.add_repair(1_024 - 511 + key, key), Ok(true));
        }
        let memory = rank.memory();
        assert!(memory > 512 * 512 && memory <= bound(1_024, 1_024), "{code:?}: {memory} bytes");
        assert_eq!(rank.end(1_024), Ok(()));
        for index in (0..1_024).map(|i: u32| (i * 393 % 1_024) as u16).take(511) {
            assert_eq!(rank.add_source(index), Ok(true));
        }
        assert_eq!((rank.deficit(), rank.is_recovered()), (1, false));
        let key = (600..).find(|&key| rank.add_repair(1_024, key) == Ok(true));
        assert!(key.is_some_and(|key| key < 605) && rank.is_recovered());
        assert!(rank.memory() <= bound(1_024, 1_024), "{code:?}: {} bytes", rank.memory());
        for index in (0..1_024).map(|i: u32| (i * 393 % 1_024) as u16).skip(511) {
            assert_eq!(rank.add_source(index), Ok(false));
        }
        assert_eq!((rank.deficit(), rank.lacking().count()), (0, 0));
    }
}

#[test]
fn contradictions_are_named_and_change_nothing() {
    let mut rank = Rank::new(Generation::new(Code::Cauchy, 10).unwrap().at(SourceId(30)).unwrap());
    assert_eq!(rank.add_source(10), Err(RankError::SourceOutside { index: 10, limit: 10 }));
    assert_eq!(rank.add_repair(11, 0), Err(RankError::RepairOutside { count: 11, limit: 10 }));
    assert_eq!(rank.add_repair(0, 0), Err(SpanError::Empty.into()));
    assert_eq!(rank.add_repair(10, 246), Err(SpanError::KeyTooLarge { key: 246, count: 10 }.into()));
    assert_eq!(rank.end(0), Err(RankError::EndContradicts { count: 0, least: 1, most: 10 }));
    assert_eq!((rank.count(), rank.deficit(), rank.memory()), (0, 0, 0));
    assert_eq!((rank.add_source(4), rank.add_repair(6, 0)), (Ok(true), Ok(true)));
    for count in [5, 11] {
        assert_eq!(rank.end(count), Err(RankError::EndContradicts { count, least: 6, most: 10 }));
    }
    assert_eq!((rank.count(), rank.deficit(), rank.has_ended()), (6, 4, false));
    assert_eq!((rank.end(7), rank.end(7), rank.most()), (Ok(()), Ok(()), 7));
    assert_eq!(rank.end(8), Err(RankError::EndContradicts { count: 8, least: 7, most: 7 }));
    assert_eq!(rank.add_source(7), Err(RankError::SourceOutside { index: 7, limit: 7 }));
    assert_eq!(rank.add_repair(8, 1), Err(RankError::RepairOutside { count: 8, limit: 7 }));
    assert_eq!((rank.count(), rank.deficit()), (7, 5));
}
