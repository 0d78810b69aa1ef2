//! Pipeline coding over three lossy hops: source, relay, relay, sink.
//!
//! Every node follows one rule: an innovative arrival sends R packets on average, each a random combination
//! of the symbols that the node holds of the generation. A redundant arrival sends nothing. No node waits for
//! a complete generation, and no relay decodes. The second figure is the same source with relays that only
//! forward: each loss is final there, and the source's redundancy would have to cover all three hops.
//!
//! Recoding leaves some ends of generations undecoded, when a hop lost their last packets. The rule has no
//! feedback and leaves them to the layer above.
//!
//! ```text
//! cargo run --release -p tidewire-codec --example relay
//! ```

use tidewire_codec::{DecodeError, Decoder, Limits, Reception, RecodeError, Recoder, SourceId, SplitMix64};

const GENERATIONS: u64 = 500;
/// Source symbols of a generation, and bytes of a symbol.
const COUNT: u16 = 32;
const LEN: usize = 1_200;
/// Every hop loses this share of its packets, and sends this many for each innovative arrival.
const LOSS: f64 = 0.2;
const R: f64 = 1.75;
/// What the source sends at the end of a generation, because few packets contain its last symbols yet.
const TAIL: u32 = 4;

/// A packet in flight: the coefficients of its combination, and its bytes.
#[derive(Clone)]
struct Packet {
    coefficients: [u8; COUNT as usize],
    symbol: [u8; LEN],
}

/// A node that sends: the source, whose arrivals are the application's data, or a relay.
struct Node {
    held: Recoder,
    /// Packets that arrivals have earned but that are not sent yet.
    credit: f64,
    /// The source of the multipliers: a number that no other packet of any node has.
    key: u64,
    sent: u64,
}

impl Node {
    fn new(number: u64) -> Self {
        Self { held: Recoder::new(LEN, COUNT), credit: 0.0, key: number << 32, sent: 0 }
    }

    /// The rule of pipeline coding.
    fn on_arrival(&mut self, reception: Reception) -> Result<Vec<Packet>, RecodeError> {
        if reception == Reception::Innovative {
            self.credit += R;
        }
        let due = self.credit as u32;
        self.credit -= f64::from(due);
        (0..due).map(|_| self.recode()).collect()
    }

    fn recode(&mut self) -> Result<Packet, RecodeError> {
        let mut packet = Packet { coefficients: [0; COUNT as usize], symbol: [0; LEN] };
        self.held.write_recoded(self.key, &mut packet.coefficients, &mut packet.symbol)?;
        self.key += 1;
        self.sent += 1;
        Ok(packet)
    }
}

/// A hop that loses packets by chance.
struct Hop(SplitMix64);

impl Hop {
    fn is_lost(&mut self) -> bool {
        self.0.unit() < LOSS
    }
}

/// The nodes after the source: relays that recode, or none.
struct Line {
    hops: [Hop; 3],
    relays: Option<[Node; 2]>,
    sink: Decoder,
}

impl Line {
    fn new(is_recoding: bool) -> Self {
        let limits = Limits { slot_len: LEN, capacity: COUNT.into(), max_span: COUNT, max_rows: COUNT.into() };
        Self {
            hops: [1, 2, 3].map(|seed| Hop(SplitMix64::new(seed))),
            relays: is_recoding.then(|| [Node::new(1), Node::new(2)]),
            sink: Decoder::new(limits),
        }
    }

    fn begin(&mut self, first: SourceId) -> Result<(), RecodeError> {
        self.sink.skip_before(first);
        self.relays.iter_mut().flatten().try_for_each(|relay| relay.held.begin(first, COUNT))
    }

    /// Carries one packet over hop `hop`, and all packets that follow from it.
    fn carry(&mut self, hop: usize, first: SourceId, packet: &Packet) -> Result<(), Box<dyn std::error::Error>> {
        if self.hops[hop].is_lost() {
            return Ok(());
        }
        if hop == 2 {
            return Ok(self.receive(first, packet)?);
        }
        let onward = match &mut self.relays {
            None => vec![packet.clone()],
            Some(relays) => {
                let relay = &mut relays[hop];
                let reception = relay.held.receive_recoded(first, &packet.coefficients, &packet.symbol)?;
                relay.on_arrival(reception)?
            }
        };
        onward.iter().try_for_each(|packet| self.carry(hop + 1, first, packet))
    }

    fn receive(&mut self, first: SourceId, packet: &Packet) -> Result<(), DecodeError> {
        self.sink.receive_recoded(first, &packet.coefficients, &packet.symbol)?;
        while let Some(decoded) = self.sink.poll_decoded() {
            assert_eq!(self.sink.symbol(decoded.id), Some(&symbol(decoded.id)[..]));
        }
        Ok(())
    }
}

/// The application's data.
fn symbol(id: SourceId) -> [u8; LEN] {
    core::array::from_fn(|i| (id.0 * 7 + i as u64 * 13 + id.0 / 256) as u8)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut source = Node::new(0);
    let mut lines = [Line::new(true), Line::new(false)];
    let mut decoded = [0; 2];
    for generation in 0..GENERATIONS {
        let first = SourceId(generation * u64::from(COUNT));
        source.held.begin(first, COUNT)?;
        lines.iter_mut().try_for_each(|line| line.begin(first))?;
        for at in 0..COUNT {
            let id = first.plus(at.into());
            let reception = source.held.receive_source(id, &symbol(id))?;
            let mut packets = source.on_arrival(reception)?;
            if at + 1 == COUNT {
                (0..TAIL).try_for_each(|_| source.recode().map(|packet| packets.push(packet)))?;
            }
            for packet in &packets {
                lines.iter_mut().try_for_each(|line| line.carry(0, first, packet))?;
            }
        }
        for (line, decoded) in lines.iter().zip(&mut decoded) {
            let ids = (0..COUNT).map(|at| first.plus(at.into()));
            *decoded += ids.filter(|&id| line.sink.symbol(id).is_some()).count();
        }
    }

    let total = GENERATIONS as f64 * f64::from(COUNT);
    println!("three hops that lose {:.0} % each; packets per source symbol:", 100.0 * LOSS);
    let relays: Vec<f64> = lines[0].relays.iter().flatten().map(|relay| relay.sent as f64 / total).collect();
    println!("  source {:.2}, relays {:.2} and {:.2}", source.sent as f64 / total, relays[0], relays[1]);
    println!("decoded: {:.2} % with recoding,", 100.0 * decoded[0] as f64 / total);
    println!("         {:.2} % with forwarding", 100.0 * decoded[1] as f64 / total);
    Ok(())
}
