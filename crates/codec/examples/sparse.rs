//! What sparse codes cost on a path that loses 6 % of the packets independently, and how often the numbers of
//! repairs of docs/sphinx.md suffice.
//!
//! The first table is the redundancy that a sender needs if it stops as soon as the receiver has decoded
//! the generation: packets sent per source symbol, minus 1. An LT sender sends repair symbols only. The
//! others send each source symbol once, then repair symbols. The last line of a generation is the bound:
//! any k packets decode it.
//!
//! The second table sends a fixed number of semi-random LT repair symbols per block, as docs/sphinx.md
//! computes it, and counts the blocks that are not decoded. The last column has the same number of
//! repairs of a code whose repair symbols can replace any source symbols (MDS).
//!
//! ```text
//! cargo run --release -p tidewire-codec --example sparse
//! ```

use std::error::Error;

use tidewire_codec::{Code, Elimination, Generation, PeelingDecoder, Rank, SourceId, SplitMix64};

const LT: Code = Code::Lt { c_milli: 100, delta_milli: 500 };
const LOSS: f64 = 0.06;
const RUNS: u32 = 10_000;

/// What a receiver does with the symbols of one generation.
enum Receiver {
    Sparse(Box<PeelingDecoder>),
    Dense(Box<Rank>),
    /// Counts packets: any `count` of them decode the generation.
    Ideal {
        missing: u16,
    },
}

#[derive(Clone, Copy)]
enum Kind {
    Peeling,
    Elimination,
    Dense,
    Ideal,
}

impl Receiver {
    fn new(kind: Kind, generation: Generation) -> Result<Self, Box<dyn Error>> {
        let sparse = |elimination| PeelingDecoder::new(generation, 1, elimination).map(Box::new).map(Self::Sparse);
        Ok(match kind {
            Kind::Peeling => sparse(Elimination::Never)?,
            Kind::Elimination => sparse(Elimination::WhenStuck)?,
            Kind::Dense => {
                let mut rank = Rank::new(generation);
                rank.end(generation.count())?;
                Self::Dense(Box::new(rank))
            }
            Kind::Ideal => Self::Ideal { missing: generation.count() },
        })
    }

    fn add_source(&mut self, index: u16, symbol: &[u8]) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Sparse(decoder) => drop(decoder.add_source(index, symbol)?),
            Self::Dense(rank) => drop(rank.add_source(index)?),
            Self::Ideal { missing } => *missing = missing.saturating_sub(1),
        }
        Ok(())
    }

    fn add_repair(&mut self, generation: Generation, key: u16, symbol: &[u8]) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Sparse(decoder) => drop(decoder.add_repair(key, symbol)?),
            Self::Dense(rank) => drop(rank.add_repair(generation.count(), key)?),
            Self::Ideal { missing } => *missing = missing.saturating_sub(1),
        }
        Ok(())
    }

    fn is_recovered(&self) -> bool {
        match self {
            Self::Sparse(decoder) => decoder.is_recovered(),
            Self::Dense(rank) => rank.is_recovered(),
            Self::Ideal { missing } => *missing == 0,
        }
    }
}

/// Loses packets by chance. Equal seeds lose the same packets, whatever the code.
struct Path {
    random: SplitMix64,
    loss: f64,
}

impl Path {
    fn delivers(&mut self) -> bool {
        self.random.unit() >= self.loss
    }
}

/// Sends one generation over the path, its source symbols first unless the code is not systematic, and
/// then repairs until the receiver has decoded it or `repairs` were sent. Returns the packets sent, or
/// `None` if it was not decoded.
fn send(generation: Generation, kind: Kind, path: &mut Path, repairs: u16) -> Result<Option<u32>, Box<dyn Error>> {
    let mut receiver = Receiver::new(kind, generation)?;
    let sources: Vec<[u8; 1]> = (0..generation.count()).map(|index| [index as u8]).collect();
    let mut sent = 0;
    if generation.code().is_systematic() {
        for (index, source) in (0..).zip(&sources) {
            sent += 1;
            if path.delivers() {
                receiver.add_source(index, source)?;
            }
        }
    }
    let mut repair = [[0; 1]];
    for key in 0..repairs {
        if receiver.is_recovered() {
            return Ok(Some(sent));
        }
        sent += 1;
        if path.delivers() {
            generation.encode(&sources, key, &mut repair)?;
            receiver.add_repair(generation, key, &repair[0])?;
        }
    }
    Ok(receiver.is_recovered().then_some(sent))
}

