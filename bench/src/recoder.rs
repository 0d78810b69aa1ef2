//! Suite `recoder`: a relay's work for one generation, beside the kernel's for the same products.
//!
//! Relays recode generations of at most 64 symbols. Receiving a generation is timed with source symbols and
//! with repair symbols, each of which needs the reduction of a full coding vector. Sending is one combination
//! of all 64 symbols. Before timing, a decoder decodes the generation from recoded symbols alone.

use std::hint::black_box;

use tidewire_codec::kernel::{Kernel, Term};
use tidewire_codec::{Code, Decoder, Encoder, Limits, Reception, Recoder, RepairId, SourceId};

use crate::report::{Cell, Report, Table};
use crate::stream::LEN;
use crate::symbols::Symbols;
use crate::timing::{Case, Effort, Times, race};

/// Symbols of a generation: the longest that relays recode.
const COUNT: u16 = 64;

/// Runs the suite.
pub fn run(tiers: &[&'static Kernel], effort: Effort, report: &mut Report) {
    let generation = Generation::new();
    generation.check();
    let measured: Vec<Vec<Times>> = tiers.iter().map(|tier| generation.measure(tier, effort)).collect();
    let rows = ROWS.iter().enumerate().map(|(row, name)| {
        let cells = measured.iter().map(|times| {
            // The last row is the kernel's own.
            let ratio = times[row].with(&times[ROWS.len() - 1], |ns, kernel| ns / kernel);
            Some(Cell::with_ratio(times[row].map(|ns| ns), ratio))
        });
        (name.to_string(), cells.collect())
    });
    report.tables.push(Table {
        id: "recoder",
        title: "Recoder",
        note: format!(
            "ns a symbol of {LEN} bytes, generations of {COUNT}; in brackets over the kernel's time for {COUNT} products."
        ),
        columns: std::iter::once("case".into()).chain(tiers.iter().map(|tier| tier.name().into())).collect(),
        rows: rows.collect(),
    });
}

const ROWS: &[&str] = &["source symbol taken in", "repair symbol taken in", "recoded symbol", "kernel alone"];

struct Generation {
    sources: Symbols,
    repairs: Symbols,
}

impl Generation {
    fn new() -> Self {
        let sources = Symbols::noise(COUNT.into(), LEN);
        let mut encoder = Encoder::new(LEN, COUNT.into());
        sources.iter().for_each(|source| _ = encoder.push(source).expect("room for a generation"));
        let mut repairs = Symbols::zeros(COUNT.into(), LEN);
        for (key, repair) in repairs.iter_mut().enumerate() {
            encoder.write_repair(Code::Rlc, repair_id(key), repair).expect("a span of the window");
        }
        Self { sources, repairs }
    }

    fn begin(relay: &mut Recoder) {
        relay.begin(SourceId(0), COUNT).expect("a generation that fits");
    }

    fn take_sources(&self, relay: &mut Recoder) {
        Self::begin(relay);
        for (id, source) in self.sources.iter().enumerate() {
            assert_eq!(relay.receive_source(SourceId(id as u64), source), Ok(Reception::Innovative));
        }
    }

    fn take_repairs(&self, relay: &mut Recoder) {
        Self::begin(relay);
        for (key, repair) in self.repairs.iter().enumerate() {
            relay.receive_repair(Code::Rlc, repair_id(key), repair).expect("a repair symbol of the generation");
        }
    }

    /// # Panics
    /// The generation is not decoded from recoded symbols, or wrongly.
    fn check(&self) {
        let mut relay = Recoder::new(LEN, COUNT);
        self.take_repairs(&mut relay);
        let count = usize::from(COUNT);
        let mut decoder = Decoder::new(Limits { slot_len: LEN, capacity: count, max_span: COUNT, max_rows: count });
        let (mut coefficients, mut symbol) = ([0; COUNT as usize], vec![0; LEN]);
        // A few more than a generation, in case some are dependent.
        for key in 0..2 * u64::from(COUNT) {
            relay.write_recoded(key, &mut coefficients, &mut symbol).expect("symbols are held");
            decoder.receive_recoded(SourceId(0), &coefficients, &symbol).expect("a symbol within the limits");
        }
        for (id, source) in self.sources.iter().enumerate() {
            assert!(decoder.symbol(SourceId(id as u64)) == Some(source), "recoded symbol {id} is decoded wrongly");
        }
    }

    /// Times by row, for one symbol.
    fn measure(&self, tier: &'static Kernel, effort: Effort) -> Vec<Times> {
        let [mut sources, mut repairs, mut full] = [(); 3].map(|()| Recoder::new(LEN, COUNT));
        self.take_sources(&mut full);
        let (mut coefficients, mut key) = ([0; COUNT as usize], 0);
        let [mut symbol, mut sum] = [(); 2].map(|()| Symbols::zeros(1, LEN));
        let terms: Vec<Term> = Code::Rlc.row(repair_id(0)).zip(self.sources.iter()).collect();
        let mut cases = [
            Case::on(tier, "sources", || self.take_sources(&mut sources)),
            Case::on(tier, "repairs", || self.take_repairs(&mut repairs)),
            Case::on(tier, "recoded", || {
                key += 1;
                full.write_recoded(key, &mut coefficients, black_box(symbol.get_mut(0))).expect("symbols are held");
            }),
            Case::on(tier, "kernel", || tier.mul_add_many(black_box(sum.get_mut(0)), &terms)),
        ];
        let mut times = race(&format!("recoder, {}", tier.name()), &mut cases, effort);
        for taken in &mut times[..2] {
            taken.rounds.iter_mut().for_each(|ns| *ns /= f64::from(COUNT));
        }
        times
    }
}

fn repair_id(key: usize) -> RepairId {
    RepairId { first: SourceId(0), count: COUNT, key: key as u16 }
}
