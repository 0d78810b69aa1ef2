//! Tests of the link: cases computed by hand, statistics within four standard deviations (of a fixed seed, so
//! the result never changes), and the link's promises over random configurations.

use core::time::Duration;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use tidewire_units::{Probability, Rate};

const MS: Duration = Duration::from_millis(1);
const MICRO: Duration = Duration::from_micros(1);

/// 8 Mbit/s is one byte per microsecond. Without headers, a datagram of n bytes takes n microseconds.
fn byte_a_microsecond() -> LinkConfig {
    LinkConfig { capacity: fixed(8_000_000), headers: 0, ..LinkConfig::default() }
}

fn fixed(bits_per_second: u64) -> Capacity {
    Capacity::Fixed(Rate::from_bits_per_second(bits_per_second).unwrap())
}

fn p(value: f64) -> Probability {
    Probability::new(value).unwrap()
}

fn gilbert(loss: f64, mean_burst: f64) -> Loss {
    Loss::Gilbert(Gilbert::new(p(loss), mean_burst).unwrap())
}

fn carried(micros: u64) -> Fate {
    Fate::Carried { arrives: Time::from_micros(micros) }
}

/// Sends `count` datagrams of `len` bytes, `gap` apart. The payload is the number of the datagram.
fn send_all(link: &mut Link<u64>, count: u64, len: usize, gap: Duration) -> Vec<Fate> {
    let mut now = Time::ZERO;
    let mut send = |number| {
        let fate = link.send(now, len, number);
        now += gap;
        fate
    };
    (0..count).map(&mut send).collect()
}

fn drain(link: &mut Link<u64>) -> Vec<Delivery<u64>> {
    std::iter::from_fn(|| link.poll_delivery(Time::NEVER)).collect()
}

fn fates(config: &LinkConfig, count: u64) -> Vec<Fate> {
    send_all(&mut Link::new(config), count, 1_172, MS)
}

fn sums(stats: &LinkStats) -> bool {
    let dropped = stats.queue_dropped + stats.too_long + stats.policed() + stats.lost + stats.blacked_out;
    stats.offered == stats.delivered + dropped + stats.in_flight
}

#[test]
fn a_perfect_link_delivers_at_once_and_untouched() {
    let mut link = Link::new(&LinkConfig::default());
    assert_eq!(link.poll_timeout(), None);
    assert_eq!(link.send(Time(7), 100, 'a'), Fate::Carried { arrives: Time(7) });
    assert_eq!(link.poll_timeout(), Some(Time(7)));
    assert_eq!(link.poll_delivery(Time(6)), None);
    assert_eq!(
        link.poll_delivery(Time(9)),
        Some(Delivery { payload: 'a', at: Time(7), corruption: None, marked: false })
    );
    assert_eq!(link.poll_delivery(Time(9)), None);
}

#[test]
fn delay_follows_serialisation_to_the_nanosecond() {
    let mut link = Link::new(&LinkConfig { delay: 30 * MS, headers: 28, ..byte_a_microsecond() });
    // 972 + 28 header bytes take 1 ms each, one after the other. The third finds the link idle again.
    assert_eq!(link.send(Time::ZERO, 972, 0), carried(31_000));
    assert_eq!(link.send(Time::ZERO, 972, 1), carried(32_000));
    assert_eq!(link.send(Time::from_micros(2_500), 972, 2), carried(33_500));
    assert_eq!(link.stats().max_queueing(), MS);
    assert_eq!(link.stats().mean_queueing(), Duration::from_nanos(333_333));
    assert_eq!(link.stats().offered_bytes, 3_000);
}

#[test]
fn a_busy_link_carries_its_rate_without_drift() {
    // 1,237 bytes at 7,654,321 bit/s take 1,292,864.51... ns. Rounding each alone would drift by 0.4 us per
    // second.
    let config = LinkConfig { capacity: fixed(7_654_321), queue: Some(Queue::Bytes(u64::MAX)), ..byte_a_microsecond() };
    let mut link = Link::new(&config);
    let count = 100_000;
    let last = *send_all(&mut link, count, 1_237, Duration::ZERO).last().unwrap();
    let exact = u128::from(count) * 1_237 * 8 * 1_000_000_000 / 7_654_321;
    assert_eq!(last, Fate::Carried { arrives: Time(exact as u64) });
}

