//! Suite `blocks`: block codes, ours on every tier beside the peers in the same rounds (goals 3 and 4).
//!
//! A block is k source symbols of 1,280 bytes. The encoder writes r = 20 % repair symbols. The decoder gets
//! all sources except m = 10 % (random, fixed) and m repair symbols. Tidewire uses the Cauchy code while k +
//! r <= 256, and the random code beyond, beside the random code over GF(2^16) (goal 5), RaptorQ, which the
//! crate `raptorq` has too (goal 6), and `RsFft`, whose transforms are those of the crate
//! `reed-solomon-simd` whatever Tidewire's kernel is. Before it is timed, every codec must decode the block
//! correctly from its own repair symbols.

use std::hint::black_box;

use tidewire_codec::kernel::{FourTerm, Kernel};
use tidewire_codec::{Code, DecodePlan, Generation};

use crate::goals;
use crate::kernels::{clock_ghz, into_few};
use crate::peers::{Block, BlockCodec, PEERS, RAPTORQ};
use crate::report::{Cell, Report, Table, Verdict};
use crate::symbols::Symbols;
use crate::timing::{Case, Effort, Times, race};

/// Bytes of a symbol in the measurement of the reference decoder.
pub const LEN: usize = 1_280;
const LENGTHS: [usize; 6] = [16, 32, 64, 200, 256, 1_024];
/// Block lengths for a quick run: one for a Cauchy code, one for the random code.
const QUICK_LENGTHS: [usize; 2] = [16, 256];
/// The longest block for which the goal of the encoder holds.
const LONGEST_JUDGED: usize = 256;

/// Runs the suite.
pub fn run(tiers: &[&'static Kernel], effort: Effort, report: &mut Report) {
    let lengths: &[usize] = if effort == Effort::QUICK { &QUICK_LENGTHS } else { &LENGTHS };
    let blocks: Vec<Block> = lengths.iter().map(|&k| block(k)).collect();
    let clock = clock_ghz(effort);
    for direction in [Direction::Encode, Direction::Decode] {
        let columns: Vec<Column> = blocks.iter().map(|block| measure(block, direction, tiers, effort)).collect();
        report.tables.push(table(direction, &columns));
        for column in &columns {
            let verdicts = tiers.iter().filter_map(|tier| column.judge(direction, tier.name(), clock));
            report.verdicts.extend(verdicts);
            report.verdicts.extend(tiers.iter().filter_map(|tier| column.judge_rlc16(direction, tier.name())));
            report.verdicts.extend(tiers.iter().filter_map(|tier| column.judge_raptorq(direction, tier.name())));
        }
    }
}

/// k symbols, of which a tenth is lost.
fn block(k: usize) -> Block {
    let rounded = |percent: usize| (k * percent + 50) / 100;
    // A prime stride reaches all places. The last symbol is never lost, because `rlnc` cuts a byte off there.
    let lost = (0..rounded(10)).map(|i| (i * 7_919 + 3) % (k - 1)).collect();
    Block { sources: Symbols::noise(k, LEN), repairs: rounded(20), lost }
}

/// One of the two tables.
#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Encode,
    Decode,
}

/// One column of a table: the same rows for every k, without times where a codec cannot do it.
struct Column {
    k: usize,
    rows: Vec<(String, Option<Times>)>,
}

fn ours(tier: &str) -> String {
    format!("**ours**, {tier}")
}

fn ours_rlc16(tier: &str) -> String {
    format!("**ours**, {tier}, Rlc16")
}

fn ours_raptorq(tier: &str) -> String {
    format!("**ours**, {tier}, RaptorQ")
}

/// The kernel only adds symbols for this code, so it has one row.
const OURS_RS_FFT: &str = "**ours**, RsFft";

fn ours_known(tier: &str) -> String {
    format!("**ours**, {tier}, plan known")
}

fn kernel(tier: &str) -> String {
    format!("kernel alone, {tier}")
}

