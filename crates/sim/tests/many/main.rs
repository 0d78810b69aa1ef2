//! The controller `share`: several flows on one link, both directions, jitter, slots and policers
//! (docs/fairness.md, "Several of ours on one link").
//!
//! `cargo run --release -p tidewire-sim --example many -- control=share ...` measures any other case.

mod drawn;

use core::time::Duration;
use std::path::Path;

use tidewire_figures::ascending;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::network::topology::{Joint, Node, Role, Topology};
use tidewire_sim::network::{Carrier, Content, Control, FlowPlan, Network, Plan, Report};
use tidewire_sim::pair::End;
use tidewire_sim::settings::Direction;

/// One link, and flows that start one after the other.
struct Case<'a> {
    ahead: usize,
    back: usize,
    gap: Duration,
    settings: &'a [(Direction, &'a str, &'a str)],
}

/// Results of the ten seconds that begin five seconds after the last start.
struct Outcome {
    /// Mbit/s of each flow.
    goodput: Vec<f64>,
    /// Mbit/s sent ahead.
    sent: f64,
    /// Part of the packets ahead that the link dropped, and mean queueing ahead in milliseconds.
    dropped: f64,
    queue: f64,
}

impl Outcome {
    fn sum(&self) -> f64 {
        self.goodput.iter().sum()
    }

    fn jain(&self) -> f64 {
        let squares: f64 = self.goodput.iter().map(|goodput| goodput * goodput).sum();
        self.sum().powi(2) / (self.goodput.len() as f64 * squares)
    }
}

const MEASURED: Duration = Duration::from_secs(10);
const WARM: Duration = Duration::from_secs(5);

impl Case<'_> {
    fn plan(&self, seed: u64) -> Plan {
        let mut link = DuplexConfig::default();
        for (direction, key, value) in self.settings {
            link.set(*direction, key, value, Path::new("")).expect("a setting");
        }
        link.set_seed(seed);
        let node = |name: &str| Node { name: name.to_owned(), role: Role::Host };
        let joint = Joint { name: "link".to_owned(), nodes: [0, 1], config: link };
        let mut plan = Plan::new(seed, Topology { nodes: vec![node("a"), node("b")], links: vec![joint] });
        plan.time = Some(Duration::from_secs(100));
        let config = Config::builder().rate_control("share".parse().expect("a control")).build().expect("in range");
        for number in 0..self.ahead + self.back {
            let [from, to] = if number < self.ahead { [0, 1] } else { [1, 0] };
            let streams = vec![Flow::bulk(End::Near, 1 << 40)];
            let carrier = Carrier::Ours { ends: Box::new([config.clone(), config.clone()]), streams, via: Vec::new() };
            let (name, start) = (number.to_string(), self.gap * number as u32 + Duration::from_millis(seed % 16 * 7));
            plan.flows.push(FlowPlan { name, from, to, through: None, start, carrier });
        }
        plan
    }

    fn run(&self, seed: u64) -> Outcome {
        self.measure(&self.plan(seed))
    }

    fn measure(&self, plan: &Plan) -> Outcome {
        let mut network = Network::new(plan);
        let begin = Time::from_millis(1) + self.gap * (self.ahead + self.back - 1) as u32 + WARM;
        network.until(begin);
        let before = network.report();
        network.until(begin + MEASURED);
        let after = network.report();
        let bytes = |report: &Report| report.flows.iter().map(|flow| flow.bytes).collect::<Vec<_>>();
        let mbit = |bytes: u64| bytes as f64 * 8e-6 / MEASURED.as_secs_f64();
        let goodput = bytes(&after).into_iter().zip(bytes(&before)).map(|(after, before)| mbit(after - before));
        let [from, to] = [&before, &after].map(|report| report.links[0].stats[0]);
        let taken = [from, to].map(|stats| (stats.offered - stats.queue_dropped) as f64);
        let waited = to.mean_queueing().as_secs_f64() * taken[1] - from.mean_queueing().as_secs_f64() * taken[0];
        let lost = to.queue_dropped + to.policed() - from.queue_dropped - from.policed();
        assert!(after.flows.iter().all(|flow| flow.errors.is_empty()));
        let outcome = Outcome {
            goodput: goodput.collect(),
            sent: mbit(to.offered_bytes - from.offered_bytes),
            dropped: lost as f64 / (to.offered - from.offered) as f64,
            queue: 1e3 * waited / (taken[1] - taken[0]),
        };
        println!(
            "{} and {} of {:?}, seed {}: {:.2?}, Jain {:.3}, sent {:.2}, dropped {:.4}, queue {:.1} ms",
            self.ahead,
            self.back,
            self.settings,
            plan.seed,
            outcome.goodput,
            outcome.jain(),
            outcome.sent,
            outcome.dropped,
            outcome.queue
        );
        outcome
    }
}