#[test]
fn the_rate_over_a_second_counts_ip_bytes() {
    let config = LinkConfig { capacity: fixed(25_000_000), delay: 30 * MS, ..LinkConfig::default() };
    let mut link = Link::new(&config);
    // 1,200 bytes every 0.3 ms are 32 Mbit/s of payload, so the queue of one round trip overflows.
    send_all(&mut link, 4_000, 1_200, Duration::from_micros(300));
    while link.poll_delivery(Time::from_millis(1_030)).is_some() {}
    let bits = (link.stats().delivered_bytes * 8) as f64;
    assert!((bits / 25e6 - 1.0).abs() < 1e-3, "{bits} bits in a second");
    assert!(link.stats().queue_dropped > 0 && sums(link.stats()));
    // One round trip of waiting, and the rest of the packet in service.
    assert!(link.stats().max_queueing() <= 60 * MS + Duration::from_micros(400), "{:?}", link.stats().max_queueing());
}

#[test]
fn the_queue_drops_exactly_what_does_not_fit() {
    let mut link = Link::new(&LinkConfig { queue: Some(Queue::Bytes(250)), ..byte_a_microsecond() });
    let mut send = |micros, len| link.send(Time::from_micros(micros), len, ());
    assert_eq!(send(0, 1_000), carried(1_000), "the packet in service is not counted, however long");
    assert_eq!(send(0, 100), carried(1_100));
    assert_eq!(send(0, 150), carried(1_250), "exactly full");
    assert_eq!(send(0, 1), Fate::QueueFull);
    assert_eq!(send(999, 1), Fate::QueueFull);
    // At 1,000 us the 100 bytes enter service and make room for as many.
    assert_eq!(send(1_000, 101), Fate::QueueFull);
    assert_eq!(send(1_000, 100), carried(1_350));
    assert_eq!(send(5_000, 9_000), carried(14_000), "an idle link takes any length");
    assert_eq!(link.stats().queue_dropped, 3);
}

#[test]
fn a_queue_given_as_time_holds_what_the_rate_carries_in_it() {
    let mut link = Link::new(&LinkConfig { queue: Some(Queue::Time(2 * MS)), ..byte_a_microsecond() });
    let fates = send_all(&mut link, 10, 500, Duration::ZERO);
    assert_eq!(fates.iter().filter(|&&fate| fate == Fate::QueueFull).count(), 5, "one in service, four waiting");
}

#[test]
fn the_mtu_counts_headers() {
    let mut link = Link::new(&LinkConfig { mtu: Some(1_400), ..LinkConfig::default() });
    assert_eq!(link.send(Time::ZERO, 1_372, ()), carried(0));
    assert_eq!(link.send(Time::ZERO, 1_373, ()), Fate::TooLong);
}

#[test]
fn a_blackout_begins_and_ends_at_its_nanosecond() {
    let blackouts =
        vec![Blackout::once(10 * MS, 20 * MS).unwrap(), Blackout::periodic(100 * MS, 101 * MS, 50 * MS).unwrap()];
    let mut link = Link::new(&LinkConfig { blackouts, ..LinkConfig::default() });
    let mut dead = |at: u64| link.send(Time(at), 1, ()) == Fate::BlackedOut;
    for (start, end) in [(10_000_000, 20_000_000), (100_000_000, 101_000_000), (1_250_000_000, 1_251_000_000)] {
        assert!(!dead(start - 1) && dead(start) && dead(end - 1) && !dead(end), "{start}..{end}");
    }
    // A blackout applies when the last bit leaves the queue.
    let blackouts = vec![Blackout::once(1_000 * MICRO, 1_001 * MICRO).unwrap()];
    let mut link = Link::new(&LinkConfig { blackouts, ..byte_a_microsecond() });
    assert_eq!(link.send(Time::ZERO, 1_000, ()), Fate::BlackedOut);
    assert_eq!(link.send(Time::ZERO, 1, ()), carried(1_001));
    assert!(Blackout::once(MS, MS).is_err());
    assert!(Blackout::periodic(MS, 3 * MS, 2 * MS).is_err());
}

