//! Options: names and values as texts, checked when they are set.
//!
//! `tw_setsockopt` calls [`set`]. Invariant: an option that is refused leaves everything as it was.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire::link::{self, Link, Peer};
use tidewire::{
    Config, ConfigBuilder, Credentials, KeyCredentials, PrivateKey, Profile, PublicKey, RateControl, Redundancy,
    Secret, new_secret,
};
use tidewire_proto::wire::parse_code;
use tidewire_units::{Probability, Rate, nearest, parse_duration};

use crate::code::*;
use crate::modes::Modes;
use crate::signal::lock;
use crate::socket::{Socket, State};

/// What a new socket knows before it listens or connects.
#[derive(Clone)]
pub(crate) struct Settings {
    config: ConfigBuilder,
    /// Whether a profile, a code or a redundancy was chosen: the peer is then asked to code so.
    is_chosen: bool,
    has_latency: bool,
    has_max_rate: bool,
    pub address: Option<SocketAddr>,
    secret: Option<Secret>,
    private_key: Option<PrivateKey>,
    authorized: BTreeSet<PublicKey>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            config: Config::builder().keep_alive(Some(KEEP_ALIVE)),
            is_chosen: false,
            has_latency: false,
            has_max_rate: false,
            address: None,
            secret: None,
            private_key: None,
            authorized: BTreeSet::new(),
        }
    }
}

/// Sets an option of a socket.
pub(crate) fn set(socket: &Socket, name: &str, value: &str) -> Outcome<()> {
    if MODES.contains(&name) {
        let mut modes = lock(&socket.modes);
        let changed = set_mode(*modes, name, value)?;
        *modes = changed;
        return Ok(());
    }
    if !SETTINGS.contains(&name) {
        let names: Vec<_> = SETTINGS.iter().chain(&MODES).copied().collect();
        return Err(Failure::new(TW_ENOPROTOOPT, format_args!("unknown option \"{name}\"{}", nearest(name, &names))));
    }
    match &mut *lock(&socket.state) {
        State::New(settings) => {
            let mut changed = settings.clone();
            changed.set(name, value)?;
            *settings = changed;
            Ok(())
        }
        State::Closed => Err(Failure::new(TW_EBADF, "the handle was closed by another thread")),
        _ => Err(Failure::new(TW_EISCONN, format_args!("set {name} before tw_listen or tw_connect"))),
    }
}

fn set_mode(mut modes: Modes, name: &str, value: &str) -> Outcome<Modes> {
    match name {
        "nonblocking" => modes.is_blocking = !switch(name, value)?,
        "receive_timeout" => modes.receive_timeout = unless_off(name, value)?,
        "send_timeout" => modes.send_timeout = unless_off(name, value)?,
        _ => modes.linger = time(name, value)?,
    }
    Ok(modes)
}

impl Settings {
    fn set(&mut self, name: &str, value: &str) -> Outcome<()> {
        let wrong = |error: &dyn Display| Failure::new(TW_EINVAL, format_args!("{name}: {error}"));
        let config = self.config.clone();
        let changed = match name {
            "profile" => config.profile(value.parse::<Profile>().map_err(|e| wrong(&e))?),
            "code" => config.code(parse_code(value).map_err(|e| wrong(&e))?),
            "redundancy" => config.redundancy(value.parse::<Redundancy>().map_err(|e| wrong(&e))?),
            "rate_control" => config.rate_control(value.parse::<RateControl>().map_err(|e| wrong(&e))?),
            "latency" => config.latency(Some(link::parse_latency(value).map_err(|e| wrong(&e))?)),
            "max_rate" => config.max_rate(Some(value.parse::<Rate>().map_err(|e| wrong(&e))?.bits_per_second())),
            "max_overhead" => config.max_overhead(value.parse::<Probability>().map_err(|e| wrong(&e))?.value()),
            "connect_timeout" => config.handshake_timeout(time(name, value)?),
            "idle_timeout" => config.idle_timeout(time(name, value)?),
            "keep_alive" => config.keep_alive(unless_off(name, value)?),
            "secret" => {
                self.secret = Some(value.parse().map_err(|e| wrong(&e))?);
                config
            }
            "private_key" => {
                self.private_key = Some(value.parse().map_err(|e| wrong(&e))?);
                config
            }
            _ => {
                let words = value.split([' ', ',', '\n', '\t', '\r']).filter(|word| !word.is_empty());
                self.authorized = words.map(str::parse).collect::<Result<_, _>>().map_err(|e| wrong(&e))?;
                config
            }
        };
        changed.check_ranges().map_err(|e| wrong(&e))?;
        self.config = changed;
        self.is_chosen |= matches!(name, "profile" | "code" | "redundancy");
        self.has_latency |= name == "latency";
        self.has_max_rate |= name == "max_rate";
        Ok(())
    }

