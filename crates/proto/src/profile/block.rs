//! `block:K,R`: generations of K source symbols with R repairs each, under a Cauchy code (paper K's baseline, K-A4).
//!
//! Without parameters 32 and 8. Chosen: as much repair as `every:5`, so that the two can be compared.

use tidewire_codec::Code;

use super::{Delivery, Named, Profile};
use crate::rate::RateControl;
use crate::redundancy::{Proactive, Redundancy};

pub(super) const NAMED: Named = Named {
    name: "block",
    summary: "Blocks of K source symbols with R repair symbols each, 32 and 8 unless given (block:K,R)",
    example: "block:32,8",
    parse: |parameters| match parameters.split_once(',') {
        None => parameters.is_empty().then(|| block(32, 8)),
        Some((k, r)) => {
            let (k, r): (u16, u16) = (k.parse().ok()?, r.parse().ok()?);
            (k >= 1 && k.saturating_add(r) <= MOST).then(|| block(k, r))
        }
    },
};

/// A Cauchy code over GF(2^8) has so many source and repair symbols at most, less the one with which columns begin.
const MOST: u16 = 255;

/// `k` source symbols and `r` repairs in each generation: at least one of the former, at most 255 together.
pub const fn block(k: u16, r: u16) -> Profile {
    Profile {
        code: Code::Cauchy,
        redundancy: Redundancy::new(Proactive::Block { k, r }),
        rate_control: RateControl::Bbr,
        delivery: Delivery::AsComplete,
    }
}
