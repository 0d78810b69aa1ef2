//! Tests of policers and slots: cases computed by hand, and an independent computation of the fate of each
//! datagram over random links.
//!
//! The computation uses other means than the link. It walks from slot to slot in fractions of a nanosecond,
//! and knows a bucket by the time at which it will be full (ITU-T I.371, the virtual scheduling algorithm).

use core::time::Duration;
use std::collections::VecDeque;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use tidewire_units::Rate;

fn config(settings: &[(&str, &str)]) -> LinkConfig {
    let mut config = LinkConfig { headers: 0, ..LinkConfig::default() };
    settings.iter().for_each(|(key, text)| config.set(key, text, Path::new("")).unwrap());
    config.check().unwrap();
    config
}

fn link(settings: &[(&str, &str)]) -> Link<usize> {
    Link::new(&config(settings))
}

fn carried(micros: u64) -> Fate {
    Fate::Carried { arrives: Time::from_micros(micros) }
}

#[test]
fn a_bucket_passes_its_burst_and_then_its_rate() {
    // 8 Mbit/s is one byte per microsecond.
    let mut link = link(&[("police", "8mbit:3kB"), ("delay", "5ms")]);
    let mut send = |micros, len| link.send(Time::from_micros(micros), len, 0);
    assert_eq!(send(0, 1_000), carried(5_000));
    assert_eq!(send(0, 2_000), carried(5_000), "exactly empty");
    assert_eq!(send(0, 1), Fate::Policed);
    assert_eq!(send(999, 1_000), Fate::Policed);
    assert_eq!(send(1_000, 1_000), carried(6_000), "the dropped one took no tokens");
    assert_eq!(send(1_600, 601), Fate::Policed);
    assert_eq!(send(1_600, 500), carried(6_600), "a shorter one may pass");
    assert_eq!(send(1_000_000, 3_001), Fate::Policed, "longer than the bucket");
    assert_eq!(send(1_000_000, 3_000), carried(1_005_000));
    assert_eq!((link.stats().policed(), link.stats().accounted()), (4, 9));
}

#[test]
fn a_policer_is_behind_the_queue_and_before_the_loss() {
    // 1,000 bytes leave the queue at each millisecond, and the bucket gains 500 bytes meanwhile.
    let fates = |settings: &[(&str, &str)]| -> Vec<Fate> {
        let mut link = link(&[&[("rate", "8mbit"), ("queue", "1s")], settings].concat());
        (0..9).map(|n| link.send(Time::ZERO, 1_000, n)).collect()
    };
    let policed = |fates: &[Fate]| -> Vec<usize> { (0..9).filter(|&n| fates[n] == Fate::Policed).collect() };
    let plain = fates(&[("police", "4mbit:2kB")]);
    assert_eq!(policed(&plain), [3, 5, 7], "{plain:?}");
    assert_eq!(plain[8], carried(9_000), "dropped ones took their time at the rate");
    // Everything that leaves the queue meets the bucket, also what is lost later.
    let lossy = fates(&[("police", "4mbit:2kB"), ("loss", "100%"), ("arq", "2,0ms")]);
    let other: Vec<_> = lossy.iter().filter(|&&fate| fate != Fate::Policed).collect();
    assert!(other.iter().all(|&&fate| fate == Fate::Lost), "{lossy:?}");
    let dark = fates(&[("police", "4mbit:2kB"), ("blackout", "0s..1s")]);
    assert_eq!((policed(&dark), dark[0]), (vec![3, 5, 7], Fate::BlackedOut));
}

#[test]
fn a_policer_leaves_the_draws_of_those_that_pass_alone() {
    let run = |police| {
        let settings = [("loss", "gilbert:20%,3"), ("corrupt", "30%"), ("jitter", "1ms"), ("police", police)];
        let mut link = link(&settings);
        let mut now = Time::ZERO;
        // Every second one is policed, because it is longer than the bucket.
        for n in 0..2_000 {
            now += Duration::from_millis(if police == "none" { 2 } else { 1 });
            let len = if n % 2 == 1 { 100 } else { 2_000 };
            if len == 100 || police != "none" {
                link.send(now, len, n);
            }
        }
        let deliveries = std::iter::from_fn(|| link.poll_delivery(Time::NEVER));
        deliveries.map(|delivery| (delivery.payload, delivery.corruption)).collect::<Vec<_>>()
    };
    assert_eq!(run("none"), run("1gbit:100B"));
}