const BOTH: Direction = Direction::Both;
const AHEAD: Direction = Direction::Forward;
const BACK: Direction = Direction::Back;
/// 25 Mbit/s, 60 ms, a queue of 60 ms.
const HOME: [(Direction, &str, &str); 3] = [(BOTH, "rate", "25mbit"), (BOTH, "rtt", "60ms"), (BOTH, "queue", "60ms")];

fn gap(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Each yields to the others without drops: a queue that all see has one length for all (docs/fairness.md).
#[test]
fn flows_of_ours_share_a_link_evenly_with_a_short_queue() {
    for (ahead, longest) in [(2, 8.0), (6, 12.0), (10, 15.0)] {
        let outcome = Case { ahead, back: 0, gap: gap(500), settings: &HOME }.run(1);
        assert!(outcome.sum() >= 0.92 * 25.0 && outcome.jain() >= 0.95, "{ahead}");
        assert!(outcome.dropped <= 0.005 && outcome.queue <= longest, "{ahead}: {} ms", outcome.queue);
    }
}

/// Each had tested its losses while the others overran the link, and taken them for the medium's. A flow that
/// takes the others for TCP has several parts until it looks, on about one seed in twenty.
#[test]
#[ignore = "slow: seconds of processor time"]
fn flows_that_begin_at_nearly_the_same_time_drop_nothing() {
    let outcomes = (1..=5).map(|seed| Case { ahead: 20, back: 0, gap: gap(50), settings: &HOME }.run(seed));
    let jain = ascending(outcomes.map(|outcome| {
        assert!(outcome.sum() >= 0.92 * 25.0 && outcome.dropped <= 0.005, "{}", outcome.dropped);
        assert!(outcome.queue <= 20.0, "{} ms", outcome.queue);
        outcome.jain()
    }));
    assert!(jain[0] >= 0.2 && jain[2] >= 0.8, "{jain:.3?}");
}

/// Newcomers found their losses beside flows that overran the link, believed them, and overran it in turn:
/// 20 to 70 % was dropped for as long as they ran.
#[test]
#[ignore = "slow: seconds of processor time"]
fn fifty_flows_do_not_believe_the_drops_of_each_other() {
    for seed in [7, 14, 17] {
        let outcome = Case { ahead: 50, back: 0, gap: gap(200), settings: &HOME }.run(seed);
        assert!(outcome.sum() >= 0.9 * 25.0 && outcome.dropped <= 0.02, "{seed}: {}", outcome.dropped);
        assert!(outcome.queue <= 60.0, "{seed}: {} ms", outcome.queue);
    }
}

/// Packets that cannot overtake each other hold each other up, so the least delay of a path with jitter shows
/// at a low rate only. What stands beyond it was taken for a queue: 0.1 of the link on two of three seeds.
#[test]
#[ignore = "slow: seconds of processor time"]
fn jitter_of_the_way_there_does_not_slow_a_flow() {
    for (rate, rtt, jitter) in [("25mbit", "60ms", "40ms"), ("100mbit", "40ms", "20ms")] {
        let mbit: f64 = rate.trim_end_matches("mbit").parse().expect("a number");
        for seed in 1..=3 {
            let link = [(BOTH, "rate", rate), (BOTH, "rtt", rtt), (AHEAD, "jitter", jitter)];
            let outcome = Case { ahead: 1, back: 0, gap: gap(0), settings: &link }.run(seed);
            assert!(outcome.sum() >= 0.7 * mbit && outcome.dropped <= 0.001, "{}", outcome.sum());
            assert!(outcome.queue <= 20.0, "{} ms", outcome.queue);
        }
    }
}

/// The queue of one direction is not taken for that of the other.
#[test]
fn both_directions_keep_their_rates_and_short_queues() {
    let outcome = Case { ahead: 1, back: 1, gap: gap(500), settings: &HOME }.run(1);
    assert!(outcome.goodput.iter().all(|goodput| *goodput >= 0.92 * 25.0 * 0.95), "{:?}", outcome.goodput);
    assert!(outcome.queue <= 6.0, "{} ms", outcome.queue);
}

/// A controller that measures round trips takes the jitter of the way back for a queue, and yields to it.
#[test]
fn jitter_of_the_way_back_is_no_queue() {
    let settings = &[HOME[0], HOME[1], HOME[2], (BACK, "jitter", "20ms"), (AHEAD, "loss", "1%")];
    let outcome = Case { ahead: 1, back: 0, gap: gap(0), settings }.run(1);
    assert!(outcome.sum() >= 0.9 * 25.0 && outcome.queue <= 8.0, "{} ms", outcome.queue);
}

/// A radio that passes 250 Mbit/s for 1 of 10 ms.
#[test]
fn a_slot_is_used_and_not_flooded() {
    let settings =
        &[(BOTH, "rate", "250mbit"), (BOTH, "rtt", "60ms"), (BOTH, "queue", "100ms"), (AHEAD, "slot", "10ms:1ms")];
    let outcome = Case { ahead: 1, back: 0, gap: gap(0), settings }.run(1);
    assert!(outcome.sum() >= 0.9 * 25.0 && outcome.sent <= 1.15 * 25.0, "sent {}", outcome.sent);
    assert!(outcome.queue <= 30.0, "{} ms", outcome.queue);
}

/// A controller that takes all losses without a queue for the medium's sends five times what arrives here.
#[test]
fn a_policer_is_found_and_not_overrun() {
    let settings =
        &[(BOTH, "rate", "100mbit"), (BOTH, "rtt", "60ms"), (BOTH, "queue", "60ms"), (AHEAD, "police", "10mbit:50kB")];
    let outcome = Case { ahead: 1, back: 0, gap: gap(0), settings }.run(1);
    assert!(outcome.sum() >= 8.5 && outcome.sent <= 1.25 * outcome.sum(), "sent {}", outcome.sent);
}

/// Its bucket lets the first round trips pass.
#[test]
fn a_policer_with_a_large_bucket_is_found() {
    let settings =
        &[(BOTH, "rate", "100mbit"), (BOTH, "rtt", "60ms"), (BOTH, "queue", "60ms"), (AHEAD, "police", "10mbit:1MB")];
    let outcome = Case { ahead: 1, back: 0, gap: gap(0), settings }.run(1);
    assert!(outcome.sum() >= 8.0 && outcome.sent <= 1.35 * outcome.sum(), "sent {}", outcome.sent);
}

/// The first flight's losses may be those of a crowd, so a test comes before the rate grows further.
#[test]
fn a_link_that_loses_much_is_used_in_the_first_seconds() {
    let settings =
        &[(BOTH, "rate", "100mbit"), (BOTH, "rtt", "100ms"), (BOTH, "queue", "60ms"), (AHEAD, "loss", "40%")];
    for seed in 1..=3 {
        let mut network = Network::new(&Case { ahead: 1, back: 0, gap: gap(0), settings }.plan(seed));
        network.until(Time::from_millis(3_000));
        let mbit = network.report().flows[0].bytes as f64 * 8e-6 / 3.0;
        println!("40 %, seed {seed}: {mbit:.1} Mbit/s in the first three seconds");
        assert!(mbit >= 12.0, "seed {seed}: {mbit}");
    }
}

/// A queue of two packets at this rate, and of four.
#[test]
fn a_queue_of_a_few_packets_drops_little() {
    for (queue, most) in [("1ms", 0.04), ("2ms", 0.02)] {
        let settings = [HOME[0], HOME[1], (BOTH, "queue", queue)];
        let settings = Box::leak(Box::new(settings));
        let outcome = Case { ahead: 1, back: 0, gap: gap(0), settings }.run(1);
        assert!(outcome.sum() >= 0.88 * 25.0 && outcome.dropped <= most, "{queue}: {}", outcome.dropped);
    }
}

/// The plan of a case, with a flow of CUBIC beside it that begins then.
fn beside_cubic(case: &Case<'_>, start: Duration, seed: u64) -> Plan {
    let mut plan = case.plan(seed);
    let carrier = Carrier::Tcp { control: Control::Cubic, marks: false, content: Content::Bulk { bytes: None } };
    plan.flows.push(FlowPlan { name: "cubic".to_owned(), from: 0, to: 1, through: None, start, carrier });
    plan
}

/// Beside TCP, which fills the queue, a flow does not yield until it has nothing.
#[test]
fn beside_tcp_a_flow_keeps_a_part() {
    for (queue, seed) in ["30ms", "60ms"].into_iter().flat_map(|queue| (1..=3).map(move |seed| (queue, seed))) {
        let case = Case {
            ahead: 1,
            back: 0,
            gap: gap(0),
            settings: Box::leak(Box::new([HOME[0], HOME[1], (BOTH, "queue", queue)])),
        };
        let outcome = case.measure(&beside_cubic(&case, Duration::from_secs(1), seed));
        assert!(outcome.goodput[0] >= 4.0, "{queue}: {:?}", outcome.goodput);
        assert!(outcome.dropped <= 0.02, "{queue}: {}", outcome.dropped);
    }
}

/// Nor does one that begins after TCP. Its target fell to the length of the queue of TCP, and on these seeds
/// it had 0.1 to 0.16 of 5 Mbit/s for as long as it ran.
#[test]
fn after_tcp_a_flow_finds_a_part() {
    let settings = &[(BOTH, "rate", "5mbit"), HOME[1], (BOTH, "queue", "60ms")];
    for seed in [3, 5, 12, 14] {
        let case = Case { ahead: 1, back: 0, gap: gap(0), settings };
        let mut plan = beside_cubic(&case, Duration::ZERO, seed);
        plan.flows[0].start = Duration::from_secs(3);
        let mut network = Network::new(&plan);
        network.until(Time::from_millis(23_000));
        let before = network.report().flows[0].bytes;
        network.until(Time::from_millis(63_000));
        let mbit = (network.report().flows[0].bytes - before) as f64 * 8e-6 / 40.0;
        assert!(mbit >= 0.8, "seed {seed}: {mbit}");
    }
}

/// Random loss is not congestion.
#[test]
fn random_loss_costs_no_rate() {
    for (loss, least) in [("5%", 0.85), ("20%", 0.7), ("gilbert:10%,4", 0.76)] {
        let settings = Box::leak(Box::new([HOME[0], HOME[1], HOME[2], (AHEAD, "loss", loss)]));
        let outcome = Case { ahead: 1, back: 0, gap: gap(0), settings }.run(1);
        assert!(outcome.sum() >= least * 25.0, "{loss}: {}", outcome.sum());
    }
}