#[test]
fn independent_loss_is_as_frequent_as_asked() {
    for loss in [0.001, 0.05, 0.2, 0.5] {
        let count = 300_000;
        let config = LinkConfig { loss: Loss::Iid(p(loss)), seed: 3, ..LinkConfig::default() };
        let lost = fates(&config, count).iter().filter(|&&fate| fate == Fate::Lost).count() as f64;
        let sigma = (count as f64 * loss * (1.0 - loss)).sqrt();
        assert!((lost - count as f64 * loss).abs() < 4.0 * sigma, "{lost} lost at {loss}");
    }
    let all = LinkConfig { loss: Loss::Iid(p(1.0)), ..LinkConfig::default() };
    assert!(fates(&all, 10_000).iter().all(|&fate| fate == Fate::Lost));
}

#[test]
fn gilbert_has_the_loss_and_the_mean_burst_asked_for() {
    for (loss, burst) in [(0.05, 4.0), (0.1, 4.0), (0.2, 10.0)] {
        let count = 2_000_000;
        let fates = fates(&LinkConfig { loss: gilbert(loss, burst), seed: 5, ..LinkConfig::default() }, count);
        let lost = fates.iter().filter(|&&fate| fate == Fate::Lost).count() as f64;
        let bursts = fates.chunk_by(|a, b| a == b || (*a != Fate::Lost && *b != Fate::Lost));
        let bursts = bursts.filter(|run| run[0] == Fate::Lost).count() as f64;
        assert!((lost / bursts / burst - 1.0).abs() < 0.02, "mean burst {}", lost / bursts);
        // The variance of the mean of a two-state chain is that of independent draws times (1+r)/(1-r), where
        // r is its correlation.
        let r = 1.0 - 1.0 / burst - loss / ((1.0 - loss) * burst);
        let sigma = (count as f64 * loss * (1.0 - loss) * (1.0 + r) / (1.0 - r)).sqrt();
        assert!((lost - count as f64 * loss).abs() < 4.0 * sigma, "{lost} lost at {loss} x {burst}");
    }
}

#[test]
fn gilbert_begins_in_its_steady_state() {
    let first_lost = |seed| {
        let config = LinkConfig { loss: gilbert(0.2, 10.0), seed, ..LinkConfig::default() };
        Link::new(&config).send(Time::ZERO, 1, ()) == Fate::Lost
    };
    let lost = (0..10_000).filter(|&seed| first_lost(seed)).count();
    assert!(lost.abs_diff(2_000) < 160, "{lost} of 10,000; 4 sigma is 160");
}

#[test]
fn gilbert_with_the_burst_of_independent_loss_is_independent_loss() {
    // 1/(1-p) is exact at p = 3/4, so that exactly the same datagrams are lost.
    let iid = LinkConfig { loss: Loss::Iid(p(0.75)), ..LinkConfig::default() };
    let same = LinkConfig { loss: gilbert(0.75, 4.0), ..LinkConfig::default() };
    assert_eq!(fates(&iid, 10_000), fates(&same, 10_000));
    assert_eq!(Gilbert::new(p(0.9), 4.0).unwrap_err().least.round(), 9.0);
    assert!(Gilbert::new(p(0.1), 0.5).is_err() && Gilbert::new(p(0.1), f64::NAN).is_err());
    assert!(Gilbert::new(p(1.0), 1e9).is_err());
}

#[test]
fn a_loss_trace_repeats() {
    let loss = Loss::Trace(Arc::from([false, true, true]));
    let fates = fates(&LinkConfig { loss, ..LinkConfig::default() }, 9);
    let lost: Vec<usize> = (0..9).filter(|&i| fates[i] == Fate::Lost).collect();
    assert_eq!(lost, [1, 2, 4, 5, 7, 8]);
}