#[test]
fn a_policer_begins_after_its_volume_and_changes_at_its_times() {
    let mut link = link(&[("police", "8mbit:1kB after 2kB, 50ms.. none, 80ms.. 80mbit:1kB, 90ms.. 8mbit:2kB")]);
    let mut passes = |micros, len| link.send(Time::from_micros(micros), len, 0) == carried(micros);
    assert!(passes(0, 1_500) && passes(0, 1_500), "the one that exceeds the volume passes");
    assert!(passes(0, 1_000) && !passes(0, 1), "the bucket is full when it begins");
    assert!(passes(10_000, 1_000) && !passes(49_999, 1_001) && passes(50_000, 1_001));
    assert!((0..30).all(|n| passes(50_000 + 1_000 * n - n / 29, 1_500)));
    assert!(passes(80_000, 1_000) && !passes(80_010, 101) && passes(80_010, 100));
    assert!(passes(90_000, 2_000) && !passes(90_000, 1) && passes(90_500, 500));
}

#[test]
fn a_calmed_link_polices_no_more() {
    let mut link = link(&[("police", "1kbit:1B")]);
    assert_eq!(link.send(Time::ZERO, 100, 0), Fate::Policed);
    link.calm();
    assert_eq!(link.send(Time::ZERO, 100, 0), carried(0));
}

#[test]
fn a_slotted_link_splits_its_work_and_holds_what_comes_while_closed() {
    // Open from 0 to 2 ms, 10 to 12 ms, and so on. 1,000 bytes take 1 ms.
    let mut link = link(&[("rate", "8mbit"), ("slot", "10ms:2ms"), ("queue", "3kB"), ("delay", "1ms")]);
    let mut send = |micros, len| link.send(Time::from_micros(micros), len, 0);
    assert_eq!(send(0, 1_000), carried(2_000));
    assert_eq!(send(0, 500), carried(2_500));
    assert_eq!(send(0, 1_000), carried(11_500), "half of it in the next slot");
    assert_eq!(send(0, 1_500), carried(13_000), "exactly until the end of the slot");
    assert_eq!(send(0, 1_000), Fate::QueueFull, "2,500 bytes wait");
    assert_eq!(send(12_000, 1_000), carried(22_000), "what comes at the end of a slot waits for the next one");
    assert_eq!(send(15_000, 1_000), carried(23_000));
    assert_eq!(send(15_000, 1_001), Fate::QueueFull, "what waits for an opening is in the queue");
    assert_eq!(send(30_500, 1_000), carried(32_500), "idle and open");
    assert_eq!(link.stats().max_queueing(), Duration::from_micros(10_500), "the one until the end of its slot");
}

#[test]
fn a_saturated_slotted_link_carries_its_rate_times_the_open_part() {
    // 7,654,321 bit/s for 3 of every 7 ms, in datagrams whose work no slot holds a whole number of times.
    let mut link = link(&[("rate", "7654321bit"), ("slot", "7ms:3ms"), ("queue", "1GB")]);
    let count = 70_000u64;
    let fates: Vec<_> = (0..count).map(|_| link.send(Time::ZERO, 1_237, 0)).collect();
    let work = u128::from(count) * 1_237 * 8_000_000_000 / 7_654_321;
    let arrives = (work / 3_000_000) * 7_000_000 + work % 3_000_000;
    assert_eq!(fates.last(), Some(&Fate::Carried { arrives: Time(arrives as u64) }));
}

#[test]
fn always_open_slots_change_nothing() {
    let run = |settings: &[(&str, &str)]| {
        let mut link = link(&[&[("rate", "7654321bit"), ("queue", "9kB")], settings].concat());
        (0..999).map(|n| link.send(Time(n * 1_300_007), 1_237, 0)).collect::<Vec<_>>()
    };
    assert_eq!(run(&[("slot", "1ms:1ms")]), run(&[]));
}

#[test]
fn repetitions_use_slots_too() {
    // Attempts end at 1, 2, 11 and 12 ms.
    let mut link = link(&[("rate", "8mbit"), ("slot", "10ms:2ms"), ("arq", "3,0ms"), ("blackout", "0s..11.5ms")]);
    assert_eq!(link.send(Time::ZERO, 1_000, 0), carried(12_000));
    assert_eq!(link.stats().attempts_repeated(), 3);
}

