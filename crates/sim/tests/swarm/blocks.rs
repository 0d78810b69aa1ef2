//! Random choices of the profiles `sphinx` and `rcdp`: any code, any trigger, blocks of any length.

use tidewire_codec::{Code, Elimination};
use tidewire_model::sphinx::Rounding;
use tidewire_proto::profile::{Profile, rcdp, rcdp_basic, sphinx};
use tidewire_proto::redundancy::{Answer, Proactive, Redundancy, SphinxBlocks, Trigger};

use tidewire_sim::report::Trial;

use super::case::Draw;

/// Share of lost packets from which on the paper's choices are too slow for the time that a case has.
const HIGH: f64 = 0.15;

/// Lets a third of the ends send such blocks. Half of them keep the rate control that they had. Where `loss`
/// is high all do, since `aimd` takes it for a full queue, and all answer at once, since the paper's triggers
/// take more rounds.
pub fn choose(draw: &mut Draw, trial: &mut Trial, loss: f64) {
    for config in [&mut trial.near, &mut trial.far] {
        if draw.chance(0.33) {
            let mut profile = profile(draw);
            if loss > HIGH {
                profile.redundancy.answer = Answer::Icm(Trigger::Settled);
            }
            let rate_control =
                if draw.chance(0.5) && loss <= HIGH { profile.rate_control } else { config.profile().rate_control };
            let changed = config.to_builder().profile(Profile { rate_control, ..profile });
            *config = changed.build().expect("in range");
        }
    }
}

fn profile(draw: &mut Draw) -> Profile {
    let symbols = 1 + draw.below(300) as u16;
    let threshold = draw.chance(0.5).then(|| draw.real(0.1, 0.99));
    let code = match draw.below(7) {
        0 => Code::Rlc,
        1 => Code::Rlc16,
        2 if symbols < 255 => Code::Cauchy,
        // Larger c take more time than a case has: half of the repairs carry one symbol then.
        3 => Code::Lt { c_milli: 1 + draw.below(200) as u16, delta_milli: 1 + draw.below(1_000) as u16 },
        4 => Code::RsFft,
        _ => Code::SemiRandomLt { degree: 17 },
    };
    let trigger = match draw.below(3) {
        0 => Trigger::Settled,
        1 => Trigger::Symbols { blocks: draw.below(4) as u8, symbols: draw.below(10) as u16 },
        _ => Trigger::Blocks,
    };
    let elimination = if draw.chance(0.5) { Elimination::WhenStuck } else { Elimination::Never };
    let proactive = Proactive::Sphinx(SphinxBlocks { symbols, threshold, rounding: Rounding::Up });
    let redundancy = Redundancy { proactive, answer: Answer::Icm(trigger) };
    Profile { code, elimination, redundancy, ..sphinx(symbols) }
}

/// Lets a third of the ends send blocks after RCDP, half of them in packet trains, the others with the rate
/// control that they had. A quarter of these have the basic form, unless `in_flight` packets are more than a
/// block: a block per round trip then takes more time than a case has.
pub fn choose_rcdp(draw: &mut Draw, trial: &mut Trial, in_flight: f64) {
    let span = trial.near.max_span().min(trial.far.max_span());
    for config in [&mut trial.near, &mut trial.far] {
        if draw.chance(0.33) {
            let symbols = 1 + draw.below(300) as u16;
            let code = match draw.below(6) {
                0 => Code::Rlc16,
                1 => Code::RsFft,
                3 => Code::RaptorQ,
                2 if symbols < 255 => Code::Cauchy,
                _ => Code::Rlc,
            };
            let is_basic = draw.chance(0.25) && f64::from(symbols.min(span)) > in_flight;
            let profile = if is_basic { rcdp_basic(symbols) } else { rcdp(symbols) };
            let rate_control = if draw.chance(0.5) { profile.rate_control } else { config.profile().rate_control };
            let changed = config.to_builder().profile(Profile { code, rate_control, ..profile });
            *config = changed.build().expect("in range");
        }
    }
}
