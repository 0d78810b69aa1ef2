//! `arq`: no code at all. A lost symbol is sent again, as TCP and QUIC do: what the others are compared with.

use tidewire_codec::Code;

use super::{Delivery, Layout, Named, Profile};
use crate::rate::RateControl;
use crate::redundancy::Redundancy;

pub(super) const NAMED: Named = Named {
    name: "arq",
    summary: "No repair before a loss is reported",
    example: "arq",
    parse: |parameters| parameters.is_empty().then_some(ARQ),
};

/// See the module.
pub const ARQ: Profile = Profile {
    code: Code::Rlc,
    layout: Layout::Sliding,
    redundancy: Redundancy::ARQ,
    rate_control: RateControl::Bbr,
    delivery: Delivery::AsComplete,
};
