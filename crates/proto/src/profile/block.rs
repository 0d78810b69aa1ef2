//! `block:K,R`: generations of K source symbols with R repairs each, under a Cauchy code or a random one
//! (paper K's baseline, K-A4).
//!
//! Without parameters 32 and 8. Chosen: as much repair as `every:5`, so that the two can be compared.

use tidewire_codec::Code;

use super::{Delivery, Layout, Named, Profile};
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
            ((1..=MOST).contains(&k) && r <= MOST).then(|| block(k, r))
        }
    },
};

/// A Cauchy code over GF(2^8) has so many source and repair symbols at most, less the one with which columns
/// begin. Longer generations take a random code over GF(2^16), whose rows are dependent once in 65,535 times.
const MOST_CAUCHY: u16 = 255;
/// Longest span on the wire, in symbols. A peer may allow less; generations are cut to what it allows.
const MOST: u16 = 1_024;

/// `k` source symbols and `r` repairs in each generation: 1 to 1,024 of the former, at most 1,024 of the
/// latter.
pub const fn block(k: u16, r: u16) -> Profile {
    Profile {
        code: if k.saturating_add(r) <= MOST_CAUCHY { Code::Cauchy } else { Code::Rlc16 },
        layout: Layout::Generations,
        redundancy: Redundancy::new(Proactive::Block { k, r }),
        rate_control: RateControl::Bbr,
        delivery: Delivery::AsComplete,
    }
}
