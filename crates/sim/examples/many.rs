//! Many flows of ours on one link: what each gets, what the queue drops, and how long it is.
//!
//! `cargo run --release -p tidewire-sim --example many -- KEY=VALUE ...` prints a line for each seed. Keys:
//! `n` flows, `back` flows the other way, and `cubic` flows of TCP beside them; `gap` between their starts;
//! `late`, how much later flows of ours start; `control`; `app`, the rate of each flow (as fast as possible
//! without it); `rate` of the link, and `up`, that of the way back; `rtt`, or several with `/` between them,
//! which flows have in turn; `queue`; `kilobytes` that each flow has to send, of which it then prints the
//! time; `warm` after the last start and `time` that counts; `seed`, `seeds`; and any setting of a link with
//! `f.` or `b.` before it, such as `f.police=10mbit:50kB`. With `trace=500ms` it prints a line for each such
//! time instead. With `states=1` each line ends with how often the flows entered each state of their rate
//! control since the line before, or since `warm` was over.

use core::time::Duration;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tidewire_figures::{ascending, median, quantile};
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::trace::{Trace, TraceEvent};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::network::topology::{Joint, Node, Role, Topology};
use tidewire_sim::network::{Carrier, Content, Control, FlowPlan, Network, Plan, Report};
use tidewire_sim::pair::End;
use tidewire_sim::settings::Direction;
use tidewire_units::{Rate, parse_duration};

/// More bytes than any of these links carries.
const ENDLESS: u64 = 1 << 40;

/// Counts how often the senders entered each state of their rate control.
#[derive(Debug, Default)]
struct States(Mutex<BTreeMap<String, u64>>);

impl Trace for States {
    fn record(&self, _: Time, _: ConnectionHandle, event: &TraceEvent) {
        if let TraceEvent::RateState { state } = event {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(state.to_string()).or_default() += 1;
        }
    }
}

impl States {
    /// The counts since the last call.
    fn take(&self) -> String {
        let counts = core::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        counts.iter().map(|(state, count)| format!(", {state} {count}")).collect()
    }
}

/// The keys of the command line.
struct Keys(BTreeMap<String, String>);

impl Keys {
    fn text<'a>(&'a self, key: &str, or: &'a str) -> &'a str {
        self.0.get(key).map_or(or, String::as_str)
    }

    fn count(&self, key: &str, or: usize) -> usize {
        self.0.get(key).map_or(or, |text| text.parse().unwrap_or_else(|_| panic!("{key} is no number: {text}")))
    }

    fn time(&self, key: &str, or: &str) -> Duration {
        parse_duration(self.text(key, or)).unwrap_or_else(|error| panic!("{key}: {error}"))
    }

    fn rate(&self, key: &str, or: &str) -> Rate {
        self.text(key, or).parse().unwrap_or_else(|error| panic!("{key}: {error}"))
    }

    /// Bytes of each flow. Without the key it has no end.
    fn bytes(&self) -> Option<u64> {
        self.0.contains_key("kilobytes").then(|| 1_000 * self.count("kilobytes", 0) as u64)
    }

    fn rtts(&self) -> Vec<Duration> {
        let times = self.text("rtt", "60ms").split('/');
        times.map(|time| parse_duration(time).unwrap_or_else(|error| panic!("rtt: {error}"))).collect()
    }

    /// Number of flows: of ours, of ours the other way, and of TCP.
    fn flows(&self) -> [usize; 3] {
        [self.count("n", 1), self.count("back", 0), self.count("cubic", 0)]
    }

    /// The link that all share.
    fn link(&self, seed: u64) -> DuplexConfig {
        let mut link = DuplexConfig::default();
        let least = self.rtts().into_iter().min().unwrap_or_default();
        set(&mut link, Direction::Both, "rate", self.text("rate", "25mbit"));
        set(&mut link, Direction::Both, "rtt", &format!("{}us", least.as_micros()));
        set(&mut link, Direction::Both, "queue", self.text("queue", "60ms"));
        for (key, value) in &self.0 {
            match key.split_once('.') {
                Some(("f", key)) => set(&mut link, Direction::Forward, key, value),
                Some(("b", key)) => set(&mut link, Direction::Back, key, value),
                _ if key == "up" => set(&mut link, Direction::Back, "rate", value),
                _ => {}
            }
        }
        link.set_seed(seed);
        link
    }

