//! Suite `long`: the number of repair symbols, and of losses, from which `RsFft` is faster than `Rlc16`, the
//! dense code of long blocks.
//!
//! A dense code costs k products for each repair symbol and for each loss. The transforms of `RsFft` cost
//! k log k for any number of them. So the suite varies the number of repair symbols at a fixed k, and
//! decodes as many losses as there are repair symbols. It has no goal: its tables say which code to choose.

use tidewire_codec::Code;
use tidewire_codec::kernel::Kernel;

use crate::blocks::{LEN, Ours, checked};
use crate::peers::{Block, BlockCodec};
use crate::report::{Cell, Report, Table};
use crate::symbols::Symbols;
use crate::timing::{Case, Effort, race};

/// Source symbols, each with the numbers of repair symbols. Only 200 with 16 would fit a Cauchy code.
const BLOCKS: [(usize, &[usize]); 4] = [
    (200, &[16, 64, 96, 128]),
    (256, &[16, 64, 96, 128]),
    (512, &[16, 64, 96, 128, 256]),
    (1_024, &[16, 64, 96, 128, 256]),
];
/// For a quick run.
const QUICK_BLOCKS: [(usize, &[usize]); 1] = [(200, &[64])];

/// Runs the suite.
pub fn run(tiers: &[&'static Kernel], effort: Effort, report: &mut Report) {
    let blocks: &[(usize, &[usize])] = if effort == Effort::QUICK { &QUICK_BLOCKS } else { &BLOCKS };
    let mut rows = Vec::new();
    for &(k, repairs) in blocks {
        for &repairs in repairs {
            rows.push((format!("k={k}, r={repairs}"), row(&block(k, repairs), tiers, effort)));
        }
    }
    let columns = ["encode", "decode"]
        .into_iter()
        .flat_map(|what| tiers.iter().map(move |tier| format!("{what}, {}", tier.name())));
    report.tables.push(Table {
        id: "long",
        title: "Long blocks, RsFft over Rlc16",
        note: format!(
            "GB/s of source under `RsFft`, symbols of {LEN} bytes; r repair symbols are encoded, and r losses decoded, plan included. In brackets over `Rlc16` on the kernel of the column."
        ),
        columns: std::iter::once("block".into()).chain(columns).collect(),
        rows,
    });
}

/// k symbols, of which as many are lost as there are repair symbols.
fn block(k: usize, repairs: usize) -> Block {
    // The stride of the suite `blocks`: a prime, so that no symbol is named twice.
    Block { sources: Symbols::noise(k, LEN), repairs, lost: (0..repairs).map(|i| (i * 7_919 + 3) % k).collect() }
}

/// The cells of encoding, then those of decoding.
fn row(block: &Block, tiers: &[&'static Kernel], effort: Effort) -> Vec<Option<Cell>> {
    let works: [fn(&mut (dyn BlockCodec + '_)); 2] = [|codec| codec.encode(), |codec| codec.decode()];
    let mut cells = Vec::new();
    for (what, work) in ["encode", "decode"].into_iter().zip(works) {
        let mut cases = Vec::new();
        for &tier in tiers {
            for code in [Code::RsFft, Code::Rlc16] {
                let name = format!("{code:?}, {}", tier.name());
                let mut codec = checked(block, &name, Box::new(Ours::new(block, code, false)));
                cases.push(Case::on(tier, name, move || work(&mut *codec)));
            }
        }
        let what = format!("long, {what}, k={}, r={}", block.k(), block.repairs);
        let times = race(&what, &mut cases, effort);
        cells.extend(times.as_chunks().0.iter().map(|[fft, dense]| {
            let rate = fft.map(|ns| (block.k() * LEN) as f64 / ns);
            Some(Cell::with_ratio(rate, fft.with(dense, |fft, dense| dense / fft)))
        }));
    }
    cells
}
