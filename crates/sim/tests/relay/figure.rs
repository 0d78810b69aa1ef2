//! The figure of `docs/relay.md`: recoding at each hop beside coding from end to end, over the same two hops.

use std::path::Path;

use tidewire_proto::Time;
use tidewire_proto::recode::{MAX_RELAYED_DATAGRAM, Relaying};
use tidewire_sim::chain::Chain;
use tidewire_sim::link::LinkStats;
use tidewire_sim::load::{Flow, Load};
use tidewire_sim::network::{Network, Plan};
use tidewire_sim::pair::End as Side;

use super::{LOSSY, hop, seeds};

/// Bytes of the flow.
const BYTES: u64 = 20_000_000;

/// What one run took.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// Symbols delivered of those that arrived over the worse hop.
    of_cut: f64,
    seconds: f64,
    /// Packets and bytes on all links and in both directions, for each packet of 1,200 bytes of the
    /// application, and for each of its bytes.
    packets: f64,
    bytes: f64,
}

fn recoded(redundancy: Option<f64>, length: u8, seed: u64) -> Row {
    let mut relaying = Relaying::default();
    (relaying.redundancy, relaying.length) = (redundancy, length);
    let links = [hop(&LOSSY, 2 * seed), hop(&LOSSY, 2 * seed + 1)];
    let mut chain = Chain::new(&links, relaying, MAX_RELAYED_DATAGRAM, seed);
    let mut load = Load::new(&[Flow::bulk(Side::Near, BYTES)], seed);
    chain.connect();
    assert!(chain.run(&mut load, Time::from_millis(120_000), |load, _| load.is_done()), "{:?}", load.errors);
    let arrived = [0, 1].map(|hop| chain.relay_stats(hop)[1].received);
    let links = [0, 1].map(|hop| chain.link_stats(hop));
    let sum = |of: fn(&LinkStats) -> u64| links.iter().flatten().map(of).sum::<u64>() as f64;
    Row {
        of_cut: chain.delivered(Side::Far) as f64 / arrived[0].min(arrived[1]) as f64,
        seconds: chain.now().as_secs_f64(),
        packets: sum(|link| link.offered) * 1_200.0 / BYTES as f64,
        bytes: sum(|link| link.offered_bytes) / BYTES as f64,
    }
}

/// The same with a router in place of the relay, so that one session codes over both hops.
fn end_to_end(redundancy: &str, seed: u64) -> Row {
    let link = |from, to| {
        format!(
            "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"20mbit\"\nrtt = \"20ms\"\nloss = \"10%\"\nqueue = \"40ms\"\n"
        )
    };
    let text = format!(
        "seed = {seed}\ntime = \"120s\"\n[[node]]\nname = \"a\"\n[[node]]\nname = \"r\"\nrole = \"router\"\n\
         [[node]]\nname = \"b\"\n{}{}[[flow]]\nfrom = \"a\"\nto = \"b\"\nbytes = \"20MB\"\n{redundancy}\n",
        link("a", "r"),
        link("r", "b")
    );
    let plan = Plan::parse(&text, Path::new("two-hops.toml")).expect("a plan");
    let report = Network::new(&plan).run();
    let flow = &report.flows[0];
    assert!(flow.whole == Some(true) && flow.errors.is_empty(), "{:?}", flow.errors);
    let sum = |of: fn(&LinkStats) -> u64| report.links.iter().flat_map(|link| &link.stats).map(of).sum::<u64>() as f64;
    Row {
        of_cut: 0.0,
        seconds: flow.seconds,
        packets: sum(|link| link.offered) * 1_200.0 / BYTES as f64,
        bytes: sum(|link| link.offered_bytes) / BYTES as f64,
    }
}

/// Mean of some runs.
fn mean(rows: &[Row]) -> Row {
    let of = |field: fn(&Row) -> f64| rows.iter().map(field).sum::<f64>() / rows.len() as f64;
    Row {
        of_cut: of(|row| row.of_cut),
        seconds: of(|row| row.seconds),
        packets: of(|row| row.packets),
        bytes: of(|row| row.bytes),
    }
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn recoding_reaches_the_min_cut_with_fewer_bytes_than_coding_from_end_to_end() {
    let seeds = seeds(10);
    let print = |what: &str, row: Row| {
        let Row { of_cut, seconds, packets, bytes } = row;
        println!("| {what} | {of_cut:.4} | {seconds:.2} | {packets:.2} | {bytes:.3} |");
        row
    };
    let mut least: f64 = 1.0;
    for (length, redundancy) in [(16, Some(1.0)), (16, None), (32, Some(1.0)), (32, None)] {
        let rows: Vec<_> = seeds.iter().map(|&seed| recoded(redundancy, length, seed)).collect();
        least = rows.iter().fold(least, |least, row| least.min(row.of_cut));
        print(&format!("generations of {length}, R {redundancy:?}"), mean(&rows));
    }
    assert!(least >= 0.95, "{least}");
    let deficit = seeds.iter().map(|&seed| recoded(Some(1.0), 16, seed)).collect::<Vec<_>>();
    for redundancy in ["", "redundancy = \"none,deficit\"", "profile = \"arq\""] {
        let rows: Vec<_> = seeds.iter().map(|&seed| end_to_end(redundancy, seed)).collect();
        let row = print(&format!("end to end, {redundancy}"), mean(&rows));
        let ours = mean(&deficit);
        // `arq` sends no combinations, so it is no coding; it is printed for comparison.
        let is_lower = ours.bytes < row.bytes || redundancy.contains("arq");
        assert!(is_lower && ours.seconds < row.seconds, "{ours:?} {row:?}");
    }
}
