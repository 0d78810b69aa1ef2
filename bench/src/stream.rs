//! Suite `stream`: the streaming encoder through its public calls beside the same loop written by hand (goal
//! 11), and `Rlc8681` beside the crate `cu-fec`, which implements the same code.
//!
//! A repair symbol over the last W follows every l - 1 source symbols. The handwritten loop does what any
//! encoder must: copy the symbol into a ring, make W coefficients and W pointers, and call the kernel once.
//! The limit is that kernel call alone, with everything prepared. Before timing, the repair symbols of
//! encoder, loop and peer are compared.

use std::hint::black_box;

use tidewire_codec::kernel::{Kernel, Term};
use tidewire_codec::{Code, Encoder, RepairId, SourceId};

use crate::goals;
use crate::peers::cu_fec::CuFec;
use crate::report::{Cell, Report, Table, Verdict};
use crate::symbols::Symbols;
use crate::timing::{Case, Effort, Times, race};

/// The symbol of a packet of 1,400 bytes, headers taken off, in whole cache lines.
pub const LEN: usize = 1_344;
const WINDOWS: [u16; 5] = [32, 64, 128, 256, 512];
const SPACINGS: [usize; 3] = [5, 10, 20];
/// Distinct source symbols, used in turn. They are few enough to stay in the nearest caches, as fresh data
/// does.
const INPUTS: usize = 8;