#[test]
fn jitter_stays_in_its_range_and_keeps_order() {
    let config = LinkConfig { delay: 30 * MS, jitter: 5 * MS, ..LinkConfig::default() };
    let mut link = Link::new(&config);
    // Far enough apart that datagrams never meet, so this is the plain distribution.
    let fates = send_all(&mut link, 10_000, 1, 10 * MS);
    let delay = |number: usize| match fates[number] {
        Fate::Carried { arrives } => arrives.0 - number as u64 * 10_000_000,
        other => panic!("{other:?}"),
    };
    let (least, most) = ((0..10_000).map(delay).min().unwrap(), (0..10_000).map(delay).max().unwrap());
    assert!((30_000_000..30_010_000).contains(&least) && (34_990_000..=35_000_000).contains(&most), "{least} {most}");

    let mut link = Link::new(&config);
    send_all(&mut link, 10_000, 1, MS / 10);
    assert!(drain(&mut link).is_sorted_by_key(|delivery| (delivery.at, delivery.payload)));
}

#[test]
fn held_back_datagrams_come_late_and_no_other_waits() {
    let reorder = Reorder { probability: p(0.02), by: 3 * MS };
    let mut link = Link::new(&LinkConfig { delay: 30 * MS, reorder, ..LinkConfig::default() });
    let count = 100_000;
    send_all(&mut link, count, 1, MS);
    let deliveries = drain(&mut link);
    assert!(deliveries.is_sorted_by_key(|delivery| delivery.at));
    let extra = |delivery: &Delivery<u64>| delivery.at.0 - (delivery.payload + 30) * 1_000_000;
    assert!(deliveries.iter().all(|delivery| [0, 3_000_000].contains(&extra(delivery))));
    let held = deliveries.iter().filter(|delivery| extra(delivery) > 0).count();
    assert_eq!(held as u64, link.stats().reordered);
    assert!(held.abs_diff(2_000) < 178, "{held} held back; 4 sigma is 177");
    let overtaken = deliveries.windows(2).filter(|pair| pair[0].payload > pair[1].payload).count();
    assert!(overtaken > 1_900, "{overtaken}");
}

#[test]
fn a_duplicate_follows_its_original() {
    let mut link = Link::new(&LinkConfig { duplicate: p(0.01), corrupt: p(0.5), ..LinkConfig::default() });
    send_all(&mut link, 100_000, 50, MS);
    assert_eq!(link.stats().in_flight, 100_000);
    let deliveries = drain(&mut link);
    let pairs = deliveries.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(pairs as u64, link.stats().duplicated);
    assert_eq!(deliveries.len(), 100_000 + pairs);
    assert_eq!(link.stats().delivered, 100_000);
    assert!(pairs.abs_diff(1_000) < 126, "{pairs}; 4 sigma is 126");
}

#[test]
fn impairments_fall_on_each_datagram_independently() {
    let half = p(0.5);
    let reorder = Reorder { probability: half, by: MS };
    let config = LinkConfig { loss: Loss::Iid(half), duplicate: half, corrupt: half, reorder, ..LinkConfig::default() };
    let mut link = Link::new(&config);
    send_all(&mut link, 80_000, 50, 10 * MS);
    let mut combinations = [0u64; 8];
    for copies in drain(&mut link).chunk_by(|a, b| a.payload == b.payload) {
        let Delivery { payload, at, corruption, .. } = copies[0];
        let held = at != Time::ZERO + 10 * MS * payload as u32;
        let traits = [held, corruption.is_some(), copies.len() == 2];
        combinations[traits.iter().fold(0, |bits, &is| bits * 2 + usize::from(is))] += 1;
    }
    // One in sixteen each: 5,000, and four sigma is 274.
    assert!(combinations.iter().all(|count| count.abs_diff(5_000) < 274), "{combinations:?}");
}

#[test]
fn the_copy_is_due_at_the_time_of_its_original() {
    let mut link = Link::new(&LinkConfig { duplicate: p(1.0), delay: MS, ..LinkConfig::default() });
    link.send(Time::ZERO, 1, ());
    assert!(link.poll_delivery(Time::from_millis(1)).is_some());
    assert_eq!(link.poll_timeout(), Some(Time::from_millis(1)));
    assert!(link.poll_delivery(Time::from_millis(1)).is_some());
    assert_eq!(link.poll_timeout(), None);
}

