//! A receiver that reports false arrivals or delays (docs/wire.md section 5): the sender's traffic stays
//! below that of an honest report of a better path, and within the floor of sanity (docs/recovery.md section
//! 2).
//!
//! `proto/tests/hostile/lying.rs` has the lies about all arrivals, told by a scripted peer without a link.
//! Here the receiver is a real one on a real link, which changes its FEEDBACK ([`liar`]).

mod liar;

use core::ops::RangeInclusive;
use core::time::Duration;
use std::sync::Arc;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseCode, CloseReason};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::{Run, Trial, together};
use tidewire_sim::settings::Direction;

use self::liar::{Known, Liar, Lie, Sent, Told, joined};
use super::link;

/// More bytes than any of these links carries.
const ENDLESS: u64 = 1 << 40;
const SAMPLE: Duration = Duration::from_millis(50);
/// Samples of two seconds.
const SPAN: usize = 40;
const SECONDS: usize = 12;

/// A lie that the sender cannot tell from the truth, and what an honest connection keeps beside it in Mbit/s.
type Case = (&'static str, f64, Option<Lie>);

/// The truth, false packet numbers, and false times. A link of 25 Mbit/s leaves each of two honest
/// connections 11.6 Mbit/s. Beside the last three, the least of seeds 1 to 6 was 0.8, 0.2 and 0.07 Mbit/s.
const LIES: [Case; 13] = [
    ("the truth", 10.0, None),
    ("none after two seconds", 20.0, Some(none)),
    ("none and the truth in turns", 15.0, Some(steps)),
    ("a half", 9.0, Some(half)),
    ("a clock 2,000 ppm too fast", 12.0, Some(|told, known| drift(told, known, 2_000))),
    ("a clock 2,000 ppm too slow", 3.5, Some(|told, known| drift(told, known, -2_000))),
    ("a clock 5 % too fast", 3.0, Some(|told, known| drift(told, known, 50_000))),
    ("a clock 5 % too slow", 9.0, Some(|told, known| drift(told, known, -50_000))),
    ("a clock that jumps", 10.0, Some(jumps)),
    ("a delay of a second before FEEDBACK", 20.0, Some(long_delay)),
    ("a clock that runs backwards", 0.4, Some(backwards)),
    ("always the same time", 0.1, Some(same_time)),
    ("never a queue", 0.03, Some(never_a_queue)),
];

fn freeze(told: &mut Told, known: &Known<'_>) {
    if let Some(before) = known.before {
        *told = before.clone();
    }
}

fn none(told: &mut Told, known: &Known<'_>) {
    if known.passed > Duration::from_secs(2) {
        freeze(told, known);
    }
}

fn steps(told: &mut Told, known: &Known<'_>) {
    if known.passed.as_millis() / 500 % 2 == 1 {
        freeze(told, known);
    }
}

fn half(told: &mut Told, _: &Known<'_>) {
    let truth = told.received.clone();
    let newest = *truth[0].end();
    let even = (newest.saturating_sub(80)..=newest).rev().filter(|number| number % 2 == 0);
    let half = joined(even.filter(|number| truth.iter().any(|range| range.contains(number))));
    if !half.is_empty() {
        told.received = half;
    }
}

fn drift(told: &mut Told, known: &Known<'_>, ppm: i64) {
    let arrival = told.arrival.as_micros() as i64 + known.passed.as_micros() as i64 * ppm / 1_000_000;
    told.arrival = Duration::from_micros(arrival.unsigned_abs());
}

/// By up to 0.4 s either way, each 0.7 s.
fn jumps(told: &mut Told, known: &Known<'_>) {
    told.arrival += Duration::from_millis(known.passed.as_millis() as u64 / 700 * 7_919 % 400);
}

fn backwards(told: &mut Told, known: &Known<'_>) {
    told.arrival = Duration::from_secs(200) - known.passed;
}

fn long_delay(told: &mut Told, _: &Known<'_>) {
    told.delay += Duration::from_secs(1);
}

fn same_time(told: &mut Told, _: &Known<'_>) {
    told.arrival = Duration::from_secs(100);
}

/// All packets had the same delay. A receiver cannot know this, but it can guess it from the spacing of
/// packets.
fn never_a_queue(told: &mut Told, known: &Known<'_>) {
    let newest = *told.received[0].end();
    told.arrival = Duration::from_secs(10) + known.sent.left(newest).since(Time::ZERO);
}

type Settings<'a> = [(Direction, &'a str, &'a str)];

/// A stream without end to a receiver that tells this lie.
fn sender(settings: &Settings<'_>, lie: Option<Lie>, seed: u64, beside: Option<&Run>) -> Run {
    let sent = Arc::<Sent>::default();
    let mut trial = Trial::new(link(settings), vec![Flow::bulk(End::Near, ENDLESS)], seed);
    trial.near = Config::default().with_trace(Arc::clone(&sent) as _);
    let mut run = trial.start_beside(beside);
    if let Some(lie) = lie {
        run.pair.set_provider(End::Far, Liar::provider(lie, sent));
    }
    run
}

/// What a sender did.
struct Outcome {
    /// Bytes given to the link, and bytes that it delivered, until each sample.
    samples: Vec<[u64; 2]>,
    /// Most packets without a known fate.
    open: u64,
    confirmed_loss: f64,
    closed: Option<CloseReason>,
}

impl Outcome {
    fn of(settings: &Settings<'_>, lie: Option<Lie>, seed: u64) -> Self {
        let mut run = sender(settings, lie, seed, None);
        let (mut samples, mut open) = (Vec::new(), 0);
        for sample in 0..=SECONDS * SPAN / 2 {
            run.until(run.began() + SAMPLE * sample as u32);
            let report = run.report();
            let packets = report.near.packets;
            open = open.max(packets.sent.saturating_sub(packets.acked + packets.lost));
            samples.push([report.forward.offered_bytes, report.forward.delivered_bytes]);
        }
        let confirmed_loss = run.stats(End::Near).loss.floor.confirmed_loss;
        Self { samples, open, confirmed_loss, closed: run.load.closed[0].clone() }
    }

    fn sent(&self) -> u64 {
        self.samples[self.samples.len() - 1][0]
    }

    /// The most bytes sent for a byte that arrived, over two seconds after the third one. Below 64 packets
    /// per second the floor limits nothing.
    fn worst(&self) -> f64 {
        let windows = self.samples[3 * SPAN / 2..].windows(SPAN + 1);
        let windows = windows.map(|w| [w[SPAN][0] - w[0][0], w[SPAN][1] - w[0][1]]);
        let ratios = windows.filter(|[sent, _]| *sent > 128 * 1_500);
        ratios.map(|[sent, arrived]| sent as f64 / arrived.max(1) as f64).fold(0.0, f64::max)
    }
}

fn seeds() -> RangeInclusive<u64> {
    1..=if tidewire_testing::few_seeds() { 1 } else { 6 }
}

/// An honest receiver on the same link without losses brings the most. A lie that hides the queue adds what
/// the queue then drops: at most 7.6 % in twelve seconds, and no other lie more than 2.1 % (seeds 1 to 6).
/// Packets without a known fate stay below the window.
#[test]
#[ignore = "slow: seconds of processor time"]
fn s10_a_lie_brings_no_more_traffic_than_a_better_path() {
    for (loss, share) in [("0%", 0.0), ("5%", 0.05)] {
        let settings = [(Direction::Both, "queue", "60ms"), (Direction::Forward, "loss", loss)];
        for seed in seeds() {
            let best = Outcome::of(&settings[..1], None, seed).sent();
            for (name, _, lie) in LIES {
                let outcome = Outcome::of(&settings, lie, seed);
                let (sent, worst, open) = (outcome.sent() as f64 / best as f64, outcome.worst(), outcome.open);
                let bound = 1.3 / (1.0 - outcome.confirmed_loss.max(share));
                println!("{name}, {loss} {seed}: {sent:.3} of the best, worst {worst:.3} of {bound:.3}, open {open}");
                assert!(outcome.closed.is_none(), "{name}, {loss} {seed}: {:?}", outcome.closed);
                assert!(sent <= 1.1, "{name}, {loss} {seed}: {sent:.3} of an honest receiver's");
                assert!(worst <= bound, "{name}, {loss} {seed}: {worst:.3} of {bound:.3}");
                assert!(open <= 4_000, "{name}, {loss} {seed}: {open} packets without a fate");
            }
        }
    }
}

/// Claims that fill every gap, or only those of at least two packets, claims of packets on their way, and of
/// packets never sent. The sender finds those of numbers that it never sent or skipped on purpose. It never
/// sends again what was claimed, so at a loss the receiver itself finds that its stream cannot go on.
#[test]
fn s10_a_receiver_that_claims_what_it_did_not_get_ends_the_connection() {
    let all: Lie = |told, _| {
        let newest = *told.received[0].end();
        told.received = vec![newest.saturating_sub(500)..=newest];
    };
    let long_gaps: Lie = |told, _| {
        let mut claimed: Vec<RangeInclusive<u64>> = Vec::new();
        for range in &told.received {
            match claimed.last_mut() {
                Some(last) if *last.start() - range.end() > 2 => *last = *range.start()..=*last.end(),
                _ => claimed.push(range.clone()),
            }
        }
        told.received = claimed;
    };
    let ahead: Lie = |told, _| {
        let first = told.received[0].clone();
        told.received[0] = *first.start()..=*first.end() + 40;
    };
    let never_sent: Lie = |told, known| {
        if known.passed > Duration::from_secs(2) {
            let number = *told.received[0].end() + 10_000;
            told.received.insert(0, number..=number);
        }
    };
    let ours = CloseReason::Fault(CloseCode::Protocol);
    let theirs = CloseReason::Peer { code: CloseCode::Protocol, reason: String::new() };
    for seed in seeds() {
        for (name, lie, loss, reasons) in [
            ("all", all, "0%", &[&ours][..]),
            ("all", all, "5%", &[&theirs]),
            ("long gaps", long_gaps, "5%", &[&ours, &theirs]),
            ("ahead", ahead, "0%", &[&ours]),
            ("never sent", never_sent, "0%", &[&ours]),
        ] {
            let settings = [(Direction::Both, "queue", "60ms"), (Direction::Forward, "loss", loss)];
            let outcome = Outcome::of(&settings, Some(lie), seed);
            println!("{name}, {loss} {seed}: {} bytes, then {:?}", outcome.sent(), outcome.closed);
            let closed = outcome.closed.as_ref();
            assert!(closed.is_some_and(|closed| reasons.contains(&closed)), "{name}, {loss} {seed}: {closed:?}");
        }
    }
}

/// Whichever of two connections on one link starts first. Beside a receiver that hides the queue an honest
/// one keeps little, as beside a sender without a rate control: the sender cannot tell this report from an
/// honest one of a path whose way back has the queue (docs/wire.md section 5).
#[test]
#[ignore = "slow: seconds of processor time"]
fn s10_beside_a_lie_an_honest_connection_keeps_a_part() {
    let settings = [(Direction::Both, "queue", "60ms")];
    for (seed, liar) in seeds().flat_map(|seed| [(seed, 0), (seed, 1)]).skip(usize::from(tidewire_testing::few_seeds()))
    {
        for (name, least, lie) in LIES {
            let told = |run: usize| if run == liar { lie } else { None };
            let first = sender(&settings, told(0), seed, None);
            let second = sender(&settings, told(1), 100 + seed, Some(&first));
            let mut runs = [first, second];
            let began = runs[0].began();
            together(&mut runs, began + Duration::from_secs(5));
            let before = [runs[0].load.read(), runs[1].load.read()];
            together(&mut runs, began + Duration::from_secs(15));
            let mbit = |run: usize| (runs[run].load.read() - before[run]) as f64 * 8e-7;
            let (theirs, ours) = (mbit(liar), mbit(1 - liar));
            println!("{name} {seed}, liar {liar}: liar {theirs:.2}, honest {ours:.2} Mbit/s");
            assert!(ours >= least, "{name} {seed}, liar {liar}: {ours:.2} beside {theirs:.2} Mbit/s");
        }
    }
}
