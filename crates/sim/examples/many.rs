//! Several of ours on one link, measured between two moments.
//!
//! Experiment driver for rate control: `cargo run --release -p tidewire-sim --example many -- KEY=VALUE ...`.
//! Keys: `n`, `rate`, `rtt` (or a list, one access delay each), `queue`, `gap` (start distance), `time`
//! (measured), `warm`, `seeds`, `back` (flows in the other direction), `control`, `app` (rate of each), `up`
//! (rate of the back direction), and any link setting with a prefix `f.` or `b.`.

use core::time::Duration;
use std::collections::BTreeMap;
use std::path::Path;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::network::topology::{Joint, Node, Role, Topology};
use tidewire_sim::network::{Carrier, Content, Control, FlowPlan, Network, Plan, Report};
use tidewire_sim::pair::End;
use tidewire_sim::settings::Direction;
use tidewire_units::{Rate, parse_duration};

fn main() {
    let keys: BTreeMap<String, String> = std::env::args()
        .skip(1)
        .map(|arg| {
            let (key, value) = arg.split_once('=').expect("KEY=VALUE");
            (key.to_owned(), value.to_owned())
        })
        .collect();
    let text = |key: &str, or: &str| keys.get(key).cloned().unwrap_or_else(|| or.to_owned());
    let time = |key: &str, or: &str| parse_duration(&text(key, or)).expect("a time");
    let seeds: u64 = text("seeds", "1").parse().expect("a number");
    let n: usize = text("n", "1").parse().expect("a number");
    let back: usize = text("back", "0").parse().expect("a number");
    let cubic: usize = text("cubic", "0").parse().expect("a number");
    let gap = time("gap", "500ms");
    let rtts: Vec<Duration> = text("rtt", "60ms").split('/').map(|t| parse_duration(t).expect("a time")).collect();
    let rate: Rate = text("rate", "25mbit").parse().expect("a rate");
    let first: u64 = text("seed", "1").parse().expect("a number");
    for seed in first..first + seeds {
        let mut topology = Topology::default();
        let mut node = |name: String, role| {
            topology.nodes.push(Node { name, role });
            topology.nodes.len() - 1
        };
        let (left, right) = (node("l".into(), Role::Router), node("r".into(), Role::Router));
        let mut links = Vec::new();
        let mut link = DuplexConfig::default();
        let set = |link: &mut DuplexConfig, direction, key: &str, value: &str| {
            link.set(direction, key, value, Path::new("")).unwrap_or_else(|error| panic!("{key}: {error:?}"));
        };
        set(&mut link, Direction::Both, "rate", &text("rate", "25mbit"));
        if keys.contains_key("up") {
            set(&mut link, Direction::Back, "rate", &text("up", ""));
        }
        let least = *rtts.iter().min().expect("one");
        set(&mut link, Direction::Both, "rtt", &format!("{}us", least.as_micros()));
        set(&mut link, Direction::Both, "queue", &text("queue", "60ms"));
        for (key, value) in &keys {
            if let Some(key) = key.strip_prefix("f.") {
                set(&mut link, Direction::Forward, key, value);
            }
            if let Some(key) = key.strip_prefix("b.") {
                set(&mut link, Direction::Back, key, value);
            }
        }
        link.set_seed(seed);
        links.push(Joint { name: "link".into(), nodes: [left, right], config: link });
        let mut ends = Vec::new();
        let total = n + back + cubic;
        for i in 0..total {
            let (a, b) = (node(format!("a{i}"), Role::Host), node(format!("b{i}"), Role::Host));
            let mut access = DuplexConfig::default();
            set(&mut access, Direction::Both, "rtt", &format!("{}us", (rtts[i % rtts.len()] - least).as_micros()));
            links.push(Joint { name: format!("x{i}"), nodes: [a, left], config: access });
            links.push(Joint { name: format!("y{i}"), nodes: [right, b], config: DuplexConfig::default() });
            ends.push([a, b]);
        }
        topology.links = links;
        let warm = time("warm", "5s");
        let measured = time("time", "30s");
        let mut plan = Plan::new(seed, topology);
        let last = gap * total.saturating_sub(1) as u32;
        plan.time = Some(last + warm + measured + Duration::from_secs(1));
        let sample = time("sample", "20ms");
        plan.sample = sample;
        let mut config = Config::builder().rate_control(text("control", "bbr").parse().expect("a control"));
        if let Some(redundancy) = keys.get("redundancy") {
            config = config.redundancy(redundancy.parse().expect("redundancy"));
        }
        let config = config.build().expect("in range");
        for i in 0..total {
            let start = gap * i as u32 + Duration::from_micros((seed * 7919 + i as u64 * 104_729) % 50_000);
            let nodes = if i < n || i >= n + back { ends[i] } else { [ends[i][1], ends[i][0]] };
            let carrier = if i >= n + back {
                Carrier::Tcp { control: Control::Cubic, marks: false, content: Content::Bulk { bytes: None } }
            } else {
                let mut stream = Flow::bulk(End::Near, 1 << 40);
                if let Some(app) = keys.get("app") {
                    stream.rate = Some(app.parse::<Rate>().expect("a rate").bits_per_second() / 8);
                }
                Carrier::Ours {
                    ends: Box::new([config.clone(), config.clone()]),
                    streams: vec![stream],
                    via: Vec::new(),
                }
            };
            plan.flows.push(FlowPlan {
                name: format!("{i}"),
                from: nodes[0],
                to: nodes[1],
                through: None,
                start,
                carrier,
            });
        }
        let mut network = Network::new(&plan);
        let at = |after: Duration| Time::from_millis(1) + after;
        if keys.contains_key("trace") {
            let step = time("trace", "1s");
            let mut moment = step;
            let mut before = network.report();
            while moment < last + warm + measured {
                network.until(at(moment));
                let after = network.report();
                println!("{:6.2} {}", moment.as_secs_f64(), line(&before, &after, step, rate, n, back, moment - step));
                before = after;
                moment += step;
            }
            continue;
        }
        network.until(at(last + warm));
        let before = network.report();
        network.until(at(last + warm + measured));
        let after = network.report();
        println!("{}", line(&before, &after, measured, rate, n, back, last + warm));
        if keys.contains_key("early") {
            println!("  start-up: {}", line_counts(&before));
        }
    }
}

