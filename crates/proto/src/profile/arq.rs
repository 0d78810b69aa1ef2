//! `arq`: no code. A lost symbol is sent again, as in TCP and QUIC. The other profiles are compared with it.

use tidewire_codec::Code;

use super::{Delivery, Elimination, Layout, Named, Profile};
use crate::rate::RateControl;
use crate::redundancy::Redundancy;

pub(super) const NAMED: Named = Named {
    name: "arq",
    summary: "No repair before a loss is reported",
    example: "arq",
    range: "",
    parse: |parameters| parameters.is_empty().then_some(ARQ),
};

/// The `arq` profile, described in the module documentation.
pub const ARQ: Profile = Profile {
    code: Code::Rlc,
    layout: Layout::Sliding,
    elimination: Elimination::WhenStuck,
    redundancy: Redundancy::ARQ,
    rate_control: RateControl::Share,
    delivery: Delivery::AsComplete,
};