/// The packets sent for each of [`RUNS`] generations, ascending. Those that were not decoded come last.
fn runs(code: Code, count: u16, kind: Kind, loss: f64, repairs: u16) -> Result<Vec<Option<u32>>, Box<dyn Error>> {
    let mut sent = Vec::new();
    for run in 0..RUNS {
        let mut path = Path { random: SplitMix64::new(u64::from(run) << 32), loss };
        let generation = Generation::new(code, count)?.at(SourceId(u64::from(run) * u64::from(count)))?;
        sent.push(send(generation, kind, &mut path, repairs)?);
    }
    sent.sort_by_key(|sent| sent.unwrap_or(u32::MAX));
    Ok(sent)
}

fn redundancy() -> Result<(), Box<dyn Error>> {
    println!("| symbols | code | mean | p50 | p99 | most |\n| --- | --- | --- | --- | --- | --- |");
    let semi_random = Code::SemiRandomLt { degree: 17 };
    for count in [100, 256] {
        for (name, code, kind) in [
            ("LT, peeling", LT, Kind::Peeling),
            ("LT, elimination", LT, Kind::Elimination),
            ("semi-random LT, degree 17, peeling", semi_random, Kind::Peeling),
            ("semi-random LT, degree 17, elimination", semi_random, Kind::Elimination),
            ("Rlc", Code::Rlc, Kind::Dense),
            ("any k packets", Code::Rlc, Kind::Ideal),
        ] {
            let sent = runs(code, count, kind, LOSS, 10 * count)?;
            let percent = |sent: f64| 100.0 * (sent / f64::from(count) - 1.0);
            let all: Vec<f64> = sent.iter().flatten().map(|&sent| percent(sent.into())).collect();
            assert_eq!(all.len(), sent.len(), "{name}: ten times the generation decodes it");
            let (mean, at) =
                (all.iter().sum::<f64>() / all.len() as f64, |share: f64| all[(share * all.len() as f64) as usize]);
            println!(
                "| {count} | {name} | {mean:.1} % | {:.1} % | {:.1} % | {:.1} % |",
                at(0.5),
                at(0.99),
                all[all.len() - 1]
            );
        }
    }
    Ok(())
}

/// Loss rate, threshold, degree and number of repairs of a block of 100 symbols, from docs/sphinx.md. The two
/// at 1 % are the printed and the corrected degree.
const PLANS: [(f64, f64, u16, u16); 15] = [
    (0.01, 0.5, 100, 1),
    (0.01, 0.9, 100, 3),
    (0.01, 0.99, 100, 5),
    (0.01, 0.5, 50, 2),
    (0.01, 0.9, 50, 5),
    (0.01, 0.99, 50, 10),
    (0.02, 0.5, 50, 3),
    (0.02, 0.9, 50, 7),
    (0.02, 0.99, 50, 11),
    (0.06, 0.5, 17, 14),
    (0.06, 0.9, 17, 26),
    (0.06, 0.99, 17, 40),
    (0.1, 0.5, 10, 30),
    (0.1, 0.9, 10, 51),
    (0.1, 0.99, 10, 77),
];

fn undecoded() -> Result<(), Box<dyn Error>> {
    println!("| loss | threshold | degree | repairs | not decoded: peeling | elimination | MDS |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (loss, threshold, degree, repairs) in PLANS {
        let mut shares = [0.0; 3];
        for (share, kind) in shares.iter_mut().zip([Kind::Peeling, Kind::Elimination, Kind::Ideal]) {
            let sent = runs(Code::SemiRandomLt { degree }, 100, kind, loss, repairs)?;
            *share = 100.0 * sent.iter().filter(|sent| sent.is_none()).count() as f64 / f64::from(RUNS);
        }
        let [peeling, elimination, ideal] = shares;
        print!("| {:.0} % | {threshold} | {degree} | {repairs} ", 100.0 * loss);
        println!("| {peeling:.2} % | {elimination:.2} % | {ideal:.2} % |");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    redundancy()?;
    println!();
    undecoded()
}
