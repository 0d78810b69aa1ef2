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

/// One way from `a` to `b` over a router, with one flow for 60 s.
fn two_hops(first: &str, second: &str, flow: &str) -> Plan {
    let nodes = "[[node]]\nname = \"a\"\n[[node]]\nname = \"r\"\nrole = \"router\"\n[[node]]\nname = \"b\"\n";
    let links = format!("[[link]]\nfrom = \"a\"\nto = \"r\"\n{first}\n[[link]]\nfrom = \"r\"\nto = \"b\"\n{second}\n");
    plan(&format!("time = \"60s\"\n{nodes}{links}[[flow]]\nfrom = \"a\"\nto = \"b\"\n{flow}\n"))
}

#[test]
fn codel_keeps_the_standing_queue_of_newreno_near_its_target() {
    let wide = "rate = \"100mbit\"\ndelay = \"10ms\"\nqueue = \"500ms\"";
    let narrow = "rate = \"10mbit\"\ndelay = \"10ms\"\nqueue = \"200ms\"";
    let several = |discipline: &str, ecn: &str, flows: usize| {
        let second = format!("{narrow}\ndiscipline = \"{discipline}\"");
        let flow = format!("kind = \"newreno\"\necn = \"{ecn}\"");
        let more = format!("\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n{flow}").repeat(flows - 1);
        run(&two_hops(wide, &second, &format!("{flow}{more}")))
    };
    let run = |discipline: &str, ecn: &str| several(discipline, ecn, 1);
    let standing = |report: &Report| {
        let late = report.links[1].samples[0].iter().filter(|sample| sample.at > Time::from_millis(10_000));
        let bytes: Vec<_> = late.map(|sample| sample.bytes as f64).collect();
        assert!(bytes.len() > 400);
        // Milliseconds at 10 Mbit/s.
        bytes.iter().sum::<f64>() / bytes.len() as f64 / 1_250.0
    };
    let (plain, codel, marking) = (run("drop-tail", "off"), run("codel", "off"), run("codel", "on"));
    let queues = [&plain, &codel, &marking].map(standing);
    assert!(queues[0] > 100.0, "{queues:?}");
    // One flow halves a window of 40 segments, below the 33 that fill the path: the queue is empty at times,
    // and the link too.
    assert!((1.0..5.0).contains(&queues[1]) && (1.0..5.0).contains(&queues[2]), "{queues:?}");
    let crowd = standing(&several("codel", "off", 4));
    assert!((5.0..12.0).contains(&crowd), "{crowd}");
    for report in [&codel, &marking] {
        let goodput = report.flows[0].goodput_bps();
        assert!(goodput > 8e6, "{goodput}");
    }
    let [forward, _] = codel.links[1].stats;
    assert!(forward.codel_dropped > 10 && forward.queue_dropped == 0, "{forward:?}");
    // A sender that knows marks loses nothing.
    let [forward, _] = marking.links[1].stats;
    assert!(forward.marked > 10 && forward.codel_dropped == 0, "{forward:?}");
    assert_eq!(marking.flows[0].repeated, 0);
    // A mark stays on the packet over the hops behind the queue: else the sender would fill it.
    let first = format!("{narrow}\ndiscipline = \"codel\"");
    let early = self::run(&two_hops(&first, wide, "kind = \"newreno\"\necn = \"on\""));
    assert!(early.links[0].stats[0].marked > 10 && early.flows[0].repeated == 0, "{:?}", early.links[0].stats);
    // The window is there over time, and the queue's counts do not fall.
    assert!(codel.flows[0].window.len() > 500);
    assert!(codel.links[1].samples[0].windows(2).all(|pair| pair[0].dropped <= pair[1].dropped));
}

