//! The peer's packets of a recording, and the fate of each of the peer's packets of a replay.
//!
//! The recorded end knows the packets that arrived and, by their numbers, how many are missing between two
//! of them. One event of a recording can leave a thousand numbers out, so the missing packets between two
//! arrivals are no entries of their own. Invariant: a replay looks at each arrival once, and at any number
//! of missing packets at once.

use core::time::Duration;

use super::Sent;
use super::process::{Pair, Process};
use crate::link::random::{Purpose, Stream};

/// Packets of the peer that can be missing before one. Chosen: more than a long outage leaves.
const MOST_MISSING: u64 = 1_000;

/// A packet of the peer that arrived.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Duration,
    /// Number of packets that are missing since the arrival before. They would have arrived equally far
    /// apart.
    missing: u32,
}

/// The arrivals, in the order of their times; see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    all: Vec<Arrival>,
    /// The number of the next packet, if none is missing.
    next: u64,
}

/// A packet that arrived or is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    arrival: usize,
    /// Number of packets missing before that arrival that come before this one.
    passed: u32,
}

impl Arrivals {
    /// Takes a packet. Its time can be a little earlier than that of the packet before, and counts as equal
    /// then.
    pub(super) fn add(&mut self, at: Duration, number: u64) {
        // A number that the peer skipped on purpose counts as lost: one in some hundred.
        let missing = number.saturating_sub(self.next).min(MOST_MISSING) as u32;
        self.next = self.next.max(number.saturating_add(1));
        self.all.push(match self.all.last() {
            Some(last) => Arrival { at: at.max(last.at), missing },
            None => Arrival { at, missing: 0 },
        });
    }

    /// The process that fits these fates.
    fn process(&self) -> Process {
        let lost: u64 = self.all.iter().map(|arrival| u64::from(arrival.missing)).sum();
        let pairs = (1..self.all.len()).flat_map(|arrival| self.pairs(arrival));
        Process::fit(lost, lost + self.all.len() as u64, pairs)
    }

    /// The pairs of packets in a row from one arrival to the next.
    fn pairs(&self, arrival: usize) -> impl Iterator<Item = Pair> + use<> {
        let (missing, apart) = (self.all[arrival].missing, self.apart(arrival));
        let whole = self.all[arrival].at - self.all[arrival - 1].at;
        let pair = |gap, lost, times| (times > 0).then_some(Pair { gap, lost, times });
        let pairs = match missing {
            0 => [pair(whole, (false, false), 1), None, None],
            _ => [
                pair(apart, (false, true), 1),
                pair(apart, (true, true), u64::from(missing) - 1),
                pair(whole - missing * apart, (true, false), 1),
            ],
        };
        pairs.into_iter().flatten()
    }

    /// Time between two packets in a row before an arrival.
    fn apart(&self, arrival: usize) -> Duration {
        let Some(before) = arrival.checked_sub(1) else { return Duration::ZERO };
        let Arrival { at, missing } = self.all[arrival];
        (at - self.all[before].at) / (missing + 1)
    }

    fn get(&self, Place { arrival, passed }: Place) -> Option<Sent> {
        let &Arrival { at, missing } = self.all.get(arrival)?;
        if passed >= missing {
            return Some(Sent { at, lost: false });
        }
        let before = self.all.get(arrival.checked_sub(1)?)?;
        Some(Sent { at: before.at + (passed + 1) * self.apart(arrival), lost: true })
    }

    fn after(&self, Place { arrival, passed }: Place) -> Place {
        let is_missing = self.all.get(arrival).is_some_and(|arrival| passed < arrival.missing);
        if is_missing { Place { arrival, passed: passed + 1 } } else { Place { arrival: arrival + 1, passed: 0 } }
    }

    /// The newest packet until `at`, and the one after it.
    fn around(&self, at: Duration) -> [Option<Sent>; 2] {
        let arrival = self.all.partition_point(|arrival| arrival.at <= at);
        let before = arrival.checked_sub(1).map(|before| Place { arrival: before, passed: self.all[before].missing });
        let (Some(before), Some(&Arrival { missing, .. })) = (before, self.all.get(arrival)) else {
            return [before.and_then(|before| self.get(before)), self.get(Place { arrival, passed: 0 })];
        };
        let passed = steps(at - self.all[before.arrival].at, self.apart(arrival));
        let passed = passed.map_or(missing, |passed| passed.min(missing));
        let newest = passed.checked_sub(1).map_or(before, |passed| Place { arrival, passed });
        [self.get(newest), self.get(Place { arrival, passed })]
    }

    /// The place from which on packets are not nearer to `at`, from `place` on.
    fn nearest(&self, mut place: Place, at: Duration) -> Place {
        let away = |sent: Sent| sent.at.abs_diff(at);
        while let Some(this) = self.get(place) {
            let missing = self.all[place.arrival].missing;
            // Over the missing packets at once: the next is nearer as long as the middle of both is before
            // `at`.
            let left = missing.saturating_sub(place.passed + 1);
            let apart = self.apart(place.arrival);
            let middles = (2 * at.saturating_sub(this.at) + apart).saturating_sub(Duration::from_nanos(1));
            let nearer = steps(middles, 2 * apart).map_or(0, |steps| steps.min(left));
            place.passed += nearer;
            let next = self.after(place);
            let is_nearer = self.get(next).zip(self.get(place)).is_some_and(|(next, this)| away(next) < away(this));
            if nearer < left || !is_nearer {
                break;
            }
            place = next;
        }
        place
    }
}

