//! Suite `decoder`: the streaming decoder through its public calls (goal 12).
//!
//! A [`Script`] is the input of a receiver: source symbols, some of them lost, and repair symbols over the
//! last W. Every call plays a script into a fresh decoder and drains it after every symbol, as a transport
//! does. The construction of the decoder is timed separately and subtracted. Before timing, each script is
//! played once and every decoded byte compared.

use std::hint::black_box;

use tidewire_codec::kernel::{Kernel, Term};
use tidewire_codec::{Code, Decoder, Encoder, Limits, Reception, RepairId, SourceId, SplitMix64};

use crate::goals;
use crate::report::{Cell, Report, Table, Verdict};
use crate::stream::LEN;
use crate::symbols::Symbols;
use crate::timing::{Case, Effort, Times, race};

/// The window of goal 12.
const WINDOW: u16 = 128;
/// Symbols that a decoder holds: a window, and the same number again for symbols that are read late.
const CAPACITY: usize = 256;
/// Source symbols of a script, including lost ones. They are enough to make the construction of the decoder a
/// hundredth of the time.
const SOURCES: usize = 4_096;
/// Distinct source symbols; a script uses them in turn.
const INPUTS: usize = 64;
/// Loss rate in percent, and source symbols for each repair symbol: twice as many repairs as losses, so that
/// several losses are open at once.
const LOSSES: [(u64, usize); 3] = [(1, 50), (5, 10), (10, 5)];
/// Loss rates from which the goal holds. Below them, copying the source symbols is the larger part.
const JUDGED_PERCENT: u64 = 5;

