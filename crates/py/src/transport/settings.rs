//! Settings of listeners and connections: names and texts, as the command and the C API take them.
//!
//! Invariant: a setting that is wrong raises before anything starts, with the sentence of the command.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use pyo3::prelude::*;
use tidewire::link::{self, Link, Peer};
use tidewire::{
    Config, ConfigBuilder, Credentials, KeyCredentials, PrivateKey, Profile, RateControl, Redundancy, Secret,
    new_secret,
};
use tidewire_proto::wire::parse_code;
use tidewire_units::{Probability, Rate, nearest, parse_duration};

use crate::error::SETTING;

/// Names and texts.
pub type Texts = std::collections::BTreeMap<String, String>;

/// A configuration, and whether it asks the peer to code as it says.
pub fn config(py: Python<'_>, texts: &Texts, link: Option<&Link>) -> PyResult<Config> {
    let is_chosen = texts.keys().any(|name| matches!(name.as_str(), "profile" | "code" | "redundancy"));
    let mut config = Config::builder().asks_peer(is_chosen).follows_peer(!is_chosen);
    let query = |key: &str, name: &str| link.filter(|_| !texts.contains_key(name)).and_then(|link| link.query(key));
    let of_link = [("latency", query("latency", "latency")), ("max_rate", query("maxbw", "max_rate"))];
    let of_link = of_link.into_iter().filter_map(|(name, text)| Some((name, text?)));
    for (name, text) in texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).chain(of_link) {
        let wrong = |text: String| SETTING.raise(py, format!("{name}: {text}"));
        config = set(config, name, text).map_err(wrong)?;
        config.check_ranges().map_err(|error| wrong(error.to_string()))?;
    }
    config.build().map_err(|error| SETTING.raise(py, error))
}

fn set(config: ConfigBuilder, name: &str, text: &str) -> Result<ConfigBuilder, String> {
    Ok(match name {
        "profile" => config.profile(text.parse::<Profile>().map_err(say)?),
        "code" => config.code(parse_code(text)?),
        "redundancy" => config.redundancy(text.parse::<Redundancy>().map_err(say)?),
        "rate_control" => config.rate_control(text.parse::<RateControl>().map_err(say)?),
        "latency" => config.latency(Some(link::parse_latency(text)?)),
        "deliver" => config.deliver(text.parse::<Probability>().map_err(say)?.value()),
        "max_rate" => config.max_rate(Some(text.parse::<Rate>().map_err(say)?.bits_per_second())),
        "max_overhead" => config.max_overhead(text.parse::<Probability>().map_err(say)?.value()),
        "connect_timeout" => config.handshake_timeout(parse_duration(text).map_err(say)?),
        "idle_timeout" => config.idle_timeout(parse_duration(text).map_err(say)?),
        "keep_alive" if text == "off" => config.keep_alive(None),
        "keep_alive" => config.keep_alive(Some(parse_duration(text).map_err(say)?)),
        _ => return Err(format!("unknown setting {name:?}{}", nearest(name, &NAMES))),
    })
}

fn say(error: impl Display) -> String {
    error.to_string()
}

/// Keys as Python passes them.
pub struct Keys {
    pub secret: Option<String>,
    pub private: Option<String>,
    pub authorized: Vec<String>,
}

impl Keys {
    /// The credentials that open a link.
    pub fn to_open(&self, py: Python<'_>, link: &Link) -> PyResult<Credentials> {
        match (&link.peer, &self.private) {
            (Peer::Secret(secret), _) => Ok(Credentials::Psk(secret.clone())),
            (Peer::Key(_), Some(private)) => Ok(Credentials::Key(KeyCredentials::new(key(py, private)?))),
            (Peer::Key(_), None) => Err(SETTING
                .raise(py, "the link ends with a public key: give private_key, your own (tidewire keygen --pair)")),
        }
    }

    /// The credentials of a listener, and what its link ends with.
    pub fn to_listen(&self, py: Python<'_>) -> PyResult<(Credentials, Peer)> {
        let wrong = |name: &str, error: &dyn Display| SETTING.raise(py, format!("{name}: {error}"));
        let Some(private) = &self.private else {
            let secret = match &self.secret {
                Some(text) => text.parse::<Secret>().map_err(|error| wrong("secret", &error))?,
                None => new_secret()?,
            };
            return Ok((Credentials::Psk(secret.clone()), Peer::Secret(secret)));
        };
        if self.secret.is_some() || self.authorized.is_empty() {
            let text = "a listener with private_key needs authorized_keys, the keys that may connect, and no secret";
            return Err(SETTING.raise(py, text));
        }
        let private = key(py, private)?;
        let mut own = KeyCredentials::new(private.clone());
        let authorized = self.authorized.iter().map(|text| text.parse()).collect::<Result<BTreeSet<_>, _>>();
        own.authorized = Arc::new(authorized.map_err(|error| wrong("authorized_keys", &error))?);
        Ok((Credentials::Key(own), Peer::Key(private.public())))
    }
}

fn key(py: Python<'_>, text: &str) -> PyResult<PrivateKey> {
    text.parse().map_err(|error| SETTING.raise(py, format!("private_key: {error}")))
}

const NAMES: [&str; 11] = [
    "profile",
    "code",
    "redundancy",
    "rate_control",
    "latency",
    "deliver",
    "max_rate",
    "max_overhead",
    "connect_timeout",
    "idle_timeout",
    "keep_alive",
];
