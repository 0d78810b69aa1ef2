//! Random networks: whatever the nodes, links and flows, no byte is wrong, no packet is unaccounted for, and
//! the same network again gives the same packets.
//!
//! A failure prints the seed. `NETWORK_SEED=17` runs that one alone.

use core::fmt::Write;
use std::path::Path;

use tidewire_codec::SplitMix64;
use tidewire_proto::Time;
use tidewire_sim::network::{Network, Plan, Report};

/// A sequence of choices that follows from a seed.
struct Draw(SplitMix64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// The scenario of a seed: a chain of routers, hosts and further links at random, and up to eight flows.
fn scenario(seed: u64) -> String {
    let mut draw = Draw(SplitMix64::new(seed));
    let (routers, hosts) = (1 + draw.below(4), 2 + draw.below(4));
    let mut text = format!("seed = {seed}\ntime = \"{}s\"\n", 2 + draw.below(4));
    let mut names: Vec<String> = Vec::new();
    for n in 0..routers {
        let _ = writeln!(text, "[[node]]\nname = \"r{n}\"\nrole = \"router\"");
    }
    for n in 0..hosts {
        let _ = writeln!(text, "[[node]]\nname = \"h{n}\"");
        names.push(format!("h{n}"));
    }
    names.push("r0".to_owned());
    let mut links: Vec<(String, String)> = (1..routers).map(|n| (format!("r{}", n - 1), format!("r{n}"))).collect();
    links.extend((0..hosts).map(|n| (format!("h{n}"), format!("r{}", draw.below(routers)))));
    if draw.below(2) == 0 {
        links.push(("h0".to_owned(), "h1".to_owned()));
    }
    for (n, (from, to)) in links.iter().enumerate() {
        let _ = writeln!(text, "[[link]]\nname = \"l{n}\"\nfrom = \"{from}\"\nto = \"{to}\"");
        let rate = draw.one(&["2mbit", "10mbit", "50mbit"]);
        let _ = writeln!(text, "rate = \"{rate}\"\ndelay = \"{}us\"", 100 + draw.below(20_000));
        let queue = draw.one(&["3kB", "30ms", "200ms"]);
        let _ = writeln!(text, "queue = \"{queue}\"");
        for (key, values) in [
            ("discipline", &["codel", "codel:2ms,20ms", "drop-tail"][..]),
            ("loss", &["none", "1%", "gilbert:10%,3"]),
            ("arq", &["none", "3,1ms", "2,500us,unordered"]),
            ("medium", &["none", "none", "radio"]),
            ("jitter", &["0ms", "3ms"]),
            ("reorder", &["none", "2%,4ms"]),
            ("duplicate", &["0%", "1%"]),
            ("corrupt", &["0%", "1%"]),
            ("mark", &["none", "5ms"]),
            ("blackout", &["none", "1s..1.3s"]),
        ] {
            if draw.below(3) == 0 {
                let _ = writeln!(text, "{key} = \"{}\"", draw.one(values));
            }
        }
        if draw.below(4) == 0 {
            let _ = writeln!(text, "back.loss = \"5%\"\nback.rate = \"1mbit\"");
        }
    }
    for _ in 0..=draw.below(8) {
        let from = draw.below(names.len() as u64) as usize;
        let to = (from + 1 + draw.below(names.len() as u64 - 1) as usize) % names.len();
        let kind = draw.one(&["tidewire", "newreno", "cubic", "udp"]);
        let _ = writeln!(text, "[[flow]]\nkind = \"{kind}\"\nfrom = \"{}\"\nto = \"{}\"", names[from], names[to]);
        let content = match kind {
            "udp" => draw.one(&["rate = \"1mbit\"", "video = \"1mbit,2s\"", "rate = \"3mbit\"\nrecord = \"77B\""]),
            _ => draw.one(&["", "bytes = \"300kB\"", "rate = \"500kbit\"", "video = \"1mbit,2s\"\npace = \"live\""]),
        };
        let _ = writeln!(text, "{content}\nstart = \"{}ms\"", draw.below(1_500));
        if matches!(kind, "newreno" | "cubic") && draw.below(2) == 0 {
            text += "ecn = \"on\"\n";
        }
    }
    text
}

fn run(seed: u64, text: &str) -> Report {
    let plan =
        Plan::parse(text, Path::new("random.toml")).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
    let mut network = Network::new(&plan);
    // The counts add up at any time, not only at the end.
    for part in 1..=4 {
        network.until(Time::ZERO + plan.limit() * part / 4);
        for link in network.links_mut() {
            for stats in [link.forward.stats(), link.back.stats()] {
                assert_eq!(stats.offered, stats.accounted(), "NETWORK_SEED={seed}: {stats:?}");
            }
        }
    }
    network.report()
}

#[test]
fn random_networks_lose_no_packet_and_change_no_byte() {
    let few = tidewire_testing::few_seeds();
    let one = std::env::var("NETWORK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(1..if few { 30 } else { 300 }, |seed: u64| seed..seed + 1);
    let (mut bytes, mut codel, mut resent) = (0, 0, 0);
    for seed in seeds {
        let text = scenario(seed);
        let report = run(seed, &text);
        for flow in &report.flows {
            let is_wrong = flow.errors.iter().any(|error| !error.starts_with("closed"));
            assert!(!is_wrong, "NETWORK_SEED={seed}: {}: {:?}", flow.name, flow.errors);
            bytes += flow.bytes;
        }
        codel += report.links.iter().flat_map(|link| link.stats).map(|stats| stats.codel_dropped).sum::<u64>();
        resent += report.links.iter().flat_map(|link| link.stats).map(|stats| stats.attempts_repeated()).sum::<u64>();
        assert_eq!(run(seed, &text).fingerprint, report.fingerprint, "NETWORK_SEED={seed}");
    }
    assert!(one.is_some() || (bytes > 10_000_000 && codel > 100 && resent > 1_000), "{bytes} {codel} {resent}");
}

/// A file with a line less, or half of a line, is read or refused, and a refusal names a line of the file.
#[test]
fn no_text_of_a_network_causes_a_panic() {
    for seed in 1..10 {
        let text = scenario(seed);
        let lines: Vec<_> = text.lines().collect();
        for cut in 0..lines.len() {
            for keep in [0, lines[cut].len() / 2] {
                let mut changed = lines.clone();
                changed[cut] = &changed[cut][..keep];
                let changed = changed.join("\n");
                if let Err(error) = Plan::parse(&changed, Path::new("random.toml")) {
                    assert!(error.line.is_some_and(|line| (1..=lines.len() + 1).contains(&line)), "{error}");
                }
            }
        }
    }
}
