//! Flows of TCP in virtual time: goodput against the square-root law, bytes under every impairment, and two
//! flows on one queue. `docs/networks.md` compares them with the kernel's.

use core::time::Duration;
use std::path::Path;

use tidewire_proto::Time;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;
use tidewire_sim::tcp::{SenderConfig, Source, TcpPair, content, together};

fn link(seed: u64, settings: &[(Direction, &str, &str)]) -> DuplexConfig {
    let mut link = DuplexConfig::default();
    for (direction, key, text) in settings {
        link.set(*direction, key, text, Path::new("")).unwrap();
    }
    link.set_seed(seed);
    link
}

fn config(link: &DuplexConfig) -> SenderConfig {
    SenderConfig { handshake: Some(link.rtt()), ..SenderConfig::default() }
}

fn seeds(all: u64) -> u64 {
    if tidewire_testing::few_seeds() { all.div_ceil(10) } else { all }
}

/// Mathis, Semke, Mahdavi and Ott (1997), equation 3: MSS / RTT * C / sqrt(p), with C = sqrt(3/2) for an ACK
/// of each segment. Linux counts the segments that a delayed ACK acknowledges, so this is its C too.
/// Timeouts, which the law leaves out, take a part at 3 %.
#[test]
fn goodput_follows_the_square_root_law() {
    for (loss, least, most) in [(0.001, 0.75, 1.1), (0.003, 0.75, 1.1), (0.01, 0.7, 1.1), (0.03, 0.5, 1.0)] {
        let time = 300.0;
        let settings = [
            (Direction::Both, "rate", "100mbit"),
            (Direction::Both, "rtt", "40ms"),
            (Direction::Forward, "loss", &format!("{}%", loss * 100.0)),
        ];
        let link = link(5, &settings);
        let mut flow = TcpPair::new(config(&link), Source::Bulk, &link, Time::ZERO);
        flow.until(Time::ZERO + Duration::from_secs_f64(time));
        let outcome = flow.outcome();
        let goodput = outcome.receiver.bytes as f64 / time;
        let law = 1_448.0 / 0.04 * (1.5f64 / loss).sqrt();
        println!("{loss}: {:.2} Mbit/s, {:.2} of the law, {:?}", goodput * 8e-6, goodput / law, outcome.sender);
        assert!((least..most).contains(&(goodput / law)), "{loss}: {:.2}", goodput / law);
    }
}

#[test]
fn each_byte_arrives_once_under_every_impairment() {
    let bytes = 500_000;
    for seed in 0..seeds(200) {
        let delay = ["0ms", "5ms", "30ms", "150ms"][seed as usize % 4];
        let loss = ["1%", "gilbert:5%,3", "10%", "gilbert:20%,2"][seed as usize / 4 % 4];
        let settings = [
            (Direction::Both, "rate", "20mbit"),
            (Direction::Both, "rtt", "30ms"),
            (Direction::Both, "loss", loss),
            (Direction::Both, "reorder", &format!("5%,{delay}")),
            (Direction::Both, "duplicate", "3%"),
            (Direction::Both, "corrupt", "1%"),
            (Direction::Both, "jitter", "3ms"),
        ];
        let link = link(seed, &settings);
        let mut flow = TcpPair::new(config(&link), Source::Bytes(bytes), &link, Time::ZERO);
        // Where a fifth is lost in both directions, backoff reaches two minutes. An old segment that comes
        // again because its ACK was lost does not change the echoed stamp, so the round trip looks as long.
        flow.until(Time::ZERO + Duration::from_secs(100_000));
        let outcome = flow.outcome();
        assert!(flow.sender().is_done(), "seed {seed}: {outcome:?}");
        assert_eq!((outcome.receiver.bytes, outcome.receiver.digest), (bytes, content(0, bytes)), "seed {seed}");
        assert_eq!(outcome.receiver.refused, 0, "seed {seed}");
        assert_eq!(flow.next_moment(), None, "seed {seed}");
    }
}

#[test]
fn two_flows_share_a_link() {
    for seed in 0..seeds(20) {
        let settings = [(Direction::Both, "rate", "10mbit"), (Direction::Both, "rtt", "40ms")];
        let link = link(seed, &settings);
        let start = |ms| TcpPair::new(config(&link), Source::Bulk, &link, Time::from_millis(ms));
        let mut flows = vec![start(0), start(seed * 137 % 2_000)];
        let (first, second) = flows.split_at_mut(1);
        second[0].share_queues(first[0].link_mut());
        together(&mut flows, &mut [], Time::from_millis(20_000));
        let before: Vec<u64> = flows.iter().map(|flow| flow.receiver().delivered()).collect();
        together(&mut flows, &mut [], Time::from_millis(140_000));
        let bits: Vec<f64> = flows
            .iter()
            .zip(before)
            .map(|(flow, before)| (flow.receiver().delivered() - before) as f64 * 8.0)
            .collect();
        let sum: f64 = bits.iter().sum();
        println!("seed {seed}: {:.3} of the link, the first {:.3}", sum / 1.2e9, bits[0] / sum);
        assert!((0.4..=0.6).contains(&(bits[0] / sum)), "seed {seed}: {:.3}", bits[0] / sum);
        assert!(sum / 1.2e9 > 0.9, "seed {seed}: {:.3}", sum / 1.2e9);
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let run = |seed| {
        let settings =
            [(Direction::Both, "rate", "10mbit"), (Direction::Both, "rtt", "40ms"), (Direction::Both, "loss", "2%")];
        let link = link(seed, &settings);
        let mut flow = TcpPair::new(config(&link), Source::Bulk, &link, Time::ZERO);
        flow.until(Time::from_millis(20_000));
        flow.outcome()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!(run(1).window.len() <= tidewire_sim::series::MOST_SAMPLES);
}

/// A flow of ours and one of TCP on one queue: bytes of both are right, and both get a part.
#[test]
fn a_flow_of_ours_runs_beside_it() {
    let settings = [(Direction::Both, "rate", "10mbit"), (Direction::Both, "rtt", "40ms")];
    let link = link(3, &settings);
    let mut runs = vec![Trial::new(link.clone(), vec![Flow::bulk(End::Near, 1 << 30)], 3).start()];
    let mut flow = TcpPair::new(config(&link), Source::Bulk, &link, Time::from_millis(500));
    flow.share_queues(runs[0].pair.link_mut());
    let mut flows = [flow];
    together(&mut flows, &mut runs, Time::from_millis(40_000));
    assert!(runs[0].load.errors.is_empty(), "{:?}", runs[0].load.errors);
    let [ours, tcp] = [runs[0].load.read(), flows[0].outcome().receiver.bytes].map(|bytes| bytes as f64 * 8.0 / 4e8);
    println!("ours {ours:.3} of the link, TCP {tcp:.3}");
    // Ours yields until it notices that it is pressed (docs/fairness.md).
    assert!(ours > 0.06 && tcp > 0.2 && (0.8..=1.0).contains(&(ours + tcp)), "{ours:.3} {tcp:.3}");
}
