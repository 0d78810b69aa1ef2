//! Profiles: a profile is a complete system, made of one choice on each of five axes
//! (docs/adr/0001-five-axes.md).
//!
//! [`crate::config::Config`] holds a profile. The command line, scenario files and the lab parse a profile by
//! its name. Each file of this folder defines one profile as a value and gives the reasons for it. No code
//! outside this folder knows the name of a profile. Choices that do not fit together are a [`Mismatch`].

mod arq;
mod block;
mod bucket;
mod mismatch;
mod pipeline;
mod policy;
mod rcdp;
mod sphinx;
mod stream;

use core::fmt;
use core::str::FromStr;

use tidewire_codec::Code;
pub use tidewire_codec::Elimination;

pub use arq::ARQ;
pub use block::block;
pub use bucket::bucket;
pub use mismatch::Mismatch;
pub use pipeline::pipeline;
pub(crate) use policy::Bounds;
pub use rcdp::{rcdp, rcdp_basic};
pub use sphinx::{SPHINX_PRINTED, sphinx};
pub use stream::STREAM;

use crate::rate::RateControl;
use crate::redundancy::Redundancy;
pub use crate::wire::Layout;
use tidewire_units::nearest;

/// One choice on each axis. Each field can be replaced independently.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Code of the rows of a generation. All other combinations use [`Code::Rlc`].
    pub code: Code,
    /// Whether repairs mix any adjacent symbols, or closed generations.
    pub layout: Layout,
    /// Whether this end solves for the symbols of a sparse code when peeling is stuck.
    pub elimination: Elimination,
    /// Repairs sent before a loss is known, and repairs sent for reported deficits.
    pub redundancy: Redundancy,
    /// Limit of the bytes in flight, and the pace.
    pub rate_control: RateControl,
    /// When the application gets a message, unless the lane of messages sets its own rule.
    pub delivery: Delivery,
}

/// When the application gets a message. Streams are always delivered in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// Each message as soon as it is whole.
    #[default]
    AsComplete,
    /// Each message after all earlier ones have come or have expired.
    InOrder,
}

/// A profile with its name.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The name that a user writes, up to a colon.
    pub name: &'static str,
    /// One line for `--help`.
    pub summary: &'static str,
    /// An example with parameters, or the name alone if there are none.
    pub example: &'static str,
    /// What the parameters may be, for an error about them. Empty if the example says it.
    pub range: &'static str,
    /// Parses the parameters after the colon, empty if there are none. Returns `None` if they are invalid.
    parse: fn(parameters: &str) -> Option<Profile>,
}

impl Profile {
    /// All profiles. A new one is added only here.
    pub const NAMED: &[Named] =
        &[stream::NAMED, arq::NAMED, block::NAMED, sphinx::NAMED, rcdp::NAMED, pipeline::NAMED, bucket::NAMED];
}

impl Default for Profile {
    fn default() -> Self {
        STREAM
    }
}

/// A text that is not a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadProfile(String);

impl fmt::Display for BadProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.split(':').next().unwrap_or_default();
        match Profile::NAMED.iter().find(|named| named.name == name) {
            Some(Named { example, range: "", .. }) => write!(f, "bad profile {:?}; write it like {example}", self.0),
            Some(Named { range, .. }) => write!(f, "bad profile {:?}; {range}", self.0),
            None => {
                let names: Vec<_> = Profile::NAMED.iter().map(|named| named.name).collect();
                write!(f, "unknown profile {:?}{}", self.0, nearest(name, &names))
            }
        }
    }
}

impl core::error::Error for BadProfile {}

impl FromStr for Profile {
    type Err = BadProfile;

    fn from_str(text: &str) -> Result<Self, BadProfile> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let named = Self::NAMED.iter().find(|named| named.name == name);
        named.and_then(|named| (named.parse)(parameters)).ok_or_else(|| BadProfile(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_has_a_name_and_the_others_are_refused_with_the_nearest() {
        for named in Profile::NAMED {
            assert!(
                named.name.parse::<Profile>().is_ok() && named.example.parse::<Profile>().is_ok(),
                "{}",
                named.name
            );
        }
        assert_eq!("stream".parse(), Ok(Profile::default()));
        let refused = |text: &str| text.parse::<Profile>().expect_err(text).to_string();
        let unknown = "unknown profile \"steam\"; did you mean \"stream\"? (allowed: stream, arq, block";
        assert!(refused("steam").starts_with(unknown), "{}", refused("steam"));
        assert_eq!(refused("block:3000,1"), "bad profile \"block:3000,1\"; write it like block:32,8");
        for bad in ["pipeline:0,1.25", "pipeline:65,1.25", "pipeline:16,0.9"] {
            assert_eq!(refused(bad), format!("bad profile {bad:?}; {}", crate::redundancy::PIPELINE_RANGE));
        }
        assert!(refused("arq:3").starts_with("bad profile") && refused("").starts_with("unknown profile"));
    }
}