    /// The configuration, with what the query of a link adds.
    pub fn config(&self, link: Option<&Link>) -> Outcome<Config> {
        let wrong = |error: &dyn Display| Failure::new(TW_EINVAL, error);
        let mut config = self.config.clone().asks_peer(self.is_chosen).follows_peer(!self.is_chosen);
        let query = |key: &str, is_set: bool| link.filter(|_| !is_set).and_then(|link| link.query(key));
        if let Some(text) = query("latency", self.has_latency) {
            config = config.latency(Some(link::parse_latency(text).map_err(|e| wrong(&e))?));
        }
        if let Some(text) = query("maxbw", self.has_max_rate) {
            config = config.max_rate(Some(text.parse::<Rate>().map_err(|e| wrong(&e))?.bits_per_second()));
        }
        config.build().map_err(|e| wrong(&e))
    }

    /// The credentials that open a link.
    pub fn to_open(&self, link: &Link) -> Outcome<Credentials> {
        match (&link.peer, &self.private_key) {
            (Peer::Secret(secret), _) => Ok(Credentials::Psk(secret.clone())),
            (Peer::Key(_), Some(private)) => Ok(Credentials::Key(KeyCredentials::new(private.clone()))),
            (Peer::Key(_), None) => Err(Failure::new(
                TW_EINVAL,
                "the link ends with a public key: set the option private_key to your own (tidewire keygen --pair)",
            )),
        }
    }

    /// The credentials of a listener, and what its link ends with.
    pub fn to_listen(&self) -> Outcome<(Credentials, Peer)> {
        let Some(private) = &self.private_key else {
            let secret = self.secret.clone().map_or_else(new_secret, Ok)?;
            return Ok((Credentials::Psk(secret.clone()), Peer::Secret(secret)));
        };
        if self.secret.is_some() || self.authorized.is_empty() {
            return Err(Failure::new(
                TW_EINVAL,
                "a listener with private_key needs authorized_keys, the keys that may connect, and no secret",
            ));
        }
        let mut own = KeyCredentials::new(private.clone());
        own.authorized = Arc::new(self.authorized.clone());
        Ok((Credentials::Key(own), Peer::Key(private.public())))
    }
}

fn switch(name: &str, value: &str) -> Outcome<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Failure::new(TW_EINVAL, format_args!("{name} is \"{value}\": write on or off"))),
    }
}

fn time(name: &str, value: &str) -> Outcome<Duration> {
    parse_duration(value).map_err(|error| Failure::new(TW_EINVAL, format_args!("{name}: {error}")))
}

fn unless_off(name: &str, value: &str) -> Outcome<Option<Duration>> {
    if value == "off" { Ok(None) } else { time(name, value).map(Some) }
}

/// Silence after which a packet keeps an idle connection alive. RFC 4787 section 4.3 lets an address
/// translator forget a mapping after two minutes; many do after 30 s.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Options of a new socket.
const SETTINGS: [&str; 13] = [
    "profile",
    "code",
    "redundancy",
    "rate_control",
    "latency",
    "max_rate",
    "max_overhead",
    "secret",
    "private_key",
    "authorized_keys",
    "connect_timeout",
    "idle_timeout",
    "keep_alive",
];
/// Options of every socket.
const MODES: [&str; 4] = ["nonblocking", "receive_timeout", "send_timeout", "linger"];
