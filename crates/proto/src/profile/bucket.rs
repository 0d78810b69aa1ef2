//! `bucket`: combinations of blocks whose size follows what is ready to be sent (Bhat and McNair, "Delivering
//! Low Latency Video using TCP with Network Coding over Wireless Network").
//!
//! `bucket:CAP,GAMMA` has blocks of at most CAP symbols, and GAMMA combinations per symbol over GF(2^16), the
//! field of the paper's implementation (section 4.1.1). `,fixed` is the paper's baseline: blocks of exactly
//! CAP symbols, filled with empty ones. The paper runs under TCP NewReno, whose ACKs hide the repaired
//! losses. Ours are not hidden from rate control (RFC 9265), so the profile has `share`.

use tidewire_codec::Code;

use super::{Delivery, Elimination, Layout, Named, Profile};
use crate::rate::RateControl;
use crate::redundancy::{BUCKET_RANGE, BucketBlocks, Proactive, Redundancy};

pub(super) const NAMED: Named = Named {
    name: "bucket",
    summary: "Blocks of what is ready to be sent, up to CAP symbols, as GAMMA combinations per symbol, 15 and 1.25 unless given (bucket:CAP,GAMMA)",
    example: "bucket:15,1.25",
    range: BUCKET_RANGE,
    parse: |parameters| match parameters {
        "" => Some(bucket(BucketBlocks { cap: CAP, gamma: 1.25, is_fixed: false })),
        parameters => BucketBlocks::parse(parameters).map(bucket),
    },
};

/// The paper's bound of the bucket, with which its delay stays below 250 ms (section 4.4). It gives no value
/// of Gamma but the range 1 to 1.5; the profile takes the middle.
const CAP: u16 = 15;

/// Such blocks; each field of `blocks` must be within its range.
pub const fn bucket(blocks: BucketBlocks) -> Profile {
    Profile {
        code: Code::Rlc16,
        layout: Layout::Generations,
        elimination: Elimination::WhenStuck,
        redundancy: Redundancy::new(Proactive::Bucket(blocks)),
        rate_control: RateControl::Share,
        delivery: Delivery::AsComplete,
    }
}
