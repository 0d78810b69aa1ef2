//! Random choices of the profiles `pipeline` and `bucket`: any length, ratio, code and answer that repairs.

use tidewire_codec::Code;
use tidewire_proto::profile::{Profile, bucket, pipeline};
use tidewire_proto::redundancy::{Answer, BucketBlocks, PipelineBlocks, Ratio, Redundancy};

use tidewire_sim::report::Trial;

use super::case::Draw;

/// Lets a third of the ends send combinations, with the rate control that they had. Without an answer, a case
/// would take more time than it has.
pub fn choose(draw: &mut Draw, trial: &mut Trial) {
    for config in [&mut trial.near, &mut trial.far] {
        if draw.chance(0.33) {
            let profile = if draw.chance(0.5) { growing(draw) } else { blocks(draw) };
            let rate_control = config.profile().rate_control;
            let changed = config.to_builder().profile(Profile { rate_control, ..profile });
            *config = changed.build().expect("in range");
        }
    }
}

fn growing(draw: &mut Draw) -> Profile {
    let ratio = match draw.below(6) {
        0 => Ratio::Least,
        1 => Ratio::Combo,
        2 => Ratio::ComboPrinted,
        3 => Ratio::Planned,
        _ => Ratio::Fixed(draw.real(1.0, 2.0)),
    };
    let (symbols, systematic) = (1 + draw.below(64) as u16, draw.chance(0.3));
    let profile = pipeline(PipelineBlocks { symbols, ratio, systematic });
    let answer = if draw.chance(0.3) { Answer::Planned } else { Answer::Deficit };
    Profile { redundancy: Redundancy { answer, ..profile.redundancy }, ..profile }
}

/// The fixed form takes as many packets per symbol as it has symbols in a block, so its blocks are short.
fn blocks(draw: &mut Draw) -> Profile {
    let is_fixed = draw.chance(0.2);
    let cap = if is_fixed { 1 + draw.below(3) } else { 1 + draw.below(64) } as u16;
    let code = match draw.below(6) {
        0 => Code::Rlc,
        1 => Code::Cauchy,
        2 => Code::RsFft,
        3 => Code::RaptorQ,
        _ => Code::Rlc16,
    };
    Profile { code, ..bucket(BucketBlocks { cap, gamma: draw.real(1.0, 1.5), is_fixed }) }
}