#[test]
fn a_medium_that_two_hops_share_halves_their_throughput() {
    let hop = |medium: &str| format!("rate = \"10mbit\"\ndelay = \"1ms\"\nqueue = \"50ms\"\nmedium = \"{medium}\"");
    let goodput = |first: &str, second: &str, flow: &str| {
        let report = run(&two_hops(&hop(first), &hop(second), flow));
        let bytes: u64 = report.links.iter().flat_map(|link| link.stats).map(|stats| stats.delivered_bytes).sum();
        (report.flows[0].goodput_bps(), bytes as f64 * 8.0 / 60.0)
    };
    let udp = "kind = \"udp\"\nrate = \"12mbit\"\nrecord = \"1200B\"";
    let share = 1_200.0 / 1_228.0;
    let ((apart, _), (together, sum)) = (goodput("x", "y", udp), goodput("x", "x", udp));
    assert!((apart / (10e6 * share) - 1.0).abs() < 0.01, "{apart}");
    assert!((together / (5e6 * share) - 1.0).abs() < 0.01, "{together}");
    assert!(sum <= 10e6 * 1.001 && sum > 9.9e6, "{sum}");
    // Acknowledgements take turns too, on both hops.
    let ((apart, _), (together, sum)) = (goodput("x", "y", "kind = \"cubic\""), goodput("x", "x", "kind = \"cubic\""));
    assert!((0.48..0.51).contains(&(together / apart)) && sum <= 10e6 * 1.001, "{together} of {apart}, {sum}");
}

#[test]
fn three_hops_are_for_tcp_what_one_link_of_their_delay_and_loss_is() {
    let mean = |settings: &str, hops: usize, kind: &str| {
        let goodputs = (1..=8).map(|seed| {
            let flow = format!("[[flow]]\nkind = \"{kind}\"\nfrom = \"a\"\nto = \"b\"\n");
            let whole = with_flows(settings, &format!("seed = {seed}\ntime = \"120s\""), &flow);
            let mut plan = whole.clone();
            if hops == 1 {
                plan.topology.links.truncate(1);
                plan.topology.links[0].nodes = [0, 3];
            }
            run(&plan).flows[0].goodput_bps()
        });
        goodputs.sum::<f64>() / 8.0
    };
    for kind in ["newreno", "cubic"] {
        let line = mean("rate = \"100mbit\"\ndelay = \"10ms\"\nqueue = \"100ms\"\nloss = \"0.3%\"", 3, kind);
        // 1 - 0.997^3, and two transmissions of 1,500 bytes less.
        let link = mean("rate = \"100mbit\"\ndelay = \"30.12ms\"\nqueue = \"100ms\"\nloss = \"0.8973%\"", 1, kind);
        // Eight runs of two minutes differ by chance in the mean by a few per cent.
        assert!((line / link - 1.0).abs() < 0.08, "{kind}: {line} over three hops, {link} over one");
    }
}

