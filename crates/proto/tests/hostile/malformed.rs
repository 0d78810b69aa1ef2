//! Malformed datagrams sent to a live endpoint, beside an honest flow.

use std::net::SocketAddr;
use std::time::Duration;

use tidewire_proto::config::Config;

use super::flow::Flow;
use super::host::Random;

const TICK: Duration = Duration::from_millis(1);
/// Malformed datagrams per tick: 50,000 per second.
const PER_TICK: usize = 50;
/// Rate of the honest flow in bits per second.
const RATE: u64 = 20_000_000;
/// Maximum memory that all malformed datagrams may cost.
const GROWTH: isize = 16 << 20;
/// Datagrams of the honest flow that the junk is made of: the first ones, including the handshake, and the
/// newest.
const KEPT: usize = 64;

/// Datagrams seen on the wire.
#[derive(Default)]
struct Capture {
    datagrams: Vec<Vec<u8>>,
    seen: usize,
}

impl Capture {
    fn keep(&mut self, datagram: &[u8]) {
        if self.datagrams.len() < KEPT {
            self.datagrams.push(datagram.to_vec());
        } else {
            let newest = &mut self.datagrams[KEPT / 2 + self.seen % (KEPT / 2)];
            newest.clear();
            newest.extend_from_slice(datagram);
        }
        self.seen += 1;
    }

    fn any(&self, random: &mut Random) -> &[u8] {
        &self.datagrams[random.below(self.datagrams.len())]
    }

    /// A datagram that no honest peer sends now. It differs from every packet in flight.
    fn junk(&self, random: &mut Random, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.any(random));
        let len = out.len();
        match random.below(8) {
            0 => out.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
            1 => out.truncate(random.below(len)),
            2 | 3 => out[random.below(len)] ^= 1 << random.below(8),
            4 => {
                let other = self.any(random);
                let cut = random.below(len.min(other.len()));
                out.truncate(cut);
                out.extend_from_slice(&other[cut..]);
            }
            // Replayed unchanged: a packet of any age, or a HELLO.
            5 => {}
            // With another first byte: a packet in a state that does not expect it.
            6 => out[0] = random.below(256) as u8,
            _ => out.extend((0..random.below(200)).map(|at| at as u8)),
        }
    }
}

#[test]
fn ten_million_malformed_datagrams_change_nothing() {
    let total = if tidewire_testing::few_seeds() { 100_000 } else { 10_000_000 };
    let config = Config::builder().max_rate(Some(RATE)).build().expect("in range");
    let mut flow = Flow::new(config, Duration::from_millis(10));
    let mut capture = Capture::default();
    for _ in 0..2_000 {
        flow.step(TICK, |datagram| capture.keep(datagram));
    }
    let clean = flow.read;
    for _ in 0..1_000 {
        flow.step(TICK, |datagram| capture.keep(datagram));
    }
    let (clean, before, read) = (flow.read - clean, flow.far.meter.held, flow.read);
    flow.far.meter.most = before;

    let (mut random, mut junk) = (Random(1), Vec::new());
    let (honest, stranger) = (flow.near.address, SocketAddr::from(([192, 0, 2, 7], 4_444)));
    for _ in 0..total / PER_TICK {
        for _ in 0..PER_TICK {
            capture.junk(&mut random, &mut junk);
            let from = if random.below(2) == 0 { honest } else { stranger };
            flow.far.take(from, &mut junk);
        }
        flow.step(TICK, |datagram| capture.keep(datagram));
    }
    flow.assert_alive();
    let stats = flow.far.with(|connection| connection.stats());
    let (growth, rate) = (flow.far.meter.most - before, (flow.read - read) as f64 / (total / PER_TICK) as f64 * 1e3);
    println!(
        "{growth} bytes more at most, {rate:.0} bytes per second, {clean} without; {:?}",
        flow.far.endpoint.stats()
    );
    assert!(growth <= GROWTH, "{growth} bytes");
    assert!(rate >= 0.9 * clean as f64, "{rate} bytes per second, {clean} without");
    assert_eq!((stats.moves, flow.far.endpoint.connections().count()), (0, 1));
}
