//! The places that `tidewire live` is given: where datagrams come from, where they go, and the other end.
//!
//! The verb parses each argument once. Invariant: an error names the argument and a form that works, and no
//! secret.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use tidewire::link::Link;
use tidewire_live::{Place as Local, resolve};

use crate::link;

/// A place; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An input or output of this machine.
    Local(Local),
    /// The other end of tidewire, which listens.
    Link(Box<Link>),
    /// The other end of tidewire, which connects to this address.
    Listen(SocketAddr),
}

/// Why a text is no place.
#[derive(Debug)]
pub struct BadPlace {
    text: String,
    wrong: String,
}

impl fmt::Display for BadPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, wrong } = self;
        write!(
            f,
            "`{text}`: {wrong}; write udp://ADDRESS:PORT, rtp://ADDRESS:PORT, file:PATH, `-`, a link \
             (tidewire://...#...), or tidewire://ADDRESS:PORT to wait for the other end"
        )
    }
}

impl std::error::Error for BadPlace {}

impl Place {
    /// The place of this machine, unless this is the way to the other end.
    pub fn local(&self) -> Option<&Local> {
        if let Self::Local(place) = self { Some(place) } else { None }
    }
}

impl FromStr for Place {
    type Err = BadPlace;

    fn from_str(text: &str) -> Result<Self, BadPlace> {
        // A text with a secret is never repeated.
        let bad = |wrong: String| {
            let text = text.split(['#', '?']).next().unwrap_or_default().to_owned();
            BadPlace { text, wrong }
        };
        if text.starts_with('@') || (text.starts_with("tidewire://") && text.contains('#')) {
            let link = link::from_argument(text).map_err(|error| bad(format!("{error:#}")))?;
            return Ok(Self::Link(Box::new(link)));
        }
        if let Some(address) = text.strip_prefix("tidewire://") {
            let address = resolve(address.trim_end_matches('/')).map_err(|error| bad(error.to_string()))?;
            return Ok(Self::Listen(address));
        }
        text.parse().map(Self::Local).map_err(|error: tidewire_live::BadPlace| bad(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_is_told_from_places_of_this_machine() {
        let listen = "tidewire://0.0.0.0:7700".parse::<Place>().unwrap();
        assert_eq!(listen, Place::Listen(([0, 0, 0, 0], 7700).into()));
        assert_eq!("-".parse::<Place>().unwrap(), Place::Local(Local::Standard));
    }

    #[test]
    fn a_wrong_place_is_named_with_what_works_and_without_a_secret() {
        for (text, wanted) in [
            ("udp://x", "no address and port"),
            ("tidewire://:70000", "not a port"),
            ("file:", "no path"),
            ("srt://:9000?passphrase=tws1secret", "srt:// is not known"),
            ("tidewire://h:1/#tws1secret", "tidewire://h:1/`"),
        ] {
            let error = text.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("udp://ADDRESS:PORT"), "{text}: {error}");
            assert!(!error.contains("tws1secret"), "{error}");
        }
    }
}