/// How many times `step` fits into `time`; `None` for a step of no time.
fn steps(time: Duration, step: Duration) -> Option<u32> {
    let steps = time.as_nanos().checked_div(step.as_nanos())?;
    Some(u32::try_from(steps).unwrap_or(u32::MAX))
}

/// Fates of the peer's packets, by the time at which they arrived or would have arrived. A packet meets the
/// fate that is nearest in time and was not met before; if there is none within the mean gap, it is lost as
/// [`Process`] says.
#[derive(Debug)]
pub(super) struct Back<'a> {
    arrivals: &'a Arrivals,
    process: Process,
    next: Place,
    draws: Stream,
    drawn: u64,
}

impl<'a> Back<'a> {
    pub(super) fn new(arrivals: &'a Arrivals, seed: u64) -> Self {
        let (draws, next) = (Stream::new(!seed, Purpose::Loss), Place::default());
        Self { arrivals, process: arrivals.process(), next, draws, drawn: 0 }
    }

    /// Whether a packet is lost that would arrive at this time.
    pub(super) fn take(&mut self, at: Duration) -> bool {
        let away = |sent: &Sent| sent.at.abs_diff(at);
        self.next = self.arrivals.nearest(self.next, at);
        let nearest = self.arrivals.get(self.next).filter(|sent| away(sent) <= self.process.gap());
        if let Some(sent) = nearest {
            self.next = self.arrivals.after(self.next);
            return sent.lost;
        }
        let [before, after] = self.arrivals.around(at).map(|sent| sent.map(|sent| (away(&sent), sent.lost)));
        let chance = self.process.chance(before, after);
        self.drawn += 1;
        self.draws.unit(self.drawn) < chance
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Each packet as an entry of its own.
    fn entries(arrivals: &Arrivals) -> Vec<Sent> {
        let mut entries = Vec::new();
        for (arrival, &Arrival { at, missing }) in arrivals.all.iter().enumerate() {
            let before = arrival.checked_sub(1).map_or(Duration::ZERO, |before| arrivals.all[before].at);
            let apart = (at - before) / (missing + 1);
            entries.extend((1..=missing).map(|n| Sent { at: before + n * apart, lost: true }));
            entries.push(Sent { at, lost: false });
        }
        entries
    }

    #[test]
    fn each_packet_of_the_peer_meets_the_nearest_fate_once() {
        let mut arrivals = Arrivals::default();
        (0..100).filter(|n| n % 4 != 1).for_each(|n| arrivals.add(ms(10 * n), n));
        let mut back = Back::new(&arrivals, 1);
        // 3 ms late, and one packet left out.
        assert_eq!([3, 13, 33, 43, 53].map(|at| back.take(ms(at))), [false, true, false, false, true]);
        assert!(!Back::new(&Arrivals::default(), 1).take(ms(5)));
    }

    /// Many events that leave many numbers out take the memory of the events.
    #[test]
    fn missing_packets_take_no_memory() {
        let mut arrivals = Arrivals::default();
        (0..10_000).for_each(|n| arrivals.add(ms(n), 1_001 * n));
        assert_eq!((arrivals.all.len(), entries(&arrivals).len()), (10_000, 10_000 + 9_999 * 1_000));
        assert!(arrivals.process().gap() < Duration::from_micros(2));
    }

    proptest! {
        /// Whatever arrives when, the same packets are found as in a list of all packets.
        #[test]
        fn packets_are_found_as_in_a_list_of_all(
            arrived in prop::collection::vec((0_u64..50_000, prop_oneof![Just(0_u64), 0_u64..6, 990_u64..1_010]), 0..30),
            asked in prop::collection::vec(0_u64..200_000, 0..200),
        ) {
            let (mut arrivals, mut micros, mut number) = (Arrivals::default(), 0, 0);
            for (later, missing) in arrived {
                // Some arrive at the same time, and some a little earlier.
                micros = if later < 10_000 { micros - later.min(micros).min(20) } else { micros + later };
                number += missing;
                arrivals.add(Duration::from_micros(micros), number);
                number += 1;
            }
            let entries = entries(&arrivals);
            prop_assert!(entries.is_sorted_by_key(|sent| sent.at));
            let (of_list, of_arrivals) = (Process::of(&entries), arrivals.process());
            prop_assert!(of_list.is_like(&of_arrivals), "{:?} {:?}", of_list, of_arrivals);
            let (mut place, mut index) = (Place::default(), 0);
            for at in asked.into_iter().map(Duration::from_micros) {
                place = arrivals.nearest(place, at);
                let away = |sent: &Sent| sent.at.abs_diff(at);
                while let [this, next, ..] = &entries[index.min(entries.len())..]
                    && away(next) < away(this)
                {
                    index += 1;
                }
                prop_assert_eq!(arrivals.get(place), entries.get(index).copied());
                if at.as_micros() % 3 == 0 {
                    (place, index) = (arrivals.after(place), index + 1);
                }
                let after = entries.partition_point(|sent| sent.at <= at);
                let before = after.checked_sub(1).map(|before| entries[before]);
                prop_assert_eq!(arrivals.around(at), [before, entries.get(after).copied()]);
            }
        }
    }
}