fn measure(block: &Block, direction: Direction, tiers: &[&'static Kernel], effort: Effort) -> Column {
    let mut rows: Vec<(String, Option<Case>)> = Vec::new();
    for &tier in tiers {
        let codec = checked(block, &ours(tier.name()), Box::new(Ours::new(block, over_gf256(block), false)));
        rows.push((ours(tier.name()), Some(direction.case(codec, Some(tier)))));
    }
    for &tier in tiers {
        let codec = checked(block, &ours_rlc16(tier.name()), Box::new(Ours::new(block, Code::Rlc16, false)));
        rows.push((ours_rlc16(tier.name()), Some(direction.case(codec, Some(tier)))));
    }
    for &tier in tiers {
        let codec = checked(block, &ours_raptorq(tier.name()), Box::new(Ours::new(block, Code::RaptorQ, false)));
        rows.push((ours_raptorq(tier.name()), Some(direction.case(codec, Some(tier)))));
    }
    if let Some(&fastest) = tiers.first() {
        let codec = checked(block, OURS_RS_FFT, Box::new(Ours::new(block, Code::RsFft, false)));
        rows.push((OURS_RS_FFT.into(), Some(direction.case(codec, Some(fastest)))));
    }
    for &tier in tiers.iter().filter(|_| direction == Direction::Decode) {
        let codec = checked(block, &ours_known(tier.name()), Box::new(Ours::new(block, over_gf256(block), true)));
        rows.push((ours_known(tier.name()), Some(direction.case(codec, Some(tier)))));
    }
    for peer in PEERS.iter().filter(|peer| peer.encodes || direction == Direction::Decode) {
        let codec = (peer.open)(block).map(|codec| checked(block, peer.name, codec));
        rows.push((peer.name.into(), codec.map(|codec| direction.case(codec, None))));
    }
    // The kernels come last.
    let names: Vec<String> = rows.iter().map(|row| row.0.clone()).collect();
    let is_there: Vec<bool> = rows.iter().map(|row| row.1.is_some()).collect();
    let mut cases: Vec<Case> = rows.into_iter().filter_map(|row| row.1).collect();
    let sums = if direction == Direction::Encode { block.repairs } else { block.lost.len() };
    cases.extend(tiers.iter().map(|tier| products(tier, block, sums)));

    let what = if direction == Direction::Encode { "encode" } else { "decode" };
    let mut times = race(&format!("blocks, {what}, k={}", block.k()), &mut cases, effort).into_iter();
    let codecs =
        names.into_iter().zip(is_there).map(|(name, is_there)| (name, if is_there { times.next() } else { None }));
    let mut rows: Vec<(String, Option<Times>)> = codecs.collect();
    rows.extend(tiers.iter().map(|tier| (kernel(tier.name()), times.next())));
    Column { k: block.k(), rows }
}

impl Direction {
    fn case<'a>(self, mut codec: Box<dyn BlockCodec + 'a>, tier: Option<&'static Kernel>) -> Case<'a> {
        let work: Box<dyn FnMut() + 'a> = match self {
            Self::Encode => Box::new(move || codec.encode()),
            Self::Decode => Box::new(move || codec.decode()),
        };
        Case { name: String::new(), tier, work }
    }
}

/// The kernel's part of `sums` combinations of the block; everything else is prepared.
fn products<'a>(tier: &'static Kernel, block: &'a Block, sums: usize) -> Case<'a> {
    let mut outs = Symbols::zeros(sums, LEN);
    let terms: Vec<FourTerm> = block.sources.iter().map(|source| ([0x8E, 0x53, 2, 0xF1], source)).collect();
    Case::new("kernel", move || into_few(tier, black_box(&mut outs), &terms))
}

impl Column {
    fn find(&self, name: &str) -> Option<&Times> {
        self.rows.iter().find(|row| row.0 == name).and_then(|row| row.1.as_ref())
    }

    /// Goal 3 or 4 for a tier.
    fn judge(&self, direction: Direction, tier: &'static str, clock: Option<f64>) -> Option<Verdict> {
        let (times, kernel) = self.find(&ours(tier)).zip(self.find(&kernel(tier)))?;
        let (goal, what, overhead, limit) = match direction {
            Direction::Encode if self.k > LONGEST_JUDGED => return None,
            Direction::Encode => (3, "block encode, over the kernel", 0.0, goals::BLOCK_ENCODE),
            Direction::Decode => {
                let overhead = goals::decode_overhead(self.k, clock)?;
                (4, "block decode, over the reference", overhead, goals::BLOCK_DECODE)
            }
        };
        let measured = times.with(kernel, |ns, kernel| (kernel + overhead) / ns);
        let case = format!("k={}", self.k);
        Some(Verdict { goal, tier, what, case, measured, unit: "", limit, at_least: true })
    }

    /// Goal 5 for a tier.
    fn judge_rlc16(&self, direction: Direction, tier: &'static str) -> Option<Verdict> {
        let (times, ours) = self.find(&ours_rlc16(tier)).zip(self.find(&ours(tier)))?;
        let what = match direction {
            Direction::Encode => "block encode, Rlc16 over GF(2^8)",
            Direction::Decode => "block decode, Rlc16 over GF(2^8)",
        };
        let (measured, case) = (times.with(ours, |ns, ours| ours / ns), format!("k={}", self.k));
        Some(Verdict { goal: 5, tier, what, case, measured, unit: "", limit: goals::GF65536, at_least: true })
    }