    /// Two routers with the shared link between them, and two hosts for each flow.
    fn topology(&self, seed: u64) -> Topology {
        let mut topology = Topology::default();
        let (rtts, total) = (self.rtts(), self.flows().iter().sum::<usize>());
        let least = rtts.iter().min().copied().unwrap_or_default();
        let names = ["left".to_owned(), "right".to_owned()].into_iter().map(|name| Node { name, role: Role::Router });
        topology.nodes.extend(names);
        topology.links.push(Joint { name: "shared".into(), nodes: [0, 1], config: self.link(seed) });
        for flow in 0..total {
            let mut access = DuplexConfig::default();
            let more = rtts[flow % rtts.len()] - least;
            set(&mut access, Direction::Both, "rtt", &format!("{}us", more.as_micros()));
            for (side, name, config) in [(0, "a", access), (1, "b", DuplexConfig::default())] {
                let name = format!("{name}{flow}");
                let node = topology.nodes.len();
                topology.nodes.push(Node { name: name.clone(), role: Role::Host });
                let nodes = if side == 0 { [node, 0] } else { [1, node] };
                topology.links.push(Joint { name, nodes, config });
            }
        }
        topology
    }

    fn carrier(&self, is_ours: bool, states: Option<&Arc<States>>) -> Carrier {
        if !is_ours {
            return Carrier::Tcp {
                control: Control::Cubic,
                marks: false,
                content: Content::Bulk { bytes: self.bytes() },
            };
        }
        let control = self.text("control", "share").parse().unwrap_or_else(|error| panic!("control: {error}"));
        let config = Config::builder().rate_control(control).build().expect("in range");
        let mut stream = Flow::bulk(End::Near, self.bytes().unwrap_or(ENDLESS));
        if self.0.contains_key("app") {
            stream.rate = Some(self.rate("app", "").bits_per_second() / 8);
        }
        let sender = states.map_or(config.clone(), |states| config.clone().with_trace(Arc::clone(states) as _));
        Carrier::Ours { ends: Box::new([sender, config]), streams: vec![stream], via: Vec::new() }
    }

    /// When flow `number` starts. The seed moves it, so that start-ups meet in different states.
    fn start(&self, number: usize, seed: u64) -> Duration {
        let moved = Duration::from_micros((seed * 7_919 + number as u64 * 104_729) % 50_000);
        let [ours, back, _] = self.flows();
        let late = if number < ours + back { self.time("late", "0s") } else { Duration::ZERO };
        self.time("gap", "500ms") * number as u32 + moved + late
    }

    fn plan(&self, seed: u64, time: Duration, states: Option<&Arc<States>>) -> Plan {
        let mut plan = Plan::new(seed, self.topology(seed));
        (plan.time, plan.sample) = (Some(time), Duration::from_millis(20));
        let [ours, back, tcp] = self.flows();
        for number in 0..ours + back + tcp {
            let (a, b) = (2 + 2 * number, 3 + 2 * number);
            let [from, to] = if (ours..ours + back).contains(&number) { [b, a] } else { [a, b] };
            let carrier = self.carrier(number < ours + back, states);
            let (name, start) = (number.to_string(), self.start(number, seed));
            plan.flows.push(FlowPlan { name, from, to, through: None, start, carrier });
        }
        plan
    }
}

fn set(link: &mut DuplexConfig, direction: Direction, key: &str, value: &str) {
    link.set(direction, key, value, Path::new("")).unwrap_or_else(|error| panic!("{key}={value}: {error:?}"));
}