#[test]
fn refusals_name_the_line_and_say_what_to_write() {
    let base = line("rate = \"10mbit\"", "");
    let refused = |text: &str| Plan::parse(text, Path::new("net.toml")).unwrap_err().to_string();
    let lines = base.lines().count();
    let flow = |rest: &str, at: usize, says: &str| {
        let message = refused(&format!("{base}[[flow]]\n{rest}\n"));
        let begins = format!("net.toml:{}: {says}", lines + at);
        assert!(message.starts_with(&begins), "{message}\nis not\n{begins}");
    };
    flow("from = \"a\"\nto = \"c\"", 3, "flow.to: there is no node \"c\"; did you mean \"a\"? (allowed: a, r, s, b)");
    flow("from = \"a\"", 1, "flow.to: this key is missing: write to = \"a\", the name of a node");
    flow("from = \"a\"\nto = \"a\"", 1, "flow.to: name two different nodes");
    flow("from = \"a\"\nto = \"b\"", 1, "flow.bytes: the flow has no end: write bytes = \"48MB\", or time = \"30s\"");
    flow("from = \"a\"\nto = \"b\"\nkind = \"cubik\"", 4, "flow.kind: no such kind; did you mean \"cubic\"?");
    flow(
        "from = \"a\"\nto = \"b\"\nkind = \"udp\"\nbytes = \"1MB\"",
        1,
        "flow.rate: UDP has no rate of its own: write",
    );
    flow("from = \"a\"\nto = \"b\"\nkind = \"udp\"\nrate = \"1\"", 5, "flow.rate: \"1\" has no unit; write for");
    flow("from = \"a\"\nto = \"b\"\nkind = \"cubic\"\nprofile = \"arq\"", 5, "flow.profile: this key is for kind");
    flow(
        "from = \"a\"\nto = \"b\"\necn = \"on\"\nbytes = \"1MB\"",
        4,
        "flow.ecn: this key is for the kinds of TCP only",
    );
    let peer = "from = \"a\"\nto = \"b\"\nbytes = \"1MB\"\nkind";
    flow(&format!("{peer} = \"peer\""), 1, "flow.peer: this key is missing: write peer = \"kcptun-fast3\"");
    flow(&format!("{peer} = \"cubic\"\npeer = \"x\""), 6, "flow.peer: this key is for kind = \"peer\" only");
    let plan =
        Plan::parse(&format!("{base}[[flow]]\n{peer} = \"peer\"\npeer = \"x\"\n"), Path::new("net.toml")).unwrap();
    assert!(plan.not_simulated().is_some(), "only the lab runs peers");
    flow("from = \"a\"\nto = \"b\"\nvideo = \"1mbit,1s\"\nbytes = \"1MB\"", 5, "flow.bytes: the video decides this");
    let live = "from = \"a\"\nto = \"b\"\nkind = \"udp\"\nvideo = \"1mbit,1s\"\npace = \"live\"";
    flow(live, 6, "flow.pace: frames over UDP are always live, and are not played: remove the key");
    flow("from = \"a\"\nto = \"b\"\nbyte = \"1MB\"", 4, "flow.byte: no such key; did you mean \"bytes\"?");
    for (text, says) in [
        ("[[node]]\nname = \"a\"\n[[node]]\nname = \"a\"", "net.toml:4: node.name: there is another \"a\": choose"),
        ("[[node]]\nname = \"a b\"", "net.toml:2: node.name: \"a b\" is no name: write 1 to 16 letters, digits and -"),
        (
            "[[node]]\nname = \"a\"\nrole = \"switch\"",
            "net.toml:3: node.role: \"switch\" is no role: write \"host\", \"router\" or \"relay\"",
        ),
        ("[[node]]\nnme = \"a\"", "net.toml:2: node.nme: no such key; did you mean \"name\"?"),
        ("[[link]]\nfrom = \"a\"", "net.toml:2: link.from: there is no node \"a\""),
        (
            "[[node]]\nname = \"a\"\n[far]",
            "net.toml:3: far: no such key (allowed: seed, time, sample, node, link, tunnel, flow)",
        ),
        ("node = \"a\"", "net.toml:1: node: a network has a list of these: write [[node]] for each"),
        ("time = \"0s\"\n[[node]]\nname = \"a\"", "net.toml:1: time: this takes no time"),
    ] {
        let message = refused(text);
        assert!(message.starts_with(says), "{message}\nis not\n{says}");
    }
    let two = "[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n";
    let link = |settings: &str| refused(&format!("{two}[[link]]\nfrom = \"a\"\nto = \"b\"\n{settings}\n"));
    assert!(
        link("medium = \"air\"").starts_with("net.toml:5: link.medium: it has no effect without a rate: write rate")
    );
    assert!(link("back.los = \"1%\"").starts_with("net.toml:8: link.back.los: no such key; did you mean \"loss\"?"));
    assert!(link("rtt = \"1ms\"\ndelay = \"1ms\"").starts_with("net.toml:8: link.rtt: rtt and delay both"));
    assert!(link("arq = \"7\"").starts_with("net.toml:8: link.arq: \"7\" is incomplete; write for example \"7,2ms\""));
    let hosts = base.replace("router", "host");
    let apart = refused(&format!("{hosts}[[flow]]\nfrom = \"a\"\nto = \"b\"\nbytes = \"1B\""));
    assert!(apart.contains("there is no way from a to b: add a link, or write role = \"router\""), "{apart}");
    let ends = Scenario::parse(&base, Path::new("net.toml")).unwrap_err().to_string();
    assert!(ends.contains("this file describes a network"), "{ends}");
}