/// Runs the suite.
pub fn run(tiers: &[&'static Kernel], effort: Effort, report: &mut Report) {
    let inputs = Symbols::noise(INPUTS, LEN);
    for window in WINDOWS {
        check(&inputs, window);
    }
    let rows = tiers.iter().flat_map(|tier| report_tier(tier, &inputs, effort, report)).collect();
    report.tables.push(Table {
        id: "stream",
        title: "Streaming encoder",
        note: format!(
            "Gbit/s of source symbols ({LEN} bytes), one repair symbol over the last W after every l - 1; in brackets as the row says."
        ),
        columns: std::iter::once("kernel, window".into()).chain(SPACINGS.map(|l| format!("l={l}"))).collect(),
        rows,
    });
    against_cu_fec(tiers, &inputs, effort, report);
}

/// One tier's verdicts and rows: rows for each window, a column for each spacing.
fn report_tier(
    tier: &'static Kernel,
    inputs: &Symbols,
    effort: Effort,
    report: &mut Report,
) -> Vec<(String, Vec<Option<Cell>>)> {
    let measured = WINDOWS.map(|window| Measured::new(tier, inputs, window, effort));
    for measured in &measured {
        for (l, [public, by_hand]) in SPACINGS.into_iter().zip(&measured.turns) {
            report.verdicts.push(Verdict {
                goal: 11,
                tier: tier.name(),
                what: "streaming encoder, over the loop by hand",
                case: format!("W={}, l={l}", measured.window),
                measured: public.with(by_hand, |public, by_hand| by_hand / public),
                unit: "",
                limit: goals::STREAM_ENCODE,
                at_least: true,
            });
        }
    }
    measured.iter().flat_map(|measured| measured.rows(tier.name())).collect()
}

/// Times of one window and tier.
struct Measured {
    window: u16,
    /// Of one repair symbol.
    kernel: Times,
    /// By spacing: of the encoder and of the loop by hand, a turn of l - 1 source symbols and a repair
    /// symbol.
    turns: Vec<[Times; 2]>,
}

impl Measured {
    fn new(tier: &'static Kernel, inputs: &Symbols, window: u16, effort: Effort) -> Self {
        let ring = Symbols::noise(window.into(), LEN);
        let id = RepairId { first: SourceId(0), count: window, key: 0 };
        let prepared: Vec<Term> = Code::Rlc.row(id).zip(ring.iter()).collect();
        let mut out = Symbols::zeros(1, LEN);
        let mut cases = vec![Case::new("kernel alone", || {
            tier.mul_add_many(black_box(out.get_mut(0)), &prepared);
        })];
        for l in SPACINGS {
            let mut public = Public::new(Code::Rlc, window);
            cases.push(Case::on(tier, format!("encoder, l={l}"), move || public.turn(inputs, l)));
            let mut by_hand = ByHand::new(window);
            cases.push(Case::on(tier, format!("by hand, l={l}"), move || by_hand.turn(tier, inputs, l)));
        }
        let times = race(&format!("stream, {}, W={window}", tier.name()), &mut cases, effort);
        let turns = times[1..].as_chunks().0.to_vec();
        Self { window, kernel: times[0].clone(), turns }
    }

    fn rows(&self, tier: &str) -> Vec<(String, Vec<Option<Cell>>)> {
        let rate = |l: usize, times: &Times| times.map(|ns| gbits(l, ns));
        let over = |l: usize, times: &Times, other: &Times| {
            Cell::with_ratio(rate(l, times), times.with(other, |ns, other| other / ns))
        };
        let row = |name: &str, cell: &dyn Fn(usize, &[Times; 2]) -> Cell| {
            let cells = SPACINGS.into_iter().zip(&self.turns).map(|(l, turns)| Some(cell(l, turns)));
            (format!("{tier}, W={}, {name}", self.window), cells.collect())
        };
        vec![
            row("kernel alone", &|l, _| Cell::plain(rate(l, &self.kernel))),
            row("by hand, over kernel", &|l, [_, by_hand]| over(l, by_hand, &self.kernel)),
            row("encoder, over kernel", &|l, [public, _]| over(l, public, &self.kernel)),
            row("encoder, over by hand", &|l, [public, by_hand]| over(l, public, by_hand)),
        ]
    }
}

/// `Rlc8681` on every tier beside the crate that implements the same code, l = 10.
fn against_cu_fec(tiers: &[&'static Kernel], inputs: &Symbols, effort: Effort, report: &mut Report) {
    const SPACING: usize = 10;
    let windows = [32, 128];
    let mut rows: Vec<(String, Vec<Option<Cell>>)> =
        tiers.iter().map(|tier| (format!("`Rlc8681`, {}", tier.name()), Vec::new())).collect();
    rows.push(("`cu-fec` 1.3".into(), Vec::new()));
    for window in windows {
        let mut cases = Vec::new();
        for &tier in tiers {
            let mut public = Public::new(Code::Rlc8681, window);
            cases.push(Case::on(tier, tier.name(), move || public.turn(inputs, SPACING)));
        }
        let mut peer = CuFec::new(window);
        cases.push(Case::new("cu-fec", move || {
            (1..SPACING).for_each(|i| peer.push(inputs.get(i % INPUTS)));
            peer.write_repair();
        }));
        let times = race(&format!("stream, RFC 8681, W={window}"), &mut cases, effort);
        for (row, turn) in rows.iter_mut().zip(&times) {
            let ratio = turn.with(times.last().expect("the peer"), |ns, peer| peer / ns);
            row.1.push(Some(Cell::with_ratio(turn.map(|ns| gbits(SPACING, ns)), ratio)));
        }
    }
    report.tables.push(Table {
        id: "stream/rfc8681",
        title: "RFC 8681, beside cu-fec",
        note: format!(
            "Gbit/s of source symbols ({LEN} bytes), l = {SPACING}, GF(2^8), density threshold 15; in brackets over `cu-fec`."
        ),
        columns: std::iter::once("encoder".into()).chain(windows.map(|window| format!("W={window}"))).collect(),
        rows,
    });
}

/// The encoder as a sender uses it.
struct Public {
    code: Code,
    encoder: Encoder,
    window: u16,
    key: u16,
    out: Symbols,
}

impl Public {
    fn new(code: Code, window: u16) -> Self {
        let mut encoder = Encoder::new(LEN, usize::from(window));
        let zeros = [0; LEN];
        (0..window).for_each(|_| _ = encoder.push(&zeros).expect("room for a window"));
        Self { code, encoder, window, key: 0, out: Symbols::zeros(1, LEN) }
    }

    fn push(&mut self, symbol: &[u8]) {
        let oldest = self.encoder.window().start;
        self.encoder.release_before(oldest.next());
        self.encoder.push(symbol).expect("a slot was released");
    }

    fn write_repair(&mut self) {
        self.key = self.key.wrapping_add(1);
        let id = RepairId { first: self.encoder.window().start, count: self.window, key: self.key };
        let len = self.encoder.write_repair(self.code, id, black_box(self.out.get_mut(0)));
        assert_eq!(len, Ok(LEN));
    }

    fn turn(&mut self, inputs: &Symbols, spacing: usize) {
        (1..spacing).for_each(|i| self.push(inputs.get(i % INPUTS)));
        self.write_repair();
    }
}

/// The same by hand.
struct ByHand {
    ring: Symbols,
    next: u64,
    key: u16,
    /// Kept for its memory; always empty.
    terms: Vec<Term<'static>>,
    out: Symbols,
}

impl ByHand {
    fn new(window: u16) -> Self {
        let terms = Vec::with_capacity(window.into());
        Self {
            ring: Symbols::zeros(window.into(), LEN),
            next: window.into(),
            key: 0,
            terms,
            out: Symbols::zeros(1, LEN),
        }
    }

    fn push(&mut self, symbol: &[u8]) {
        let slot = self.next as usize % self.ring.count();
        self.ring.get_mut(slot).copy_from_slice(symbol);
        self.next += 1;
    }

    fn write_repair(&mut self, kernel: &Kernel) {
        self.key = self.key.wrapping_add(1);
        let window = self.ring.count();
        let first = self.next - window as u64;
        let id = RepairId { first: SourceId(first), count: window as u16, key: self.key };
        let mut terms = std::mem::take(&mut self.terms);
        let slots = (first..self.next).map(|id| self.ring.get(id as usize % window));
        terms.extend(Code::Rlc.row(id).zip(slots));
        let out = black_box(self.out.get_mut(0));
        out.fill(0);
        kernel.mul_add_many(out, &terms);
        self.terms = emptied(terms);
    }

    fn turn(&mut self, kernel: &Kernel, inputs: &Symbols, spacing: usize) {
        (1..spacing).for_each(|i| self.push(inputs.get(i % INPUTS)));
        self.write_repair(kernel);
    }
}

/// The memory of the list without what it borrowed: collecting in place allocates nothing.
fn emptied(mut terms: Vec<Term>) -> Vec<Term<'static>> {
    terms.clear();
    terms.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// Gbit/s of source symbols when a turn of `spacing` takes `ns`.
fn gbits(spacing: usize, ns: f64) -> f64 {
    ((spacing - 1) * LEN * 8) as f64 / ns
}

/// Encoder and loop must write the same repair symbols, cu-fec those of the encoder with its code.
///
/// # Panics
/// They do not.
fn check(inputs: &Symbols, window: u16) {
    let (mut public, mut by_hand) = (Public::new(Code::Rlc, window), ByHand::new(window));
    for _ in 0..2 * window {
        public.turn(inputs, 2);
        by_hand.turn(Kernel::active(), inputs, 2);
        assert!(public.out.get(0) == by_hand.out.get(0), "encoder and loop differ at W={window}");
    }
    if window <= CuFec::LONGEST {
        let (mut public, mut peer) = (Public::new(Code::Rlc8681, window), CuFec::new(window));
        for i in 0..usize::from(window) + 5 {
            public.push(inputs.get(i % INPUTS));
            peer.push(inputs.get(i % INPUTS));
        }
        public.write_repair();
        peer.write_repair();
        assert!(public.out.get(0) == peer.repair(), "cu-fec differs at W={window}");
    }
}
