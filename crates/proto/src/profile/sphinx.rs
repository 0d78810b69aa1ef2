//! `sphinx`: blocks under a semi-random LT code, whose repairs follow the measured loss rate, answers as
//! soon as a block cannot be decoded, and a window that falls only at congestion marks (Li and others,
//! "Sphinx", 2019).
//!
//! `sphinx:K` has blocks of K source symbols, 100 unless given: the paper's 100 KB in symbols of 1,000 bytes.
//! `sphinx:printed` is the paper's system as printed: equations (1) to (5), a receiver that only peels, its
//! trigger, a window that halves. `sphinx:printed,floor` rounds the degree of equation (1) down.
//! docs/sphinx.md says what is wrong with it.

use tidewire_codec::Code;
use tidewire_model::sphinx::Rounding;

use super::{Delivery, Elimination, Layout, Named, Profile};
use crate::rate::{AimdSteps, RateControl};
use crate::redundancy::{Proactive, Redundancy, SphinxBlocks};

pub(super) const NAMED: Named = Named {
    name: "sphinx",
    summary: "Blocks of K source symbols with as much repair as the loss needs, 100 unless given (sphinx:K)",
    example: "sphinx:100",
    range: "",
    parse: |parameters| match parameters {
        "" => Some(sphinx(SYMBOLS)),
        "printed" => Some(SPHINX_PRINTED),
        "printed,floor" => Some(Profile { redundancy: printed(Rounding::Down), ..SPHINX_PRINTED }),
        parameters => {
            SphinxBlocks::parse(parameters).filter(|blocks| blocks.threshold.is_none()).map(|b| sphinx(b.symbols))
        }
    },
};

/// Source symbols of a block: 500 MB in 5,000 blocks (section IV-B) of symbols of 1,000 bytes (Figure 8).
const SYMBOLS: u16 = 100;

/// Blocks of `symbols` source symbols, 1 to 1,024.
pub const fn sphinx(symbols: u16) -> Profile {
    Profile {
        // The policy chooses the degree of each block.
        code: Code::SemiRandomLt { degree: 17 },
        layout: Layout::Generations,
        elimination: Elimination::WhenStuck,
        redundancy: Redundancy::new(Proactive::Sphinx(SphinxBlocks {
            symbols,
            threshold: None,
            rounding: Rounding::Up,
        })),
        rate_control: RateControl::Aimd(AimdSteps::MARKED),
        delivery: Delivery::AsComplete,
    }
}

/// The printed equations with a threshold of 1/2.
const fn printed(rounding: Rounding) -> Redundancy {
    Redundancy::new(Proactive::Sphinx(SphinxBlocks { symbols: SYMBOLS, threshold: Some(0.5), rounding }))
}

/// The paper's system as printed. Its threshold T is not printed: with 1/2, and only with that, equation (5)
/// gives the 14 % of redundancy at 6 % loss that the paper reports.
pub const SPHINX_PRINTED: Profile = Profile {
    elimination: Elimination::Never,
    redundancy: printed(Rounding::Up),
    rate_control: RateControl::Aimd(AimdSteps::PRINTED),
    ..sphinx(SYMBOLS)
};
