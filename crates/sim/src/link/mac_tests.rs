//! Tests of what a link does beside drop-tail queues: retransmission, and fates that are settled late.

use core::time::Duration;
use std::path::Path;

use tidewire_proto::Time;

use super::*;

fn link(settings: &[(&str, &str)]) -> Link<u32> {
    let mut config = LinkConfig::default();
    settings.iter().for_each(|(key, text)| config.set(key, text, Path::new("")).unwrap());
    Link::new(&config)
}

/// Sends `count` datagrams of 972 bytes, 1,000 with headers, `every` so often. Returns each delay.
fn delays(link: &mut Link<u32>, count: u32, every: Duration) -> Vec<(u32, Duration)> {
    let (mut sent, mut arrived) = (0, Vec::new());
    loop {
        let next = Time::ZERO + every * sent;
        let now = match link.poll_timeout() {
            Some(due) if sent == count || due < next => due,
            _ if sent == count => return arrived,
            _ => next,
        };
        while let Some(delivery) = link.poll_delivery(now) {
            arrived.push((delivery.payload, delivery.at.since(Time::ZERO + every * delivery.payload)));
        }
        if sent < count && now == next {
            link.send(now, 972, sent);
            sent += 1;
        }
        let stats = link.stats();
        assert_eq!(stats.offered, stats.accounted(), "{stats:?}");
    }
}

#[test]
fn arq_turns_loss_into_delay_with_the_mean_of_the_formula() {
    for (loss, retries) in [(0.1, 7), (0.3, 2)] {
        let arq = format!("{retries},2ms");
        let text = format!("{}%", 100.0 * loss);
        let mut link = link(&[("delay", "10ms"), ("loss", &text), ("arq", &arq)]);
        let arrived = delays(&mut link, 100_000, Duration::from_millis(100));
        // A datagram fails k times before it passes with probability p^k (1 - p), for k up to the retries.
        let terms: Vec<f64> = (0..=retries).map(|k| f64::powi(loss, k) * (1.0 - loss)).collect();
        let passed: f64 = terms.iter().sum();
        let failures = terms.iter().zip(0..).map(|(term, k)| term * f64::from(k)).sum::<f64>() / passed;
        let mean = arrived.iter().map(|(_, delay)| delay.as_secs_f64()).sum::<f64>() / arrived.len() as f64;
        // The number of failures has a deviation below 1, and its mean over 100,000 one below 0.0032.
        assert!((mean - (0.010 + 0.002 * failures)).abs() < 4.0 * 0.002 * 0.0032, "{mean} {failures}");
        let lost = 1.0 - arrived.len() as f64 / 100_000.0;
        assert!((lost - (1.0 - passed)).abs() < 4.0 * ((1.0 - passed) / 100_000.0).sqrt() + 1e-5, "{lost}");
        assert!(arrived.iter().all(|(_, delay)| *delay <= Duration::from_millis(10 + 2 * retries as u64)));
    }
}

#[test]
fn attempts_take_capacity_and_order_is_kept_or_not() {
    for (arq, is_ordered) in [("20,5ms", true), ("20,5ms,unordered", false)] {
        // 1,000 bytes take 1 ms, and 5 of 4 attempts at 20 % loss take 1.25 ms.
        let mut link = link(&[("rate", "8mbit"), ("loss", "20%"), ("queue", "100s"), ("arq", arq)]);
        let arrived = delays(&mut link, 20_000, Duration::from_micros(1_000));
        assert_eq!(arrived.len(), 20_000);
        let (last, delay) = arrived[arrived.len() - 1];
        let took = (Duration::from_micros(1_000) * last + delay).as_secs_f64();
        assert!((took / 25.0 - 1.0).abs() < 0.02, "{took}");
        assert_eq!(arrived.windows(2).all(|pair| pair[0].0 < pair[1].0), is_ordered);
        assert_eq!(link.stats().reordered == 0, is_ordered);
        let repeated = link.stats().attempts_repeated() as f64;
        assert!((repeated / 5_000.0 - 1.0).abs() < 0.06, "{repeated}");
    }
}

#[test]
fn a_blackout_costs_attempts_and_not_the_datagram() {
    let mut link = link(&[("delay", "10ms"), ("blackout", "0s..5ms"), ("arq", "3,2ms")]);
    // Attempts at 0, 2 and 4 ms fail.
    assert_eq!(link.send(Time::ZERO, 972, 0), Fate::Carried { arrives: Time::from_millis(16) });
    assert_eq!(link.stats().attempts_repeated(), 3);
}

#[test]
fn a_backlog_serves_as_the_bottleneck_does() {
    // A CoDel queue that never drops, with the same limit.
    let settings = |discipline| [("rate", "8mbit"), ("queue", "5kB"), ("loss", "10%"), ("discipline", discipline)];
    let run = |discipline: &'static str| {
        let mut link = link(&settings(discipline));
        let arrived = delays(&mut link, 5_000, Duration::from_micros(900));
        (arrived, *link.stats())
    };
    assert_eq!(run("drop-tail"), run("codel:10s,100s"));
}

#[test]
fn an_open_end_passes_on_what_its_owner_hands_in() {
    let mut link = link(&[("loss", "100%")]);
    link.open();
    assert_eq!(link.send_from(Time::ZERO, 5, true, 7), Fate::Waits);
    let Departure { len, supports_marks, payload } = link.poll_departure().unwrap();
    assert_eq!((len, supports_marks, payload, link.poll_timeout()), (5, true, 7, None));
    let delivery = Delivery { payload, at: Time::from_millis(3), corruption: None, marked: true };
    link.hand(delivery.clone());
    assert_eq!((link.poll_timeout(), link.poll_delivery(Time::from_millis(2))), (Some(Time::from_millis(3)), None));
    assert_eq!(link.poll_delivery(Time::from_millis(3)), Some(delivery));
    assert_eq!(link.stats().offered, 0);
}

#[test]
fn links_of_one_medium_take_turns() {
    let settings = [("rate", "8mbit"), ("medium", "radio"), ("queue", "1s")];
    let (mut one, mut other) = (link(&settings), link(&settings));
    share_media([&mut one, &mut other]);
    for n in 0..4 {
        one.send(Time::ZERO, 972, n);
        other.send(Time::ZERO, 972, n);
    }
    let mut order = Vec::new();
    while let Some(now) = one.poll_timeout().into_iter().chain(other.poll_timeout()).min() {
        for (name, link) in [('a', &mut one), ('b', &mut other)] {
            while let Some(delivery) = link.poll_delivery(now) {
                order.push((name, delivery.payload, delivery.at));
            }
        }
    }
    let turn = |n: u64| (if n.is_multiple_of(2) { 'a' } else { 'b' }, n as u32 / 2, Time::from_millis(n + 1));
    assert_eq!(order, (0..8).map(turn).collect::<Vec<_>>());
}
