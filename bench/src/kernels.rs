//! Suite `kernels`: every tier's loops beside memcpy of the same buffers (goals 1 and 2), and sums over
//! GF(2^16) beside those over GF(2^8) (goal 5).
//!
//! Each tier is first checked against products by shift and add. "L1" is 12 sources into one destination,
//! "L2" 64 sources (90 KB); a sum reads 32 sources (45 KB), 32 after 32 of 512 (720 KB), or all of 128 or 512
//! at once.

use std::array;
use std::hint::black_box;

use tidewire_codec::field::gf65536;
use tidewire_codec::kernel::{FourTerm, Halves, HalvesMut, HalvesTerm, Kernel, Term};

use crate::goals;
use crate::report::{Cell, Report, Table, Verdict};
use crate::symbols::{Symbols, product};
use crate::timing::{Case, Effort, Times, race};

/// A packet's 1,400 bytes rounded up to 64.
const LEN: usize = 1_408;
/// Columns of the first table: name, number of sources, and their distance from a 64-byte boundary.
const ONE_BY_ONE: [(&str, usize, usize); 4] =
    [("L1", 12, 0), ("L2", 64, 0), ("L2, off by 16", 64, 16), ("L2, off by 32", 64, 32)];
/// Columns of the second table: name, sources of one sum, sources in total, distance from a 64-byte boundary.
const SUMS: [(&str, usize, usize, usize); 6] = [
    ("k=32, 45 KB", 32, 32, 0),
    ("k=32 of 512, 720 KB", 32, 512, 0),
    ("k=128, 180 KB", 128, 128, 0),
    ("k=512, 720 KB", 512, 512, 0),
    ("k=128, off by 16", 128, 128, 16),
    ("k=128, off by 32", 128, 128, 32),
];
/// The columns that the goals speak of.
const L2: usize = 1;
const K128: usize = 2;

