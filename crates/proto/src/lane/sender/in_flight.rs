//! The repairs of a lane that are in flight, for policies ([`InFlight`]) and for the settled edge.
//!
//! The lane's sender adds each repair when it is sent, and settles it when its packet is acknowledged or
//! lost.

use super::withheld::FirstMixed;
use crate::redundancy::InFlight;

/// The repairs of a lane that were sent.
#[derive(Debug, Default)]
pub(super) struct SentRepairs {
    /// Those whose fate is not known yet.
    pub in_flight: InFlight,
    /// Those that were the first over some symbols.
    pub mixed: FirstMixed,
}
