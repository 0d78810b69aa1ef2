//! A profile as texts, one for each axis, which is what people write too.

use tidewire_proto::profile::{Delivery, Elimination, Layout, Profile};
use tidewire_proto::wire::{CodeName, code_name, parse_code};

use super::bytes::{Corrupt, Pass};
use super::event::choose;

const LAYOUTS: [Layout; 2] = [Layout::Sliding, Layout::Generations];
const DELIVERIES: [Delivery; 2] = [Delivery::AsComplete, Delivery::InOrder];

/// Goes over the axes of a profile. A choice from outside of Tidewire, for which no text stands, and a choice
/// that this version does not know, become those of the default profile.
pub(crate) fn visit<P: Pass>(profile: &mut Profile, pass: &mut P) -> Result<(), Corrupt> {
    let default = Profile::default();
    choose(&mut profile.layout, &LAYOUTS, "layout", pass)?;
    let mut text = CodeName(profile.code).to_string();
    pass.text(&mut text)?;
    profile.code = parse_code(&text).unwrap_or(default.code);
    let mut text = profile.redundancy.to_string();
    pass.text(&mut text)?;
    profile.redundancy = text.parse().unwrap_or(default.redundancy);
    let mut text = profile.rate_control.to_string();
    pass.text(&mut text)?;
    profile.rate_control = text.parse().unwrap_or(default.rate_control);
    choose(&mut profile.delivery, &DELIVERIES, "delivery", pass)?;
    let mut eliminates = profile.elimination == ELIMINATES;
    pass.flag(&mut eliminates)?;
    profile.elimination = if eliminates { ELIMINATES } else { PEELS };
    Ok(())
}

const ELIMINATES: Elimination = Elimination::WhenStuck;
const PEELS: Elimination = Elimination::Never;

/// The name of a code, as a [`tidewire_proto::connection::CloseReason`] holds it.
pub(crate) fn code_named(text: &str) -> &'static str {
    parse_code(text).map_or("a code of another version", code_name)
}