#[test]
fn links_of_one_medium_keep_their_slots() {
    let settings = [("rate", "8mbit"), ("slot", "10ms:2ms"), ("medium", "radio"), ("queue", "1s")];
    let (mut one, mut other) = (link(&settings), link(&settings));
    share_media([&mut one, &mut other]);
    (0..2).for_each(|n| {
        one.send(Time::ZERO, 1_000, n);
        other.send(Time::ZERO, 1_000, n);
    });
    let mut arrivals = Vec::new();
    while let Some(now) = one.poll_timeout().into_iter().chain(other.poll_timeout()).min() {
        for link in [&mut one, &mut other] {
            arrivals.extend(std::iter::from_fn(|| link.poll_delivery(now)).map(|delivery| delivery.at));
        }
    }
    assert_eq!(arrivals, [1, 2, 11, 12].map(Time::from_millis));
}

/// What the reference says of a datagram. A number is the time of its arrival in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Arrives(u64),
    QueueFull,
    Policed,
}

/// The independent computation; see the module.
struct Reference {
    /// Bits per second, and period and open time in nanoseconds; `None` is an unlimited link.
    rate: Option<(u128, [u128; 2])>,
    limit: u64,
    /// When the server is free, in nanoseconds times the rate.
    free: u128,
    /// When the datagrams that wait are served, in nanoseconds times the rate, and their lengths.
    waiting: VecDeque<(u128, u64)>,
    steps: Vec<PoliceStep>,
    /// Datagrams of the present step that met the policer before its bucket, in bytes; and when the bucket
    /// will be full, in nanoseconds times the rate of the bucket.
    step: Option<(usize, u64, u128)>,
}

impl Reference {
    fn new(config: &LinkConfig, limit: u64) -> Self {
        // Without slots, one that stays open for a quarter of an hour follows the other.
        let always = [1_000_000_000_000; 2];
        let slots = config.mac.slots.map_or(always, |slots| [slots.period(), slots.open()].map(|time| time.as_nanos()));
        let rate = match &config.capacity {
            Capacity::Fixed(rate) => Some((u128::from(rate.bits_per_second()), slots)),
            _ => None,
        };
        let steps = config.police.steps().to_vec();
        Self { rate, limit, free: 0, waiting: VecDeque::new(), steps, step: None }
    }

    fn send(&mut self, now: u64, bytes: u64) -> Expected {
        let Some(left) = self.leaves(now, bytes) else { return Expected::QueueFull };
        if self.admits(left, bytes) { Expected::Arrives(left) } else { Expected::Policed }
    }

    /// When the last byte leaves the queue; `None` if the queue is full.
    fn leaves(&mut self, now: u64, bytes: u64) -> Option<u64> {
        let Some((rate, [period, open])) = self.rate else { return Some(now) };
        let (at, period, open) = (u128::from(now) * rate, period * rate, open * rate);
        let opening = |time: u128| if time % period < open { time } else { time - time % period + period };
        let mut time = opening(self.free.max(at));
        self.waiting.retain(|&(start, _)| start / rate > u128::from(now));
        if time / rate > u128::from(now) {
            if self.waiting.iter().map(|(_, bytes)| bytes).sum::<u64>() + bytes > self.limit {
                return None;
            }
            self.waiting.push_back((time, bytes));
        }
        let mut work = u128::from(bytes) * 8_000_000_000;
        loop {
            let part = work.min(open - time % period);
            (time, work) = (time + part, work - part);
            if work == 0 {
                self.free = time;
                return Some((time / rate) as u64);
            }
            time = opening(time);
        }
    }

    fn admits(&mut self, at: u64, bytes: u64) -> bool {
        let now = Duration::from_nanos(at);
        let Some(index) = self.steps.iter().rposition(|step| step.from <= now) else { return true };
        let Some(TokenBucket { rate, burst, after }) = self.steps[index].bucket else { return true };
        let (_, free, full) = self.step.filter(|(step, ..)| *step == index).unwrap_or((index, 0, 0));
        let at = u128::from(at) * u128::from(rate.bits_per_second());
        let cost = u128::from(bytes) * 8_000_000_000;
        let would_be_full = full.max(at) + cost;
        let (is_free, conforms) = (free < after, would_be_full - at <= u128::from(burst) * 8_000_000_000);
        let full = if conforms && !is_free { would_be_full } else { full };
        self.step = Some((index, if is_free { free + bytes } else { free }, full));
        is_free || conforms
    }
}