/// Runs the suite.
pub fn run(tiers: &[&'static Kernel], effort: Effort, report: &mut Report) {
    for tier in tiers {
        check(tier);
    }
    let one_by_one = one_by_one(tiers, effort);
    let clock = one_by_one.clock_ghz();
    report.tables.push(one_by_one.table(tiers));
    let sums = sums(tiers, effort);
    report.tables.push(sums.table(tiers));

    for (at, tier) in tiers.iter().enumerate() {
        let Some(goal) = goals::kernel(tier.name()) else { continue };
        let copied = ONE_BY_ONE[L2].1 * LEN;
        let mut judge = |goal, what, times: &Times, copies: &Times, bytes: usize, limit| {
            let yardstick = |copy| goals::yardstick(copied as f64 / copy, clock);
            let measured = times.with(copies, |ns, copy| bytes as f64 / ns / yardstick(copy));
            let (tier, case) = (tier.name(), String::new());
            report.verdicts.push(Verdict { goal, tier, what, case, measured, unit: "", limit, at_least: true });
        };
        let what = "multiply-accumulate, L2, over memcpy";
        judge(1, what, &one_by_one.mul_adds[at][L2], &one_by_one.copies[L2], copied, goal.one_source);
        let bytes = SUMS[K128].2 * LEN;
        let what = "sum into one, k=128, over memcpy";
        judge(2, what, &sums.times[at][0][K128], &sums.copies, bytes, goal.one_destination);
        let what = "sum into four, k=128, each, over memcpy";
        judge(2, what, &sums.times[at][MOST - 1][K128], &sums.copies, 4 * bytes, goal.four_destinations);
        let (what, case) = ("sum into four over GF(2^16), over GF(2^8)", "k=128".into());
        let measured = sums.halves[at][K128].with(&sums.times[at][MOST - 1][K128], |ns, gf256| gf256 / ns);
        let (goal, tier, limit) = (5, tier.name(), goals::GF65536);
        report.verdicts.push(Verdict { goal, tier, what, case, measured, unit: "", limit, at_least: true });
    }
}

/// Times of the first table, by tier, then column.
struct OneByOne {
    clock: Times,
    copies: Vec<Times>,
    xors: Vec<Vec<Times>>,
    mul_adds: Vec<Vec<Times>>,
}

fn one_by_one(tiers: &[&'static Kernel], effort: Effort) -> OneByOne {
    let sources = ONE_BY_ONE.map(|(_, count, offset)| Symbols::misaligned(count, LEN, offset).filled());
    let mut cases = vec![Case::new("clock", steps)];
    let each = |name: String, work: fn(&Kernel, &mut [u8], &[u8]), kernel: &'static Kernel| {
        sources.each_ref().map(|sources| {
            let mut out = Symbols::zeros(1, LEN);
            Case::new(name.clone(), move || {
                for source in sources.iter() {
                    work(kernel, black_box(out.get_mut(0)), source);
                }
            })
        })
    };
    cases.extend(each("memcpy".into(), |_, out, source| out.copy_from_slice(source), Kernel::active()));
    for tier in tiers {
        cases.extend(each(format!("{} xor", tier.name()), |tier, out, source| tier.xor(out, source), tier));
        let mul_add = |tier: &Kernel, out: &mut [u8], source: &[u8]| tier.mul_add(out, 0x8E, source);
        cases.extend(each(format!("{} mul_add", tier.name()), mul_add, tier));
    }
    let mut times = race("kernels, one source at a time", &mut cases, effort).into_iter();
    let clock = times.next().expect("the first case");
    let mut take = || times.by_ref().take(ONE_BY_ONE.len()).collect();
    let copies = take();
    let (xors, mul_adds) = tiers.iter().map(|_| (take(), take())).unzip();
    OneByOne { clock, copies, xors, mul_adds }
}

impl OneByOne {
    fn clock_ghz(&self) -> Option<f64> {
        ghz(&self.clock)
    }

    fn table(&self, tiers: &[&'static Kernel]) -> Table {
        let row = |name: String, times: &[Times]| {
            let cells = times.iter().zip(ONE_BY_ONE).enumerate().map(|(column, (times, (_, count, _)))| {
                // Misaligned columns are compared with the aligned copy.
                let copies = &self.copies[column.min(L2)];
                let value = times.map(|ns| (count * LEN) as f64 / ns);
                Some(Cell::with_ratio(value, times.with(copies, |ns, copy| copy / ns)))
            });
            (name, cells.collect())
        };
        let mut rows = vec![row("memcpy".into(), &self.copies)];
        for (at, tier) in tiers.iter().enumerate() {
            rows.push(row(format!("{} xor", tier.name()), &self.xors[at]));
            rows.push(row(format!("{} mul_add", tier.name()), &self.mul_adds[at]));
        }
        let clock = self.clock_ghz().map_or(String::new(), |ghz| format!(" The clock was at {ghz:.2} GHz."));
        Table {
            id: "kernels/one-source",
            title: "Kernels, one source at a time",
            note: format!(
                "GB/s of source, {LEN}-byte symbols; in brackets over memcpy of the same buffers (misaligned ones: over the aligned copy).{clock}"
            ),
            columns: std::iter::once("kernel").chain(ONE_BY_ONE.map(|(name, ..)| name)).map(String::from).collect(),
            rows,
        }
    }
}

/// Times of the second table, by tier, then number of destinations (1 to 4), then column.
struct Sums {
    copies: Times,
    times: Vec<[Vec<Times>; MOST]>,
    /// By tier, then column: into four destinations over GF(2^16).
    halves: Vec<Vec<Times>>,
}

/// Destinations of one pass.
const MOST: usize = 4;

fn sums(tiers: &[&'static Kernel], effort: Effort) -> Sums {
    let sources = SUMS.map(|(_, _, count, offset)| Symbols::misaligned(count, LEN, offset).filled());
    let factor = |i: usize| (i % 254) as u8 + 2;
    let terms = sources.each_ref().map(|sources| {
        let term = |(i, source)| (array::from_fn(|d| factor(i + 50 * d)), source);
        sources.iter().enumerate().map(term).collect::<Vec<FourTerm>>()
    });
    let single =
        terms.each_ref().map(|terms| terms.iter().map(|&([factor, ..], s)| (factor, s)).collect::<Vec<Term>>());

    let halves = sources.each_ref().map(halves_terms);

    let copied = Symbols::noise(ONE_BY_ONE[L2].1, LEN);
    let mut copy = Symbols::zeros(1, LEN);
    let mut cases = vec![Case::new("memcpy", || {
        copied.iter().for_each(|source| black_box(copy.get_mut(0)).copy_from_slice(source));
    })];
    for &tier in tiers {
        for (terms, (_, k, ..)) in single.iter().zip(SUMS) {
            let mut out = Symbols::zeros(1, LEN);
            cases.push(Case::new(format!("{} into 1", tier.name()), move || {
                terms.chunks(k).for_each(|terms| tier.mul_add_many(black_box(out.get_mut(0)), terms));
            }));
        }
        for destinations in 2..=MOST {
            for (terms, (_, k, ..)) in terms.iter().zip(SUMS) {
                let mut out = Symbols::zeros(destinations, LEN);
                cases.push(Case::new(format!("{} into {destinations}", tier.name()), move || {
                    terms.chunks(k).for_each(|terms| into_few(tier, black_box(&mut out), terms));
                }));
            }
        }
        for (terms, (_, k, ..)) in halves.iter().zip(SUMS) {
            let mut out = Symbols::zeros(MOST, LEN);
            cases.push(Case::new(format!("{} into 4 over GF(2^16)", tier.name()), move || {
                terms.chunks(k).for_each(|terms| tier.mul_add_halves(&mut cut_all(black_box(&mut out)), terms));
            }));
        }
    }
    let mut times = race("kernels, sums", &mut cases, effort).into_iter();
    let copies = times.next().expect("the first case");
    let mut take = || times.by_ref().take(SUMS.len()).collect();
    let (times, halves) = tiers.iter().map(|_| (array::from_fn(|_| take()), take())).unzip();
    Sums { copies, times, halves }
}

/// The symbols as symbols over GF(2^16), with different factors.
fn halves_terms(sources: &Symbols) -> Vec<HalvesTerm<'_>> {
    let factor = |i: usize, d: usize| (i as u16 + 1).wrapping_mul(0x9E37) ^ (d as u16).wrapping_mul(0x3C6F);
    let term = |(i, source)| (array::from_fn(|d| factor(i, d)).into(), cut(source));
    sources.iter().enumerate().map(term).collect()
}

fn cut(symbol: &[u8]) -> Halves<'_> {
    symbol.split_at(symbol.len() / 2).into()
}

fn cut_all(symbols: &mut Symbols) -> Vec<HalvesMut<'_>> {
    let len = LEN / 2;
    symbols.iter_mut().map(|symbol| symbol.split_at_mut(len).into()).collect()
}

