//! `stream`, the default: a sliding window under a random code, with as much repair as the path and the
//! target need (docs/default-policy.md).

use tidewire_codec::Code;

use super::{Delivery, Elimination, Layout, Named, Profile};
use crate::rate::RateControl;
use crate::redundancy::Redundancy;

pub(super) const NAMED: Named = Named {
    name: "stream",
    summary: "Sliding window code whose redundancy follows the loss",
    example: "stream",
    range: "",
    parse: |parameters| parameters.is_empty().then_some(STREAM),
};

/// The `stream` profile, described in the module documentation.
pub const STREAM: Profile = Profile {
    code: Code::Rlc,
    layout: Layout::Sliding,
    elimination: Elimination::WhenStuck,
    redundancy: Redundancy::ADAPTIVE,
    rate_control: RateControl::Share,
    delivery: Delivery::AsComplete,
};