fn line_counts(report: &Report) -> String {
    let stats = &report.links[0].stats[0];
    format!("offered {} dropped {}", stats.offered, stats.queue_dropped)
}

fn line(
    before: &Report,
    after: &Report,
    measured: Duration,
    rate: Rate,
    n: usize,
    back: usize,
    since: Duration,
) -> String {
    let seconds = measured.as_secs_f64();
    let goodputs: Vec<f64> = after
        .flows
        .iter()
        .zip(&before.flows)
        .map(|(after, before)| (after.bytes - before.bytes) as f64 * 8.0 / seconds / 1e6)
        .collect();
    let errors: Vec<_> = after.flows.iter().flat_map(|flow| flow.errors.iter()).collect();
    let shares: Vec<f64> = goodputs.iter().enumerate().filter(|(i, _)| *i < n || *i >= n + back).map(|x| *x.1).collect();
    let sum: f64 = shares.iter().sum();
    let jain = sum * sum / (shares.len() as f64 * shares.iter().map(|x| x * x).sum::<f64>());
    let mut text = String::new();
    for direction in 0..if back > 0 { 2 } else { 1 } {
        let (b, a) = (&before.links[0].stats[direction], &after.links[0].stats[direction]);
        let offered = a.offered - b.offered;
        let dropped = a.queue_dropped - b.queue_dropped;
        let accepted = |s: &tidewire_sim::link::LinkStats| (s.offered - s.queue_dropped) as f64;
        let queue = (a.mean_queueing().as_secs_f64() * accepted(a) - b.mean_queueing().as_secs_f64() * accepted(b))
            / (accepted(a) - accepted(b)).max(1.0);
        let sent = (a.offered_bytes - b.offered_bytes) as f64 * 8.0 / seconds / 1e6;
        let samples = &after.links[0].samples[direction];
        let mut waits: Vec<f64> = samples
            .iter()
            .filter(|s| s.at >= Time::from_millis(1) + since)
            .map(|s| s.bytes as f64 * 8.0 / rate.bits_per_second() as f64 * 1e3)
            .collect();
        waits.sort_by(f64::total_cmp);
        let p95 = waits.get(waits.len() * 95 / 100).copied().unwrap_or(0.0);
        text += &format!(
            "sent {sent:6.2} drop {:6.3}% queue {:5.1} (p95 {p95:5.1}) ms | ",
            100.0 * dropped as f64 / offered.max(1) as f64,
            queue * 1e3
        );
    }
    let mut sorted = goodputs.clone();
    if sorted.len() > 12 {
        sorted.sort_by(f64::total_cmp);
        sorted = vec![sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]];
    }
    let list: Vec<String> = sorted.iter().map(|x| format!("{x:.2}")).collect();
    format!(
        "sum {sum:6.2} ({:.3}) jain {jain:.3} | {text}{} {}",
        sum * 1e6 / rate.bits_per_second() as f64,
        list.join(" "),
        if errors.is_empty() { String::new() } else { format!("ERRORS {errors:?}") }
    )
}