#[test]
fn a_tunnel_has_the_settings_of_a_flow_and_carries_flows_between_its_ends() {
    let tunnels = r#"
        [[tunnel]]
        from = "a"
        to = "s"
        [[tunnel]]
        name = "t"
        latency = "80ms"
        deliver = "95%"
        profile = "arq"
        from = "b"
        to = "a"
        [[flow]]
        kind = "cubic"
        through = "t"
        from = "a"
        to = "b"
        [[flow]]
        kind = "udp"
        rate = "1mbit"
        from = "b"
        to = "a"
        through = "t"
        [[flow]]
        kind = "udp"
        rate = "1mbit"
        from = "b"
        to = "a"
    "#;
    let plan = with_flows("rate = \"10mbit\"", "time = \"1s\"", tunnels);
    let [first, second] = &plan.tunnels[..] else { panic!("{:?}", plan.tunnels) };
    assert_eq!((first.name.as_str(), first.from, first.to, first.settings.len()), ("1", 0, 2, 0));
    assert_eq!((second.name.as_str(), second.from, second.to), ("t", 3, 0));
    let keys: Vec<_> = second.settings.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect();
    assert!(keys.len() == 3 && keys.contains(&("deliver", "95%")) && keys.contains(&("profile", "arq")), "{keys:?}");
    assert_eq!(second.config.latency(), Some(Duration::from_millis(80)));
    assert_ne!(second.config.profile(), first.config.profile(), "the profile comes first, wherever it stands");
    assert_eq!(plan.flows.iter().map(|flow| flow.through).collect::<Vec<_>>(), [Some(1), Some(1), None]);
}

#[test]
fn refusals_of_tunnels_name_the_line_and_say_what_to_write() {
    let tunnel = |name: &str, to: &str| format!("[[tunnel]]\nname = \"{name}\"\nfrom = \"a\"\nto = \"{to}\"\n");
    let base = format!("{}{}", line("rate = \"10mbit\"", "time = \"1s\""), tunnel("t", "b"));
    let lines = base.lines().count();
    let refused = |text: &str, at: usize, says: &str| {
        let message = Plan::parse(&format!("{base}{text}"), Path::new("net.toml")).unwrap_err().to_string();
        let begins = format!("net.toml:{}: {says}", lines + at);
        assert!(message.starts_with(&begins), "{message}\nis not\n{begins}");
    };
    refused(&tunnel("t", "s"), 2, "tunnel.name: there is another \"t\": choose a name of its own");
    refused(&tunnel("t.1", "s"), 2, "tunnel.name: \"t.1\" is no name: write 1 to 16 letters, digits and -");
    refused(&tunnel("u", "c"), 4, "tunnel.to: there is no node \"c\"; did you mean \"a\"?");
    refused(&tunnel("u", "a"), 1, "tunnel.to: name two different nodes");
    refused("[[tunnel]]\nfrom = \"a\"", 1, "tunnel.to: this key is missing: write to = \"a\", the name of a node");
    refused(&format!("{}rate = \"1mbit\"", tunnel("u", "s")), 5, "tunnel.rate: no such key");
    refused(&format!("{}latency = \"80\"", tunnel("u", "s")), 5, "tunnel.latency: \"80\" has no unit");
    refused(&format!("{}deliver = \"90%\"", tunnel("u", "s")), 5, "tunnel.deliver: this is the share that keeps");
    let flow = |kind: &str, to: &str, through: &str| {
        format!("[[flow]]\nkind = \"{kind}\"\nfrom = \"a\"\nto = \"{to}\"\nthrough = \"{through}\"\n")
    };
    refused(&flow("cubic", "b", "s"), 5, "flow.through: there is no tunnel \"s\"");
    refused(&flow("tidewire", "b", "t"), 5, "flow.through: a connection of ours does not go through a tunnel: write");
    refused(
        &flow("cubic", "s", "t"),
        5,
        "flow.through: the ends of this tunnel are \"a\" and \"b\": write these as from and to of the flow",
    );
    let alone = format!("{}{}", line("rate = \"10mbit\"", "time = \"1s\""), flow("udp", "b", "t"));
    let message = Plan::parse(&alone.replace("udp", "cubic"), Path::new("net.toml")).unwrap_err().to_string();
    assert!(
        message.ends_with("flow.through: there is no tunnel \"t\": write a [[tunnel]] with this name"),
        "{message}"
    );
    let hosts = base.replace("router", "host");
    let message = Plan::parse(&hosts, Path::new("net.toml")).unwrap_err().to_string();
    assert!(message.contains("tunnel.to: there is no way from a to b: add a link"), "{message}");
}

