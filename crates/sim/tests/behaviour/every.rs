//! Every choice with every job: each combination of layout, code, redundancy and answer carries data, or is
//! refused with a sentence; each profile carries every job under every rate control.

use tidewire_proto::config::Config;
use tidewire_proto::profile::{ARQ, Profile, block};
use tidewire_proto::rate::RateControl;
use tidewire_proto::redundancy::Redundancy;
use tidewire_proto::wire::parse_code;
use tidewire_sim::network::{Network, Plan};

use super::*;

const CODES: [&str; 7] = ["rlc", "rlc16", "cauchy", "raptorq", "rs-fft", "lt:0.1,0.5", "semi-random-lt:9"];
const REDUNDANCIES: [&str; 13] = [
    "none",
    "every:5",
    "adaptive",
    "pipeline:8,1.25",
    "pipeline:8,adaptive",
    "pipeline:8,1.25,systematic",
    "block:8,4",
    "sphinx:10",
    "sphinx:10,0.5",
    "rcdp:8",
    "rcdp:8,basic",
    "bucket:4,1.25",
    "bucket:2,1.25,fixed",
];
const ANSWERS: [&str; 6] = ["", ",open", ",resend", ",deficit", ",planned", ",icm"];
const CONTROLS: [&str; 7] = ["share", "cubic", "newreno", "aimd", "aimd:1,50", "train", "fixed:10mbit"];

/// Both ends with a profile over a link that loses 5 % of the packets.
fn lossy(profile: Profile, flows: Vec<Flow>) -> Trial {
    let mut trial = Trial::new(link(&[(Direction::Both, "loss", "5%"), (Direction::Both, "queue", "60ms")]), flows, 3);
    trial.near = Config::builder().profile(profile).build().expect("what fits together is a configuration");
    trial.far = trial.near.clone();
    trial
}

/// A combination that is allowed carries a stream; another one is refused, both by its own check and where a
/// configuration is built, in words that name a choice and say what to take.
#[test]
fn every_combination_carries_a_stream_or_is_refused_in_words() {
    let (mut carried, mut refused) = (0, 0);
    for layout in [ARQ, block(8, 4)] {
        for code in CODES {
            for redundancy in REDUNDANCIES {
                for answer in ANSWERS {
                    let text = format!("{redundancy}{answer}");
                    let redundancy: Redundancy = text.parse().unwrap_or_else(|error| panic!("{error}"));
                    let profile = Profile { code: parse_code(code).expect(code), redundancy, ..layout };
                    let what = format!("{:?}, {code}, {text}", layout.layout);
                    match profile.check() {
                        Ok(()) => {
                            let report = lossy(profile, vec![Flow::bulk(End::Near, 40_000)]).run();
                            assert!(report.done && report.errors.is_empty(), "{what}: {report:?}");
                            carried += 1;
                        }
                        Err(mismatch) => {
                            let said = mismatch.to_string();
                            let built = Config::builder().profile(profile).build().expect_err(&what).to_string();
                            assert!(built.contains(&said), "{what}: {built}");
                            let kind = code.split(':').next().expect("a name");
                            let names = said.contains(kind) || text.split(',').any(|word| said.contains(word));
                            assert!(names && said.contains(": take the "), "{what}: {said}");
                            refused += 1;
                        }
                    }
                }
            }
        }
    }
    println!("{carried} combinations carry, {refused} are refused");
    assert!(carried > 100 && refused > 500, "{carried} carried, {refused} refused");
}

/// The profiles by their names and by their examples, and the forms that only parameters choose.
fn profiles() -> Vec<String> {
    let named = Profile::NAMED.iter().flat_map(|named| [named.name, named.example]);
    let forms = [
        "sphinx:printed",
        "sphinx:printed,floor",
        "rcdp:84,basic",
        "pipeline:32,min",
        "pipeline:16,combo",
        "pipeline:16,combo-printed",
        "pipeline:16,adaptive,systematic",
        "bucket:4,1.25,fixed",
    ];
    let mut all: Vec<_> = named.chain(forms).map(str::to_owned).collect();
    all.dedup();
    all
}

#[test]
fn every_profile_carries_streams_both_ways_under_every_rate_control() {
    for text in profiles() {
        for control in CONTROLS {
            let rate_control: RateControl = control.parse().expect(control);
            let profile = Profile { rate_control, ..text.parse().expect(&text) };
            let flows = vec![
                Flow::bulk(End::Near, 300_000),
                Flow::bulk(End::Far, 100_000),
                Flow { record: 500, ..Flow::paced(End::Near, 30_000, 30_000) },
            ];
            let report = lossy(profile, flows).run();
            assert!(report.done && report.errors.is_empty(), "{text}, {control}: {report:?}");
        }
    }
}

/// TCP and datagrams in a tunnel, each profile with its own rate control and with `open`, which only tunnels
/// have.
#[test]
fn every_profile_carries_a_tunnel() {
    for text in profiles() {
        for control in ["", "rate_control = \"open\""] {
            let plan = format!(
                r#"
                time = "6s"
                [[node]]
                name = "a"
                [[node]]
                name = "b"
                [[link]]
                from = "a"
                to = "b"
                rate = "5mbit"
                rtt = "30ms"
                loss = "2%"
                [[tunnel]]
                name = "t"
                from = "a"
                to = "b"
                profile = "{text}"
                {control}
                [[flow]]
                kind = "newreno"
                through = "t"
                from = "a"
                to = "b"
                bytes = "300kB"
                [[flow]]
                kind = "udp"
                through = "t"
                from = "b"
                to = "a"
                rate = "200kbit"
                record = "500B""#
            );
            let plan = Plan::parse(&plan, Path::new("net.toml")).unwrap_or_else(|error| panic!("{text}: {error}"));
            let report = Network::new(&plan).run();
            let [tcp, udp] = &report.flows[..] else { panic!("{} flows", report.flows.len()) };
            let what = format!("{text} {control}");
            assert!(tcp.errors.is_empty() && udp.errors.is_empty() && udp.damaged == 0, "{what}: {tcp:?} {udp:?}");
            assert!(report.tunnels[0].errors.is_empty(), "{what}: {:?}", report.tunnels[0].errors);
            assert!(tcp.bytes > 100_000, "{what}: {} bytes of TCP", tcp.bytes);
            let arrived = udp.latencies.latency.count() as f64 / udp.packets as f64;
            assert!(arrived > 0.9, "{what}: {arrived} of the datagrams");
        }
    }
}