#[test]
fn corruption_changes_one_byte_anywhere() {
    let mut link = Link::new(&LinkConfig { corrupt: p(1.0), ..LinkConfig::default() });
    send_all(&mut link, 10_000, 10, MS);
    let mut changed = [0u32; 10];
    for delivery in drain(&mut link) {
        let mut payload = [0u8; 10];
        delivery.corruption.unwrap().apply(&mut payload);
        assert_eq!(payload.iter().filter(|&&byte| byte != 0).count(), 1);
        (0..10).for_each(|i| changed[i] += u32::from(payload[i] != 0));
    }
    assert!(changed.iter().all(|&n| (880..1_120).contains(&n)), "{changed:?}; 4 sigma is 120");
    assert_eq!(link.stats().corrupted, 10_000);
    assert_eq!(link.send(Time::NEVER, 0, 0), Fate::Carried { arrives: Time::NEVER });
    assert_eq!(link.poll_delivery(Time::NEVER).unwrap().corruption, None, "there is no byte to change");
}

#[test]
fn a_rate_trace_gives_its_mean_rate() {
    // 12 opportunities in 10 ms: 14.4 Mbit/s in two groups.
    let trace = Arc::new(RateTrace::parse("2\n2\n2\n2\n2\n2\n9\n9\n9\n9\n10\n10\n").unwrap());
    let mut link = Link::new(&LinkConfig { capacity: Capacity::Trace(trace), delay: 30 * MS, ..LinkConfig::default() });
    send_all(&mut link, 20_000, 1_172, 60 * MICRO);
    while link.poll_delivery(Time::from_millis(1_030)).is_some() {}
    let bits = (link.stats().delivered_bytes * 8) as f64;
    assert!((bits / 14.4e6 - 1.0).abs() < 1e-3, "{bits} bits in a second");
    assert!(sums(link.stats()));
}

/// All impairments at once.
fn all_impairments() -> LinkConfig {
    LinkConfig {
        capacity: fixed(10_000_000),
        queue: Some(Queue::Time(20 * MS)),
        delay: 30 * MS,
        jitter: 2 * MS,
        reorder: Reorder { probability: p(0.02), by: 3 * MS },
        duplicate: p(0.01),
        corrupt: p(0.01),
        loss: gilbert(0.1, 4.0),
        blackouts: vec![Blackout::periodic(500 * MS, 600 * MS, 1_000 * MS).unwrap()],
        mtu: Some(1_500),
        seed: 11,
        ..LinkConfig::default()
    }
}

#[test]
fn a_warm_link_allocates_nothing() {
    let mut link = Link::new(&all_impairments());
    let mut run = |from: u64, count| {
        for number in from..from + count {
            let now = Time::from_micros(number * 900);
            while link.poll_delivery(now).is_some() {}
            link.send(now, 1_200, number);
        }
        (link.in_order.capacity(), link.held.capacity())
    };
    let warm = run(0, 20_000);
    assert_eq!(run(20_000, 100_000), warm);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let run = |seed| {
        let mut link = Link::new(&LinkConfig { seed, ..all_impairments() });
        let mut log = DefaultHasher::new();
        send_all(&mut link, 20_000, 1_200, Duration::from_micros(900)).hash(&mut log);
        for delivery in drain(&mut link) {
            (delivery.payload, delivery.at, delivery.corruption).hash(&mut log);
        }
        log.finish()
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11), run(12));
}

#[test]
fn switching_one_impairment_off_leaves_the_others_draws_alone() {
    let with = LinkConfig {
        jitter: Duration::ZERO,
        reorder: Reorder::default(),
        capacity: Capacity::Unlimited,
        ..all_impairments()
    };
    let deliveries = |config: &LinkConfig| {
        let mut link = Link::new(config);
        send_all(&mut link, 20_000, 1_200, MS);
        drain(&mut link)
    };
    let full = deliveries(&with);
    // Without loss and blackouts more arrives. What arrived before still arrives unchanged, corruption and
    // copies included.
    let more = deliveries(&LinkConfig { loss: Loss::None, blackouts: Vec::new(), ..with.clone() });
    assert!(more.len() > full.len());
    let mut rest = more.iter();
    assert!(full.iter().all(|delivery| rest.any(|other| other == delivery)));
    // Jitter, corruption, duplication and holding back do not change which datagrams are lost.
    let lost =
        |config: &LinkConfig| -> Vec<bool> { fates(config, 20_000).iter().map(|&fate| fate == Fate::Lost).collect() };
    let only_loss = LinkConfig { loss: gilbert(0.1, 4.0), seed: 11, ..LinkConfig::default() };
    assert_eq!(lost(&LinkConfig { blackouts: Vec::new(), ..all_impairments() }), lost(&only_loss));
}

