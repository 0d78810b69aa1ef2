use core::time::Duration;
use std::path::Path;

use crate::network::{Batch, Network, Plan, Report};

/// Two nodes with one link of 25 Mbit/s and 60 ms, and a tunnel.
fn plan(link: &str, flows: &str) -> Plan {
    let text = format!(
        r#"
        time = "20s"
        [[node]]
        name = "a"
        [[node]]
        name = "b"
        [[link]]
        from = "a"
        to = "b"
        rate = "25mbit"
        rtt = "60ms"
        {link}
        [[tunnel]]
        name = "t"
        from = "a"
        to = "b"
        {flows}"#
    );
    Plan::parse(&text, Path::new("net.toml")).unwrap_or_else(|error| panic!("{error}"))
}

fn flow(kind: &str, [from, to]: [&str; 2], rest: &str) -> String {
    format!("[[flow]]\nkind = \"{kind}\"\nfrom = \"{from}\"\nto = \"{to}\"\n{rest}\n")
}

/// Runs a plan. No byte may be wrong, and each packet has one fate.
fn run(plan: &Plan) -> Report {
    let report = Network::new(plan).run();
    for flow in &report.flows {
        assert!(flow.errors.is_empty(), "{}: {:?}", flow.name, flow.errors);
    }
    for tunnel in &report.tunnels {
        assert!(tunnel.errors.is_empty(), "{:?}", tunnel.errors);
        let [near, far] = &tunnel.ends;
        for (end, other) in [(near, far), (far, near)] {
            // What did not arrive was given up, or is on its way: at most 25 Mbit/s in 200 ms.
            let (sent, arrived) = (end.sent[0], other.received[0]);
            assert!((arrived..=arrived + end.dropped("expired") + 450).contains(&sent), "{end:?} {other:?}");
            // One packet is one symbol, but the first few are cut: the path's MTU is not known yet.
            assert!(end.source <= sent + 20, "{end:?}");
        }
    }
    report
}

fn loss(loss: &str) -> String {
    format!("forward.loss = \"{loss}\"")
}