#[test]
fn a_video_is_viewed_over_ours_and_over_tcp() {
    let flow = |kind: &str| {
        format!(
            "[[flow]]\nkind = \"{kind}\"\nfrom = \"a\"\nto = \"b\"\nvideo = \"2mbit,5s\"\npace = \"live\"\nstartup = \"1s\"\n"
        )
    };
    let flows = ["tidewire", "newreno"].map(flow).concat();
    let report = run(&with_flows("rate = \"10mbit\"\ndelay = \"5ms\"\nqueue = \"100ms\"", "", &flows));
    for flow in &report.flows {
        let viewing = flow.viewing.as_ref().unwrap();
        assert_eq!((flow.whole, viewing.stalls, viewing.played), (Some(true), 0, Duration::from_secs(5)), "{flow:?}");
        let start = viewing.first_start.unwrap().as_secs_f64();
        assert!((0.98..1.1).contains(&start) && flow.window.len() > 100, "{start}");
        assert_eq!(flow.latencies.latency.count(), 150);
    }
}

/// Two hops of 10 % loss and a relay between them, beside the same hops with a router.
#[test]
fn a_flow_crosses_a_relay_that_recodes() {
    let text = |role: &str, via: &str| {
        let node = |name: &str, role: &str| format!("[[node]]\nname = \"{name}\"\nrole = \"{role}\"\n");
        let link = |from: &str, to: &str| {
            format!("[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"20mbit\"\nrtt = \"20ms\"\nloss = \"10%\"\n")
        };
        let flow = format!("[[flow]]\nfrom = \"a\"\nto = \"b\"\nbytes = \"2MB\"\n{via}");
        [node("a", "host"), node("r", role), node("b", "host"), link("a", "r"), link("r", "b"), flow].concat()
    };
    let relay = text("relay", "via = \"r\"\nprofile = \"pipeline:32,1.1\"\n");
    let plan = Plan::parse(&relay, Path::new("net.toml")).unwrap();
    assert_eq!(plan.flows[0].stations(), [0, 1, 2]);
    let (first, again) = (Network::new(&plan).run(), Network::new(&plan).run());
    assert_eq!(first.fingerprint, again.fingerprint);
    let flow = &first.flows[0];
    assert!(flow.whole == Some(true) && flow.errors.is_empty(), "{flow:?}");
    assert!(flow.repeated > 100 && flow.packets > 1_900, "{flow:?}");
    // 18 Mbit/s arrive at best, and the first second finds the rate.
    assert!(flow.seconds < 3.0, "{flow:?}");
    for (text, says) in [
        (text("relay", ""), "there is no way from a to b"),
        (text("router", "via = \"r\"\n"), "there is no relay \"r\": write role = \"relay\""),
        (text("relay", "via = \"q\"\n"), "there is no relay \"q\""),
        (text("relay", "via = \"r, r\"\n"), "name each once"),
        (text("relay", "via = \"r\"\nkind = \"cubic\"\n"), "only kind = \"tidewire\" crosses relays"),
        (text("relay", "via = \"r\"\nprofile = \"block:32,8\"\n"), "pipeline:G,R"),
    ] {
        let message = Plan::parse(&text, Path::new("net.toml")).unwrap_err().to_string();
        assert!(message.contains(says), "{message}\nis not\n{says}");
    }
}
