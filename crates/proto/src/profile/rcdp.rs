//! `rcdp`: blocks whose repairs are sent until the peer has recovered them, and no retransmission (Baguena
//! and others, "RCDP: Raptor-based Content Delivery Protocol", 2013). docs/rcdp.md describes it.
//!
//! `rcdp:K` has blocks of K source symbols. `rcdp:K,basic` is the paper's protocol before its improvements:
//! one block at a time.

use tidewire_codec::Code;

use super::{Delivery, Elimination, Layout, Named, Profile};
use crate::rate::{RateControl, TrainSteps};
use crate::redundancy::{Proactive, RcdpBlocks, Redundancy};

pub(super) const NAMED: Named = Named {
    name: "rcdp",
    summary: "Blocks of K source symbols, and repairs until a block is recovered, 84 unless given (rcdp:K)",
    example: "rcdp:84",
    range: "",
    parse: |parameters| match parameters {
        "" => Some(rcdp(SYMBOLS)),
        "basic" => Some(rcdp_basic(SYMBOLS)),
        parameters => RcdpBlocks::parse(parameters).map(profile),
    },
};

/// Source symbols of a block. The paper gives no number. Chosen: 20 ms of packets at the paper's 50 Mbit/s.
const SYMBOLS: u16 = 84;

/// The code. The paper has Raptor codes. RaptorQ is their successor, and decodes as often as the paper's
/// equation (1) assumes (measured in `docs/coding.md` section 1.3).
const CODE: Code = Code::RaptorQ;

const RATE_CONTROL: RateControl = RateControl::Train(TrainSteps::CHOSEN);

/// Blocks of `symbols` source symbols, 1 to 1,024. The next block begins when a block and the repairs for its
/// expected losses were sent.
pub const fn rcdp(symbols: u16) -> Profile {
    profile(RcdpBlocks { symbols, basic: false })
}

/// The same blocks, one at a time: the next block begins when the peer has reported a block as recovered.
pub const fn rcdp_basic(symbols: u16) -> Profile {
    profile(RcdpBlocks { symbols, basic: true })
}

const fn profile(blocks: RcdpBlocks) -> Profile {
    Profile {
        code: CODE,
        layout: Layout::Generations,
        elimination: Elimination::WhenStuck,
        redundancy: Redundancy::new(Proactive::Rcdp(blocks)),
        rate_control: RATE_CONTROL,
        delivery: Delivery::AsComplete,
    }
}