    /// Goal 6 for a tier.
    fn judge_raptorq(&self, direction: Direction, tier: &'static str) -> Option<Verdict> {
        let (encode, decode) = goals::raptorq(tier, self.k)?;
        let (times, peer) = self.find(&ours_raptorq(tier)).zip(self.find(RAPTORQ))?;
        let (what, limit) = match direction {
            Direction::Encode => ("block encode, RaptorQ over its crate", encode),
            Direction::Decode => ("block decode, RaptorQ over its crate", decode),
        };
        let (measured, case) = (times.with(peer, |ns, peer| peer / ns), format!("k={}", self.k));
        Some(Verdict { goal: 6, tier, what, case, measured, unit: "", limit, at_least: true })
    }
}

/// Ratios are to the first row: Tidewire on the fastest tier.
fn table(direction: Direction, columns: &[Column]) -> Table {
    let rows = columns[0].rows.iter().map(|(name, _)| {
        let cell = |column: &Column| {
            let (times, ours) = (column.find(name)?, column.rows[0].1.as_ref()?);
            let value = times.map(|ns| (column.k * LEN) as f64 / ns);
            Some(Cell::with_ratio(value, times.with(ours, |ns, ours| ours / ns)))
        };
        (name.clone(), columns.iter().map(cell).collect())
    });
    let about = format!("GB/s of source, blocks of k symbols of {LEN} bytes");
    let (id, title, note) = match direction {
        Direction::Encode => ("blocks/encode", "Block codes, encoding", format!("{about}; r = 0.2 k repair symbols")),
        Direction::Decode => {
            let note = format!("{about}; m = 0.1 k of them lost, inversion included where the name says nothing else");
            ("blocks/decode", "Block codes, decoding", note)
        }
    };
    Table {
        id,
        title,
        note: format!(
            "{note}. In brackets over ours on the fastest kernel. Kernel alone: only the products, all prepared."
        ),
        columns: std::iter::once("codec".into())
            .chain(columns.iter().map(|column| format!("k={}", column.k)))
            .collect(),
        rows: rows.collect(),
    }
}

/// The codec, after it has decoded the block correctly.
///
/// # Panics
/// A byte is wrong.
pub fn checked<'a>(block: &Block, name: &str, mut codec: Box<dyn BlockCodec + 'a>) -> Box<dyn BlockCodec + 'a> {
    codec.encode();
    codec.decode();
    let decoded = codec.decoded();
    assert_eq!(decoded.len(), block.lost.len());
    for (&lost, decoded) in block.lost.iter().zip(decoded) {
        assert!(decoded == block.sources.get(lost), "{name} decodes symbol {lost} of {} wrongly", block.k());
    }
    codec
}

/// Tidewire's code over GF(2^8) for this block.
fn over_gf256(block: &Block) -> Code {
    if block.k() + block.repairs <= 256 { Code::Cauchy } else { Code::Rlc }
}

/// Tidewire's generation and plan.
pub struct Ours<'a> {
    sources: Vec<&'a [u8]>,
    lost: Vec<u16>,
    keys: Vec<u16>,
    generation: Generation,
    plan: DecodePlan,
    /// Whether the plan is made before and reused.
    is_plan_known: bool,
    repairs: Symbols,
    decoded: Symbols,
}

impl<'a> Ours<'a> {
    /// The block under a code that has generations of its length.
    pub fn new(block: &'a Block, code: Code, is_plan_known: bool) -> Self {
        let (k, r) = (block.k(), block.repairs);
        let generation = Generation::new(code, k as u16).expect("a length that the code has");
        let lost: Vec<u16> = block.lost.iter().map(|&lost| lost as u16).collect();
        let mut keys: Vec<u16> = (0..lost.len() as u16).collect();
        // The random code over GF(2^8) needs one more repair in 1 of 255 patterns, RaptorQ in 1 of 180.
        let plan = loop {
            match generation.plan(&lost, &keys) {
                Ok(plan) => break plan,
                Err(_) => keys.push(keys.len() as u16),
            }
        };
        let (repairs, decoded) = (Symbols::zeros(r, LEN), Symbols::zeros(lost.len(), LEN));
        Self { sources: block.slices(), lost, keys, generation, plan, is_plan_known, repairs, decoded }
    }
}

impl BlockCodec for Ours<'_> {
    fn encode(&mut self) {
        let mut repairs: Vec<&mut [u8]> = self.repairs.iter_mut().collect();
        self.generation.encode(&self.sources, 0, &mut repairs).expect("symbols of one length");
    }

    fn decode(&mut self) {
        if !self.is_plan_known {
            self.plan.renew(self.generation, &self.lost, &self.keys).expect("enough symbols are there");
        }
        let repairs: Vec<&[u8]> = self.repairs.iter().take(self.keys.len()).collect();
        let mut decoded: Vec<&mut [u8]> = self.decoded.iter_mut().collect();
        self.plan.decode(&self.sources, &repairs, &mut decoded).expect("symbols of one length");
    }

    fn decoded(&self) -> Vec<&[u8]> {
        self.decoded.iter().collect()
    }
}