#[test]
fn a_calmed_link_keeps_only_rate_and_delay() {
    let mut link = Link::new(&all_impairments());
    send_all(&mut link, 1_000, 972, MS);
    drain(&mut link);
    link.calm();
    let before = *link.stats();
    for number in 0..1_000u64 {
        // 1,000 bytes at 10 Mbit/s take 0.8 ms.
        let now = Time::from_millis(2_000 + number);
        let arrives = now + Duration::from_micros(30_800);
        assert_eq!(link.send(now, 972, number), Fate::Carried { arrives });
    }
    assert_eq!(drain(&mut link).len(), 1_000);
    let after = link.stats();
    assert_eq!((after.corrupted, after.duplicated), (before.corrupted, before.duplicated));
}

prop_compose! {
    fn any_config()(
        rate in proptest::option::of(1_000u64..1_000_000_000),
        queue in 0u64..200_000,
        (delay, jitter) in (0u64..50, 0u64..20),
        (held, hold) in (0.0..0.3f64, 0u64..30),
        (duplicate, corrupt, loss) in (0.0..0.3f64, 0.0..0.3f64, 0.0..0.9f64),
        burst in 1.0..20.0f64,
        blackout in proptest::option::of((0u64..100, 1u64..50)),
        mtu in proptest::option::of(500usize..1_500),
        seed: u64,
    ) -> LinkConfig {
        let gilbert = Gilbert::new(p(loss), burst);
        let blackout = blackout.and_then(|(start, length)| {
            Blackout::once(Duration::from_millis(start), Duration::from_millis(start + length)).ok()
        });
        LinkConfig {
            capacity: rate.map_or(Capacity::Unlimited, fixed),
            queue: Some(Queue::Bytes(queue)),
            delay: Duration::from_millis(delay),
            jitter: Duration::from_millis(jitter),
            reorder: Reorder { probability: p(held), by: Duration::from_millis(hold) },
            duplicate: p(duplicate),
            corrupt: p(corrupt),
            loss: gilbert.map_or(Loss::Iid(p(loss)), Loss::Gilbert),
            blackouts: blackout.into_iter().collect(),
            mtu,
            seed,
            ..LinkConfig::default()
        }
    }
}

proptest! {
    #[test]
    fn columns_sum_and_promised_arrivals_happen(
        config in any_config(),
        sends in proptest::collection::vec((0u64..3_000_000, 0usize..1_600), 0..300),
    ) {
        let mut link = Link::new(&config);
        let mut now = Time::ZERO;
        let mut promised = Vec::new();
        let mut arrived = Vec::new();
        for (number, &(gap, len)) in sends.iter().enumerate() {
            now += Duration::from_nanos(gap);
            while let Some(at) = link.poll_timeout().filter(|&at| at <= now) {
                prop_assert!(at == Time::ZERO || link.poll_delivery(Time(at.0 - 1)).is_none(), "early");
                let delivery = link.poll_delivery(at).unwrap();
                prop_assert_eq!(delivery.at, at);
                arrived.push((at, delivery.payload));
            }
            if let Fate::Carried { arrives } = link.send(now, len, number as u64) {
                prop_assert!(arrives >= now + config.delay);
                promised.push((arrives, number as u64));
            }
            prop_assert!(sums(link.stats()), "{:?}", link.stats());
        }
        arrived.extend(drain(&mut link).iter().map(|delivery| (delivery.at, delivery.payload)));
        prop_assert_eq!(link.poll_timeout(), None);
        prop_assert_eq!(link.stats().in_flight, 0);
        prop_assert_eq!(arrived.len() as u64, link.stats().delivered + link.stats().duplicated);
        prop_assert!(arrived.is_sorted());
        arrived.dedup();
        promised.sort();
        prop_assert_eq!(arrived, promised);
    }
}
