use core::time::Duration;
use std::path::Path;

use super::*;
use crate::report::Trial;
use crate::scenario::Scenario;

/// A line of three hops, with two routers. `settings` are those of each link.
fn line(settings: &str, rest: &str) -> String {
    let node = |name: &str, role: &str| format!("[[node]]\nname = \"{name}\"\nrole = \"{role}\"\n");
    let link = |from: &str, to: &str| format!("[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\n{settings}\n");
    let nodes = [node("a", "host"), node("r", "router"), node("s", "router"), node("b", "host")].concat();
    let links = [link("a", "r"), link("r", "s"), link("s", "b")].concat();
    format!("{rest}\n{nodes}{links}")
}

fn plan(text: &str) -> Plan {
    Plan::parse(text, Path::new("net.toml")).unwrap_or_else(|error| panic!("{error}"))
}

fn with_flows(settings: &str, top: &str, flows: &str) -> Plan {
    plan(&format!("{}{flows}", line(settings, top)))
}

/// Runs a plan. On every link each packet has to have exactly one fate, and no flow a wrong byte.
fn run(plan: &Plan) -> Report {
    let report = Network::new(plan).run();
    for link in &report.links {
        for stats in &link.stats {
            assert_eq!(stats.offered, stats.accounted(), "{}: {stats:?}", link.name);
        }
    }
    for flow in &report.flows {
        assert!(flow.errors.is_empty(), "{}: {:?}", flow.name, flow.errors);
    }
    report
}

#[test]
fn flows_of_every_kind_cross_a_line_of_three_hops_together() {
    let flows = r#"
        [[flow]]
        name = "ours"
        from = "a"
        to = "b"
        bytes = "2MB"
        [[flow]]
        name = "paced"
        from = "b"
        to = "a"
        rate = "1mbit"
        [[flow]]
        kind = "newreno"
        from = "a"
        to = "s"
        [[flow]]
        kind = "cubic"
        from = "r"
        to = "b"
        start = "1s"
        bytes = "1MB"
        [[flow]]
        kind = "udp"
        from = "a"
        to = "b"
        rate = "1mbit"
        record = "500B"
        [[flow]]
        kind = "udp"
        from = "b"
        to = "r"
        video = "1mbit,5s"
        [[flow]]
        kind = "newreno"
        from = "a"
        to = "b"
        rate = "500kbit"
    "#;
    let settings = "rate = \"20mbit\"\ndelay = \"5ms\"\nloss = \"0.5%\"\njitter = \"1ms\"\nduplicate = \"0.5%\"\ncorrupt = \"0.2%\"";
    let plan = with_flows(settings, "seed = 3\ntime = \"10s\"", flows);
    let report = run(&plan);
    let kinds: Vec<_> = report.flows.iter().map(|flow| flow.kind).collect();
    assert_eq!(kinds, ["tidewire", "tidewire", "newreno", "cubic", "udp", "udp", "newreno"]);
    assert_eq!(report.flows[0].whole, Some(true), "{:?}", report.flows[0]);
    assert_eq!((report.flows[0].from.as_str(), report.flows[0].to.as_str()), ("a", "b"));
    assert_eq!((report.flows[3].whole, report.flows[3].bytes), (Some(true), 1_000_000));
    for flow in &report.flows {
        assert!(flow.bytes > 400_000 && flow.packets > 300, "{flow:?}");
    }
    // Each way has at least its propagation time, and the rate of a paced flow is delivered.
    for (flow, hops) in [(1, 3), (4, 3), (5, 2), (6, 3)] {
        let latency = &report.flows[flow].latencies.latency;
        assert!(latency.count() > 100 && latency.quantile(0.01) >= Duration::from_millis(5 * hops - 1), "{flow}");
        assert!(report.flows[flow].latencies.jitter.mean() > Duration::ZERO);
    }
    // UDP loses what three links lose, and nothing is sent again.
    let udp = &report.flows[4];
    let share = udp.bytes as f64 / (500.0 * udp.packets as f64);
    assert!((share - 0.995f64.powi(3)).abs() < 0.01 && udp.damaged > 0, "{share}");
    assert!(report.flows[2].window.len() > 100 && report.flows[2].repeated > 0);
    // The same again is the same, another seed is not.
    assert_eq!(run(&plan).fingerprint, report.fingerprint);
    assert_ne!(run(&plan.clone().with_seed(4)).fingerprint, report.fingerprint);
}

#[test]
fn a_scenario_of_two_ends_is_a_network_of_one_link() {
    let text = r#"
        seed = 9
        [link]
        rate = "10mbit"
        rtt = "40ms"
        [forward]
        loss = "gilbert:5%,3"
        [far]
        redundancy = "every:8"
        [[flow]]
        from = "near"
        bytes = "2MB"
        [[flow]]
        from = "far"
        bytes = "200kB"
        rate = "1mbit"
    "#;
    let scenario = Scenario::parse(text, Path::new("two.toml")).unwrap();
    let alone: crate::report::Report = Trial::run(&scenario.trial());
    let report = run(&Plan::from(&scenario));
    assert_eq!((report.flows[0].bytes, report.flows[0].whole), (alone.bytes, Some(true)));
    assert_eq!(report.links[0].stats, [alone.forward, alone.back]);
}