/// Runs the suite.
pub fn run(tiers: &[&'static Kernel], effort: Effort, report: &mut Report) {
    let inputs = Symbols::noise(INPUTS, LEN);
    let scripts = Scripts::new(&inputs);
    let measured: Vec<Measured> = tiers.iter().map(|tier| Measured::new(tier, &scripts, &inputs, effort)).collect();
    for measured in &measured {
        measured.judge(report);
    }
    let columns = || std::iter::once("case".into()).chain(tiers.iter().map(|tier| tier.name().into())).collect();
    let costs = COSTS.iter().map(|(name, cost)| (name.to_string(), measured.iter().map(|m| Some(cost(m))).collect()));
    report.tables.push(Table {
        id: "decoder/costs",
        title: "Streaming decoder, costs",
        note: format!(
            "ns a symbol of {LEN} bytes, W = {WINDOW}; in brackets over the copy (clean source symbol) or over the encoder's repair symbol (the repaired loss)."
        ),
        columns: columns(),
        rows: costs.collect(),
    });
    let rates = LOSSES
        .iter()
        .enumerate()
        .map(|(i, (percent, _))| (format!("p = {percent} %"), measured.iter().map(|m| Some(m.rate(i))).collect()));
    report.tables.push(Table {
        id: "decoder/rates",
        title: "Streaming decoder, random losses",
        note: format!(
            "Gbit/s of source symbols; one repair symbol over the last {WINDOW} for every 1/(2p) source symbols; in brackets over (kernel rate) / (p W)."
        ),
        columns: columns(),
        rows: rates.collect(),
    });
}

/// A row of the table of costs.
type Cost = (&'static str, fn(&Measured) -> Cell);

const COSTS: &[Cost] = &[
    ("copy into a ring", |m| Cell::plain(m.copy.map(per_source))),
    ("clean source symbol", |m| {
        let clean = m.clean.less(&m.making);
        Cell::with_ratio(clean.map(per_source), clean.with(&m.copy, |ns, copy| ns / copy))
    }),
    ("repair symbol, nothing missing", |m| Cell::plain(m.redundant.map(per_source))),
    ("repair symbol at the encoder", |m| Cell::plain(m.encoder.map(|ns| ns))),
    ("repaired loss", |m| {
        let repaired = m.repaired_loss();
        Cell::with_ratio(repaired.map(|ns| ns), repaired.with(&m.encoder, |ns, encoder| ns / encoder))
    }),
];

fn per_source(ns: f64) -> f64 {
    ns / SOURCES as f64
}

/// The kind of script.
struct Scripts {
    clean: Script,
    /// Every symbol of a stride is lost, and the next symbol that arrives repairs it.
    at_once: Script,
    random: [Script; LOSSES.len()],
}

impl Scripts {
    fn new(inputs: &Symbols) -> Self {
        // After the first window, each loss is in a span whose other symbols are known.
        let stride = 32;
        Self {
            clean: Script::new(inputs, usize::MAX, |_| false),
            at_once: Script::new(inputs, stride, |id| id % stride as u64 == stride as u64 - 1),
            random: LOSSES.map(|(percent, spacing)| Script::new(inputs, spacing, |id| is_unlucky(id, percent))),
        }
    }
}

/// Pseudo-random `percent` of the ids.
fn is_unlucky(id: u64, percent: u64) -> bool {
    // The results for neighbouring ids are unrelated.
    SplitMix64::mix((id + 1).wrapping_mul(SplitMix64::STEP)) % 100 < percent
}

/// One symbol that arrives.
#[derive(Clone, Copy)]
enum Arrival {
    Source(u64),
    /// A repair symbol and where its bytes are.
    Repair(RepairId, usize),
}

/// The input of a receiver, in order.
struct Script {
    arrivals: Vec<Arrival>,
    repairs: Symbols,
    /// Source symbols that are lost.
    lost: usize,
}

impl Script {
    /// A repair symbol after every `spacing` source symbols, and at the end as many as are still needed.
    fn new(inputs: &Symbols, spacing: usize, is_lost: impl Fn(u64) -> bool) -> Self {
        let mut encoder = Encoder::new(LEN, WINDOW.into());
        let mut arrivals = Vec::new();
        let mut bytes = Vec::new();
        let mut repair = |encoder: &Encoder, arrivals: &mut Vec<Arrival>| {
            let window = encoder.window();
            let count = window.end.since(window.start) as u16;
            let id = RepairId { first: window.start, count, key: bytes.len() as u16 };
            let mut symbol = vec![0; LEN];
            encoder.write_repair(Code::Rlc, id, &mut symbol).expect("a span of the window");
            arrivals.push(Arrival::Repair(id, bytes.len()));
            bytes.push(symbol);
        };
        let mut lost = 0;
        for id in 0..SOURCES as u64 {
            if encoder.is_full() {
                encoder.release_before(encoder.window().start.next());
            }
            encoder.push(inputs.get(id as usize % INPUTS)).expect("a slot was released");
            if is_lost(id) {
                lost += 1
            } else {
                arrivals.push(Arrival::Source(id))
            }
            if (id as usize + 1).is_multiple_of(spacing) {
                repair(&encoder, &mut arrivals);
            }
        }
        // In the worst case all losses of the last window are open.
        for _ in 0..if lost > 0 { WINDOW } else { 0 } {
            repair(&encoder, &mut arrivals);
        }
        let mut repairs = Symbols::zeros(bytes.len(), LEN);
        repairs.iter_mut().zip(&bytes).for_each(|(to, from)| to.copy_from_slice(from));
        let script = Self { arrivals, repairs, lost };
        script.check(inputs);
        script
    }

    /// Plays the script into a fresh decoder. `seen` receives every decoded symbol.
    fn play(&self, inputs: &Symbols, mut seen: impl FnMut(SourceId, bool, &[u8])) -> Decoder {
        let mut decoder = fresh();
        for arrival in &self.arrivals {
            let reception = match *arrival {
                Arrival::Source(id) => decoder.receive_source(SourceId(id), inputs.get(id as usize % INPUTS)),
                Arrival::Repair(id, at) => decoder.receive_repair(Code::Rlc, id, self.repairs.get(at)),
            };
            reception.expect("a symbol within the limits");
            while let Some(decoded) = decoder.poll_decoded() {
                seen(decoded.id, decoded.repaired, decoder.symbol(decoded.id).expect("just decoded"));
            }
        }
        decoder
    }

    /// # Panics
    /// A lost symbol is not repaired, or a byte is wrong.
    fn check(&self, inputs: &Symbols) {
        let mut repairs = 0;
        let decoder = self.play(inputs, |id, repaired, symbol| {
            repairs += usize::from(repaired);
            assert!(symbol == inputs.get(id.0 as usize % INPUTS), "source symbol {id} is decoded wrongly");
        });
        assert_eq!((decoder.edge().0, repairs), (SOURCES as u64, self.lost), "not all is decoded");
    }
}

fn fresh() -> Decoder {
    Decoder::new(Limits { slot_len: LEN, capacity: CAPACITY, max_span: WINDOW, max_rows: WINDOW.into() })
}

/// Times of one tier. They are of whole scripts, except `encoder` and `kernel`, which are of one repair
/// symbol.
struct Measured {
    tier: &'static str,
    making: Times,
    copy: Times,
    clean: Times,
    redundant: Times,
    at_once: Times,
    encoder: Times,
    kernel: Times,
    random: Vec<Times>,
    /// The losses of `at_once`, then those of `random`.
    lost: Vec<usize>,
}

impl Measured {
    fn new(tier: &'static Kernel, scripts: &Scripts, inputs: &Symbols, effort: Effort) -> Self {
        let mut ring = Symbols::zeros(CAPACITY, LEN);
        let mut encoder = Encoder::new(LEN, WINDOW.into());
        (0..WINDOW).for_each(|i| _ = encoder.push(inputs.get(usize::from(i) % INPUTS)).expect("room for a window"));
        let (mut repair, mut sum) = (Symbols::zeros(1, LEN), Symbols::zeros(1, LEN));
        let id = RepairId { first: SourceId(0), count: WINDOW, key: 1 };
        let window = Symbols::noise(WINDOW.into(), LEN);
        let terms: Vec<Term> = Code::Rlc.row(id).zip(window.iter()).collect();
        let mut full = scripts.clean.play(inputs, |_, _, _| ());
        let last = RepairId { first: SourceId(SOURCES as u64 - u64::from(WINDOW)), count: WINDOW, key: 1 };
        let play = |script| move || _ = black_box(Script::play(script, inputs, |_, _, symbol| _ = black_box(symbol)));

        let mut cases = vec![
            Case::on(tier, "making", || _ = black_box(fresh())),
            Case::on(tier, "copy", || {
                (0..SOURCES).for_each(|id| ring.get_mut(id % CAPACITY).copy_from_slice(inputs.get(id % INPUTS)));
                black_box(&mut ring);
            }),
            Case::on(tier, "clean", play(&scripts.clean)),
            Case::on(tier, "redundant", || {
                for _ in 0..SOURCES {
                    let reception = full.receive_repair(Code::Rlc, last, inputs.get(0));
                    assert_eq!(reception, Ok(Reception::Redundant));
                }
            }),
            Case::on(tier, "repaired at once", play(&scripts.at_once)),
            Case::on(tier, "encoder", || {
                encoder.write_repair(Code::Rlc, id, black_box(repair.get_mut(0))).expect("a span of the window");
            }),
            Case::on(tier, "kernel", || tier.mul_add_many(black_box(sum.get_mut(0)), &terms)),
        ];
        cases.extend(scripts.random.iter().map(|script| Case::on(tier, "random losses", play(script))));
        let times = race(&format!("decoder, {}", tier.name()), &mut cases, effort);
        let [making, copy, clean, redundant, at_once, encoder, kernel, random @ ..] = &times[..] else {
            unreachable!("a case for each")
        };
        let [making, copy, clean, redundant, at_once, encoder, kernel] =
            [making, copy, clean, redundant, at_once, encoder, kernel].map(Times::clone);
        let lost = std::iter::once(&scripts.at_once).chain(&scripts.random).map(|script| script.lost).collect();
        let random = random.to_vec();
        Self { tier: tier.name(), making, copy, clean, redundant, at_once, encoder, kernel, random, lost }
    }

    /// The time that one loss and its repair symbol add to the clean stream, by round.
    fn repaired_loss(&self) -> Times {
        let lost = self.lost[0] as f64;
        let rest = 1.0 - lost / SOURCES as f64;
        // The lost symbols themselves are not received.
        let clean = self.clean.less(&self.making);
        let all = self.at_once.less(&self.making);
        all.combined(&clean, |all, clean| (all - rest * clean) / lost)
    }

    /// The rate at the loss rate of this index.
    fn rate(&self, i: usize) -> Cell {
        let times = self.random[i].less(&self.making);
        let lost = self.lost[i + 1] as f64;
        let value = times.map(|ns| (SOURCES * LEN * 8) as f64 / ns);
        Cell::with_ratio(value, times.with(&self.kernel, |ns, kernel| lost * kernel / ns))
    }

    fn judge(&self, report: &mut Report) {
        let clean = self.clean.less(&self.making);
        let above = clean.with(&self.copy, |ns, copy| per_source(ns - copy));
        let over = self.repaired_loss().with(&self.encoder, |ns, encoder| ns / encoder);
        let mut push = |what, case: String, measured, unit, limit, at_least| {
            report.verdicts.push(Verdict { goal: 12, tier: self.tier, what, case, measured, unit, limit, at_least });
        };
        push("clean source symbol, above its copy", String::new(), above, "ns", goals::CLEAN_SYMBOL_NS, false);
        let what = "repaired loss, over the encoder's repair symbol";
        push(what, String::new(), over, "", goals::REPAIRED_LOSS, false);
        for (i, (percent, _)) in LOSSES.iter().enumerate().filter(|(_, loss)| loss.0 >= JUDGED_PERCENT) {
            let ratio = self.rate(i).ratio.expect("rates have one");
            let what = "random losses, over (kernel rate) / (p W)";
            push(what, format!("p = {percent} %"), ratio, "", goals::STREAM_DECODE, true);
        }
    }
}
