//! Figure 7: how many repairs the schemes send, and how often these suffice. The experiment calls it.
//! Invariant: the arguments of a function determine its result, draws included.

use tidewire_codec::{Code, Elimination, Generation, PeelingDecoder, SplitMix64};
use tidewire_model::sphinx::{Block, Form, Rounding};

use crate::row::{How, Row};

/// The threshold with which the printed equations give the paper's 14 % (docs/sphinx.md section 2).
const THRESHOLD: f64 = 0.5;
/// Probability with which the profile `sphinx` decodes a block without an answer.
const DECODED: f64 = 0.99;
/// Packets after which a rateless sender gives up, for each source symbol. Chosen: five times the mean.
const MOST: usize = 8;

/// Draws of packet losses.
struct Draws(SplitMix64);

impl Draws {
    fn is_lost(&mut self, loss: f64) -> bool {
        self.0.unit() <= loss
    }
}

/// Redundancy of the printed and of the corrected plan, and the share of blocks that it does not decode.
pub(super) fn planned(symbols: u16, loss: f64, runs: u32) -> Vec<Row> {
    let Ok(block) = Block::new(symbols, loss, 0.0) else { return Vec::new() };
    let printed = block.plan(THRESHOLD, Form::Printed, Rounding::Up);
    let corrected = block.plan_for_elimination(DECODED, 1.0);
    let mut rows = Vec::new();
    for (name, how, plan, elimination) in [
        ("semi-random LT printed", How::Printed, printed, Elimination::Never),
        ("semi-random LT corrected", How::Model, corrected, Elimination::WhenStuck),
    ] {
        let Ok(plan) = plan else { continue };
        let value = f64::from(plan.repairs) / f64::from(symbols);
        rows.push(Row::new(format!("{name} n={symbols}"), how, loss, f64::from(symbols), value));
        let code = Code::SemiRandomLt { degree: u16::try_from(plan.degree).unwrap_or(symbols).min(symbols) };
        let failed = failures(code, elimination, symbols, plan.repairs as u16, loss, runs);
        let curve = format!("{name} n={symbols} not decoded");
        rows.push(Row::new(curve, How::Ideal, loss, f64::from(symbols), failed));
    }
    rows
}

/// Share of blocks that are not decoded from their source symbols and `repairs` repairs.
fn failures(code: Code, elimination: Elimination, symbols: u16, repairs: u16, loss: f64, runs: u32) -> f64 {
    let mut draws = Draws(SplitMix64::new(u64::from(symbols) << 32));
    let mut failed = 0;
    for run in 0..runs {
        let Some(mut decoder) = decoder(code, elimination, symbols, run) else { return 1.0 };
        for place in 0..symbols {
            if !draws.is_lost(loss) {
                // Places and lengths are those of the generation, so no symbol is refused.
                let _ = decoder.add_source(place, &[0]);
            }
        }
        for key in 0..repairs {
            if !draws.is_lost(loss) {
                let _ = decoder.add_repair(key, &[0]);
            }
        }
        failed += u32::from(!decoder.is_recovered());
    }
    f64::from(failed) / f64::from(runs)
}

/// Packets sent for each source symbol, minus 1, until a receiver of repair symbols alone has decoded.
pub(super) fn rateless(name: &str, code: Code, elimination: Elimination, symbols: u16, loss: f64, runs: u32) -> Row {
    let mut draws = Draws(SplitMix64::new(u64::from(symbols) << 32 | 1));
    let mut sent = 0;
    for run in 0..runs {
        let Some(mut decoder) = decoder(code, elimination, symbols, run) else { continue };
        let most = MOST * usize::from(symbols);
        sent += (0..most as u16)
            .find(|&key| {
                if !draws.is_lost(loss) {
                    let _ = decoder.add_repair(key, &[0]);
                }
                decoder.is_recovered()
            })
            .map_or(most, |key| usize::from(key) + 1);
    }
    let value = sent as f64 / f64::from(runs) / f64::from(symbols) - 1.0;
    Row::new(format!("{name} n={symbols}"), How::Ideal, loss, f64::from(symbols), value)
}

/// A decoder of coefficients for block `run`: its symbols have one byte.
fn decoder(code: Code, elimination: Elimination, symbols: u16, run: u32) -> Option<PeelingDecoder> {
    let first = tidewire_codec::SourceId(u64::from(run) * u64::from(symbols));
    let generation = Generation::new(code, symbols).and_then(|generation| generation.at(first)).ok()?;
    PeelingDecoder::new(generation, 1, elimination).ok()
}
