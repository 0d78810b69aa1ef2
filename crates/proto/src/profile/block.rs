//! `block:K,R`: generations of K source symbols with R repairs each, under a Cauchy code or a random one
//! (paper K's baseline, K-A4).
//!
//! The defaults are 32 and 8. Chosen: as much repair as `every:5`, so that the two can be compared.

use tidewire_codec::Code;

use super::mismatch::MOST_CAUCHY;
use super::{Delivery, Elimination, Layout, Named, Profile};
use crate::rate::RateControl;
use crate::redundancy::{Proactive, Redundancy, parse_block};

pub(super) const NAMED: Named = Named {
    name: "block",
    summary: "Blocks of K source symbols with R repair symbols each, 32 and 8 unless given (block:K,R)",
    example: "block:32,8",
    range: "",
    parse: |parameters| match parameters {
        "" => Some(block(32, 8)),
        parameters => parse_block(parameters).map(|(k, r)| block(k, r)),
    },
};

/// `k` source symbols and `r` repairs in each generation; `k` is 1 to 1,024 and `r` at most 1,024. A
/// generation too long for a Cauchy code uses a random code over GF(2^16), whose rows are dependent once in
/// 65,535 times.
pub const fn block(k: u16, r: u16) -> Profile {
    Profile {
        code: if k.saturating_add(r) <= MOST_CAUCHY { Code::Cauchy } else { Code::Rlc16 },
        layout: Layout::Generations,
        elimination: Elimination::WhenStuck,
        redundancy: Redundancy::new(Proactive::Block { k, r }),
        rate_control: RateControl::Share,
        delivery: Delivery::AsComplete,
    }
}
