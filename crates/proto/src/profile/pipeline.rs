//! `pipeline`: each source symbol leaves at once as a random combination of its generation so far (Ageneau,
//! Boukhatem and Gerla, "Fairness Evaluation of Pipeline Coded and non Coded TCP Flows").
//!
//! `pipeline:G,R` has generations of G symbols and R packets per symbol. The paper puts it below TCP and
//! answers nothing: a lost generation is lost, and TCP sends its data again. A stream must be whole, so this
//! profile answers deficits. `--redundancy pipeline:G,R,open` answers nothing. The paper has no rate control
//! either, since that of TCP limits the flow. The profile has one, because it also carries streams; in a
//! tunnel, `--rate-control open` leaves it out.

use tidewire_codec::Code;

use super::{Delivery, Elimination, Layout, Named, Profile};
use crate::rate::RateControl;
use crate::redundancy::{PIPELINE_RANGE, PipelineBlocks, Proactive, Ratio, Redundancy};

pub(super) const NAMED: Named = Named {
    name: "pipeline",
    summary: "Combinations of a growing generation of G symbols instead of them, R per symbol, 16 and 1.25 unless given (pipeline:G,R)",
    example: "pipeline:16,1.25",
    range: PIPELINE_RANGE,
    parse: |parameters| match parameters {
        "" => Some(pipeline(PipelineBlocks { symbols: 16, ratio: Ratio::Fixed(1.25), systematic: false })),
        parameters => PipelineBlocks::parse(parameters).map(pipeline),
    },
};

/// Pipeline coding with these generations. The name alone means 16 symbols at 1.25, as in the paper's Figures
/// 6 and 9.
pub const fn pipeline(blocks: PipelineBlocks) -> Profile {
    Profile {
        code: Code::Rlc,
        layout: Layout::Sliding,
        elimination: Elimination::WhenStuck,
        redundancy: Redundancy::new(Proactive::Pipeline(blocks)),
        rate_control: RateControl::Share,
        delivery: Delivery::AsComplete,
    }
}