/// What happened between two reports, `seconds` apart.
fn line(keys: &Keys, before: &Report, after: &Report, seconds: f64) -> String {
    let [ours, back, _] = keys.flows();
    let flows = after.flows.iter().zip(&before.flows);
    let mbit: Vec<f64> = flows.map(|(after, before)| (after.bytes - before.bytes) as f64 * 8e-6 / seconds).collect();
    let ahead: Vec<f64> =
        mbit.iter().enumerate().filter(|(n, _)| !(ours..ours + back).contains(n)).map(|x| *x.1).collect();
    let (sum, squares) = ahead.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    let jain = sum * sum / (ahead.len() as f64 * squares);
    let mut text = format!("sum {sum:6.2}, Jain {jain:.3}");
    for direction in 0..if back > 0 { 2 } else { 1 } {
        let [before, after] = [before, after].map(|report| report.links[0].stats[direction]);
        let taken = [before, after].map(|stats| (stats.offered - stats.queue_dropped) as f64);
        let waited = after.mean_queueing().as_secs_f64() * taken[1] - before.mean_queueing().as_secs_f64() * taken[0];
        let offered = (after.offered - before.offered) as f64;
        let sent = (after.offered_bytes - before.offered_bytes) as f64 * 8e-6 / seconds;
        let dropped = (after.queue_dropped - before.queue_dropped + after.policed() - before.policed()) as f64;
        let (lost, queue) = (100.0 * dropped / offered.max(1.0), 1e3 * waited / (taken[1] - taken[0]).max(1.0));
        text += &format!("; sent {sent:6.2}, dropped {lost:6.3} %, queue {queue:5.1} ms");
    }
    let mut each = mbit;
    if each.len() > 12 {
        each = ascending(each);
        each = vec![each[0], median(each.iter().copied()), each[each.len() - 1]];
    }
    let errors: Vec<_> = after.flows.iter().flat_map(|flow| &flow.errors).collect();
    assert!(errors.is_empty(), "{errors:?}");
    text + &each.iter().map(|mbit| format!(" {mbit:.2}")).collect::<String>()
}

/// How long the flows took that have ended.
fn completion(report: &Report) -> String {
    let times = ascending(report.flows.iter().filter(|flow| flow.whole == Some(true)).map(|flow| flow.seconds));
    let at = |part: f64| quantile(&times, part).map_or(f64::NAN, |seconds| 1e3 * seconds);
    let (ended, all) = (times.len(), report.flows.len());
    format!("{ended} of {all} flows ended, after {:.0} ms (p50) and {:.0} ms (p99)", at(0.5), at(0.99))
}

fn main() {
    let pairs = std::env::args().skip(1).map(|arg| {
        let (key, value) = arg.split_once('=').unwrap_or_else(|| panic!("write KEY=VALUE for {arg}"));
        (key.to_owned(), value.to_owned())
    });
    let keys = Keys(pairs.collect());
    let (first, seeds) = (keys.count("seed", 1) as u64, keys.count("seeds", 1) as u64);
    let last = keys.time("gap", "500ms") * keys.flows().iter().sum::<usize>().saturating_sub(1) as u32
        + keys.time("late", "0s");
    let (begin, time) = (last + keys.time("warm", "5s"), keys.time("time", "30s"));
    let at = |after: Duration| Time::from_millis(1) + after;
    for seed in first..first + seeds {
        let states = keys.0.contains_key("states").then(Arc::<States>::default);
        let mut network = Network::new(&keys.plan(seed, begin + time + Duration::from_secs(1), states.as_ref()));
        let step = if keys.0.contains_key("trace") { keys.time("trace", "") } else { time };
        let mut moment = if step < time { Duration::ZERO } else { begin };
        network.until(at(moment));
        let mut before = network.report();
        states.iter().for_each(|states| drop(states.take()));
        while moment + step <= begin + time {
            moment += step;
            network.until(at(moment));
            let after = network.report();
            let states = states.as_ref().map_or(String::new(), |states| states.take());
            println!("{:6.1} s: {}{states}", moment.as_secs_f64(), line(&keys, &before, &after, step.as_secs_f64()));
            before = after;
        }
        if keys.bytes().is_some() {
            println!("{}", completion(&before));
        }
    }
}