prop_compose! {
    fn any_bucket()(
        rate in prop_oneof![1u64..100_000_000, Just(8_000_000u64)],
        burst in 1u64..20_000,
        after in prop_oneof![Just(0u64), 0u64..100_000],
    ) -> TokenBucket {
        TokenBucket { rate: Rate::from_bits_per_second(rate).unwrap(), burst, after }
    }
}

prop_compose! {
    fn any_police()(
        buckets in proptest::collection::vec((1u64..60_000_000, proptest::option::weighted(0.8, any_bucket())), 0..4),
        first in any::<bool>(),
    ) -> Police {
        let mut from = Duration::ZERO;
        let steps = buckets.into_iter().enumerate().map(|(n, (later, bucket))| {
            from += Duration::from_nanos(if first && n == 0 { 0 } else { later });
            PoliceStep { from, bucket }
        });
        Police::new(steps).unwrap()
    }
}

prop_compose! {
    fn any_slots()(
        period in prop_oneof![50_000u64..20_000_000, Just(10_000_000u64)],
        part in 0.0..1.0f64,
    ) -> Slots {
        // So that the reference walks through some ten slots a datagram at most.
        let open = ((period as f64 * part) as u64).max(40_000);
        Slots::new(Duration::from_nanos(period), Duration::from_nanos(open)).unwrap()
    }
}

proptest! {
    #[test]
    fn each_datagram_has_the_fate_and_the_arrival_of_the_reference(
        rate in proptest::option::weighted(0.8, prop_oneof![10_000_000u64..1_000_000_000, Just(8_000_000u64)]),
        limit in 0u64..30_000,
        slots in proptest::option::of(any_slots()),
        police in any_police(),
        sends in proptest::collection::vec((prop_oneof![Just(0u64), 0u64..1_000_000], 0usize..1_600), 0..200),
    ) {
        let mut config = LinkConfig { police, queue: Some(Queue::Bytes(limit)), headers: 0, ..LinkConfig::default() };
        config.mac.slots = slots.filter(|_| rate.is_some());
        if let Some(rate) = rate {
            config.capacity = Capacity::Fixed(Rate::from_bits_per_second(rate).unwrap());
        }
        let (mut reference, mut link) = (Reference::new(&config, limit), Link::new(&config));
        // A CoDel queue that never drops, whose fates are settled when datagrams leave.
        config.set("discipline", "codel:10s,100s", Path::new("")).unwrap();
        let mut late = Link::new(&config);
        let (mut now, mut expected) = (0, Vec::new());
        for (number, &(gap, len)) in sends.iter().enumerate() {
            now += gap;
            let fate = reference.send(now, len as u64);
            let known = match link.send(Time(now), len, number) {
                Fate::Carried { arrives } => Expected::Arrives(arrives.0),
                Fate::QueueFull => Expected::QueueFull,
                Fate::Policed => Expected::Policed,
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(known, fate, "datagram {} of {} bytes at {}", number, len, now);
            prop_assert_eq!(late.send(Time(now), len, number) == Fate::QueueFull, fate == Expected::QueueFull);
            prop_assert_eq!(link.stats().offered, link.stats().accounted());
            prop_assert_eq!(late.stats().offered, late.stats().accounted());
            expected.push(fate);
        }
        let wanted: Vec<_> = expected.iter().enumerate().filter_map(|(number, fate)| match fate {
            Expected::Arrives(at) => Some((number, Time(*at))),
            Expected::QueueFull | Expected::Policed => None,
        }).collect();
        for link in [&mut link, &mut late] {
            let arrived: Vec<_> = std::iter::from_fn(|| link.poll_delivery(Time::NEVER)).collect();
            let arrived: Vec<_> = arrived.iter().map(|delivery| (delivery.payload, delivery.at)).collect();
            prop_assert_eq!(&arrived, &wanted);
            let policed = expected.iter().filter(|&&fate| fate == Expected::Policed).count();
            prop_assert_eq!(link.stats().policed(), policed as u64);
        }
    }
}