/// Computes as many sums at once as there are symbols in `outs`, at most four per pass.
pub fn into_few(kernel: &Kernel, outs: &mut Symbols, terms: &[FourTerm]) {
    let mut outs = outs.iter_mut();
    loop {
        let mut count = 0;
        let mut few: [&mut [u8]; MOST] = array::from_fn(|_| outs.next().inspect(|_| count += 1).unwrap_or_default());
        match count {
            0 => return,
            count => kernel.mul_add_few(&mut few[..count], terms),
        }
    }
}

impl Sums {
    fn table(&self, tiers: &[&'static Kernel]) -> Table {
        let row = |name: String, times: &[Times], destinations: usize| {
            let cells = times.iter().zip(SUMS).map(|(times, (_, _, count, _))| {
                let rate = |ns| (destinations * count * LEN) as f64 / ns;
                let over = times.with(&self.copies, |ns, copy| rate(ns) * copy / (ONE_BY_ONE[L2].1 * LEN) as f64);
                Some(Cell::with_ratio(times.map(rate), over))
            });
            (name, cells.collect())
        };
        let rows = tiers.iter().zip(self.times.iter().zip(&self.halves)).flat_map(|(tier, (times, halves))| {
            let sums =
                (1..=MOST).zip(times).map(|(count, times)| (format!("{} into {count}", tier.name()), count, times));
            let halves = (format!("{} into {MOST}, GF(2^16)", tier.name()), MOST, halves);
            sums.chain([halves]).map(|(name, count, times)| row(name, times, count))
        });
        Table {
            id: "kernels/sums",
            title: "Kernels, sums of products",
            note: format!(
                "GB/s of source multiplied (into four destinations: four times the source), {LEN}-byte symbols; in brackets over memcpy out of L2."
            ),
            columns: std::iter::once("kernel").chain(SUMS.map(|(name, ..)| name)).map(String::from).collect(),
            rows: rows.collect(),
        }
    }
}

/// The clock, for suites that need it alone.
pub fn clock_ghz(effort: Effort) -> Option<f64> {
    ghz(&race("clock", &mut [Case::new("clock", steps)], effort)[0])
}

/// The clock while [`steps`] took these times. It is known where the latency of a multiplication is: 3 cycles
/// on Intel and AMD since 2008, and 1 for the addition.
fn ghz(steps: &Times) -> Option<f64> {
    cfg!(target_arch = "x86_64").then(|| steps.map(|ns| 4.0 * f64::from(STEPS) / ns).median)
}

/// A chain of dependent multiplications and additions, from which the clock is computed.
fn steps() {
    let (factor, term) = black_box((0x5851_F42D_4C95_7F2Du64, 0x1405_7B7E_F767_814Fu64));
    let mut state = black_box(1u64);
    for _ in 0..STEPS {
        state = state.wrapping_mul(factor).wrapping_add(term);
    }
    black_box(state);
}

/// Long enough that the time of the call is negligible.
const STEPS: u32 = 10_000;

/// Checks every operation of a tier against products by shift and add. The lengths and misalignments are
/// those that are timed, and one length that is not a multiple of a register.
///
/// # Panics
/// A byte is wrong.
fn check(tier: &'static Kernel) {
    for (len, offset) in [(LEN, 0), (LEN, 16), (LEN, 32), (1_399, 0)] {
        let sources = Symbols::misaligned(33, len, offset).filled();
        let before = Symbols::noise(4, len);
        let factor = |i: usize, d: usize| (11 * i + 77 * d) as u8;
        let expected = |sources_of_sum: usize, d: usize, factor: &dyn Fn(usize) -> u8| -> Vec<u8> {
            let sum = |at: usize| (0..sources_of_sum).fold(0, |sum, i| sum ^ product(factor(i), sources.get(i)[at]));
            (0..len).map(|at| before.get(d)[at] ^ sum(at)).collect()
        };
        let compare = |what: &str, out: &[u8], expected: Vec<u8>| {
            assert!(out == expected, "{} {what} is wrong at {len} bytes, offset {offset}", tier.name());
        };
        let fresh = || Symbols::noise(4, len);

        let mut out = fresh();
        tier.xor(out.get_mut(0), sources.get(0));
        compare("xor", out.get(0), expected(1, 0, &|_| 1));
        let mut out = fresh();
        tier.mul_add(out.get_mut(0), 0x8E, sources.get(0));
        compare("mul_add", out.get(0), expected(1, 0, &|_| 0x8E));
        let mut out = fresh();
        tier.mul_add_many(
            out.get_mut(0),
            &sources.iter().enumerate().map(|(i, s)| (factor(i, 0), s)).collect::<Vec<_>>(),
        );
        compare("mul_add_many", out.get(0), expected(33, 0, &|i| factor(i, 0)));
        let term = |(i, source)| (array::from_fn(|d| factor(i, d)), source);
        let terms: Vec<FourTerm> = sources.iter().enumerate().map(term).collect();
        for destinations in 1..=MOST {
            let mut out = Symbols::noise(destinations, len);
            into_few(tier, &mut out, &terms);
            for d in 0..destinations {
                compare("mul_add_few", out.get(d), expected(33, d, &|i| factor(i, d)));
            }
        }
    }
    check_halves(tier);
}

/// Checks the sum over GF(2^16) against products of single elements.
///
/// # Panics
/// A byte is wrong.
fn check_halves(tier: &'static Kernel) {
    for offset in [0, 16, 32] {
        let sources = Symbols::misaligned(33, LEN, offset).filled();
        let mut out = Symbols::zeros(MOST, LEN);
        let terms = halves_terms(&sources);
        tier.mul_add_halves(&mut cut_all(&mut out), &terms);
        let element = |symbol: &[u8], at: usize| u16::from_le_bytes(cut(symbol).map(|half| half[at]));
        for (d, at) in (0..MOST).flat_map(|d| (0..LEN / 2).map(move |at| (d, at))) {
            let factor = |i: usize| (i as u16 + 1).wrapping_mul(0x9E37) ^ (d as u16).wrapping_mul(0x3C6F);
            let products = (0..33).map(|i| gf65536::mul(factor(i), element(sources.get(i), at)));
            let expected = products.fold(0, |sum, product| sum ^ product);
            assert_eq!(element(out.get(d), at), expected, "{} over GF(2^16), offset {offset}, {d}, {at}", tier.name());
        }
    }
}