#[test]
fn losses_that_stop_newreno_hardly_touch_it_in_a_tunnel() {
    let share = |percent: f64, through: &str| {
        let loss = loss(&format!("{percent}%"));
        let report = run(&plan(&loss, &flow("newreno", ["a", "b"], through)));
        (report.flows[0].goodput_bps() / (25e6 * (1.0 - percent / 100.0)), report)
    };
    for percent in [2.0, 5.0] {
        let ((alone, _), (carried, report)) = (share(percent, ""), share(percent, "through = \"t\""));
        // The square-root law (Mathis and others, 1997) lets NewReno have 1.6 and 1.1 Mbit/s.
        assert!(alone < 0.1 && carried > 0.6, "{percent} %: {alone} of the link, {carried} in a tunnel");
        let [there, back] = &report.tunnels[0].ends;
        let repairs = there.repairs() as f64 / there.source as f64;
        assert!((percent / 100.0..0.3).contains(&repairs), "{percent} %: {there:?}");
        assert!(back.repairs() < 10 && there.received[0] > 1_000, "acknowledgements meet no loss: {back:?}");
    }
    // The headers inside count: a segment of 1,368 bytes is a packet of 1,420, and the
    // transport's follow. Reports about the acknowledgements go the same way.
    let (_, report) = share(0.0, "through = \"t\"");
    let ([there, back], link) = (report.tunnels[0].ends, report.links[0].stats[0]);
    let each = link.offered_bytes as f64 / there.source as f64;
    assert!((1_440.0..1_550.0).contains(&each), "{each} bytes of the link for each segment");
    assert!(report.flows[0].bytes <= 1_368 * back.received[0], "{there:?}");
    // What CoDel drops is what keeps the queue short. Nothing else is lost.
    assert!((1..100).contains(&there.dropped("late")) && there.dropped("overflow") == 0, "{there:?}");
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn flows_of_all_kinds_share_a_tunnel_in_both_directions() {
    let through = |kind: &str, way, rest: &str| flow(kind, way, &format!("through = \"t\"\n{rest}"));
    let flows = [
        through("newreno", ["a", "b"], "ecn = \"on\""),
        through("cubic", ["b", "a"], "start = \"1s\""),
        through("udp", ["b", "a"], "rate = \"1mbit\"\nrecord = \"500B\""),
        through("udp", ["a", "b"], "video = \"1mbit,10s\""),
        flow("newreno", ["a", "b"], ""),
    ];
    let plan = plan("loss = \"1%\"\nduplicate = \"0.5%\"\ncorrupt = \"0.5%\"\njitter = \"1ms\"", &flows.concat());
    let report = run(&plan);
    let [first, second, paced, video, beside] = &report.flows[..] else { panic!("{}", report.flows.len()) };
    assert!(first.goodput_bps() > 10e6 && second.goodput_bps() > 10e6, "{first:?}\n{second:?}");
    assert!(beside.bytes > 300_000 && beside.goodput_bps() < first.goodput_bps() / 3.0, "{beside:?}");
    // Datagrams pass the long flows. Their lost packets come back within the lifetime, three round trips.
    for datagrams in [paced, video] {
        let arrived = datagrams.latencies.latency.count() as f64 / datagrams.packets as f64;
        let quick = datagrams.latencies.latency.quantile(0.5);
        assert!(arrived > 0.98 && quick < Duration::from_millis(70), "{arrived} {quick:?}");
        assert!(datagrams.latencies.latency.max() < Duration::from_millis(400), "{datagrams:?}");
    }
    let [there, back] = &report.tunnels[0].ends;
    assert!(there.marked > 5 && first.repeated < there.marked, "marks and no drops: {there:?} {first:?}");
    assert!(back.marked == 0 && back.dropped("late") > 5, "{back:?}");
    // The same again is the same, another seed is not.
    assert_eq!(run(&plan).fingerprint, report.fingerprint);
    assert_ne!(run(&plan.clone().with_seed(4)).fingerprint, report.fingerprint);
}

#[test]
fn packets_that_are_too_long_or_too_old_are_counted() {
    let udp =
        |record: &str| flow("udp", ["a", "b"], &format!("through = \"t\"\nrate = \"1mbit\"\nrecord = \"{record}\""));
    let report = run(&plan("", &[udp("1392B"), udp("1393B")].concat()));
    let (whole, [counts, far]) = (&report.flows[0], report.tunnels[0].ends);
    assert_eq!((counts.dropped("too_long"), report.flows[1].bytes), (report.flows[1].packets, 0));
    assert!(far.received[0] + 10 > whole.packets && whole.bytes == 1_392 * far.received[0], "{counts:?}");
    // An outage of three seconds: what waited for more than one is dropped, and later packets pass.
    let report = run(&plan("blackout = \"5s..8s\"", &udp("1000B")));
    let [counts, far] = report.tunnels[0].ends;
    let lost = report.flows[0].packets - far.received[0];
    assert!(counts.dropped("late") > 100 && counts.dropped("late") + counts.dropped("expired") >= lost, "{counts:?}");
    assert!((125..500).contains(&lost), "1 to 4 s of 125 packets: {lost}");
}

#[test]
fn a_tunnel_carries_little_more_or_less_than_in_real_time() {
    // `docs/networks.md` compares more of them with the kernel's CUBIC.
    for (loss, real) in [("0%", 0.85), ("5%", 0.76)] {
        let p: f64 = loss.trim_end_matches('%').parse().unwrap();
        let report = run(&plan(&self::loss(loss), &flow("cubic", ["a", "b"], "through = \"t\"")));
        let share = report.flows[0].goodput_bps() / (25e6 * (1.0 - p / 100.0));
        assert!((share - real).abs() < 0.07, "{loss}: {share}, {real} in real time");
    }
}

#[test]
fn packets_of_a_batch_enter_together_and_a_pause_ends_it() {
    // A datagram every 8 ms. The first of a batch of four waits for three others.
    let flow = flow("udp", ["a", "b"], "through = \"t\"\nrate = \"1mbit\"\nrecord = \"1000B\"\nbytes = \"1002kB\"");
    let mut plan = plan("", &flow);
    let alone = run(&plan).flows[0].latencies.latency.clone();
    plan.tunnels[0].batch = Some(Batch { packets: 4, pause: Duration::from_millis(50) });
    let batched = run(&plan).flows[0].latencies.latency.clone();
    // 1,002 is no multiple of four: the last two leave after the pause.
    assert_eq!((alone.count(), batched.count()), (1_002, 1_002));
    let waited = |quantile| batched.quantile(quantile).saturating_sub(alone.quantile(0.5)).as_millis();
    assert!(
        [0.1, 0.4, 0.6, 0.9].map(waited).into_iter().zip([0, 8, 16, 24]).all(|(waited, ms)| waited.abs_diff(ms) < 3)
    );
}
