//! The link that names a listener: `tidewire://HOST:PORT/?KEY=VALUE#SECRET`, or `#PUBLICKEY` of the listener.
//!
//! The listening side prints a link, and the connecting side parses it. Both the command `tidewire` and the C
//! API use it. Invariant: no error, `Debug` output or log line contains the secret, or any part of a text
//! that might be one.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use tidewire_proto::crypto::{PublicKey, Secret, TextError, TextKind};
use tidewire_units::{Rate, parse_duration};

use crate::names;

/// The port of a link without a port.
pub const DEFAULT_PORT: u16 = 7700;
/// The hint that ends each error about a link.
const EXAMPLE: &str =
    "a link looks like tidewire://192.0.2.7:7700/#tws1...; copy all of what the listening side printed";

/// The reason why a text is not a link. It never holds the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// It does not begin with `tidewire://`.
    Scheme,
    /// It has no `#SECRET` or `#PUBLICKEY`.
    NoSecret,
    /// It has no host.
    NoHost,
    /// The host is not a name, an IPv4 address or an IPv6 address in brackets.
    Host(String),
    /// The port is not a number from 1 to 65535.
    Port(String),
    /// Something stands between the port and the `?` or `#`.
    Path(String),
    /// A query key that is not known.
    Key(String),
    /// A query value that is not understood: the key, and what is wrong.
    Value(String, String),
    /// The secret, or the public key, is cut short or mistyped.
    Secret(TextError),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => write!(f, "the link does not begin with tidewire://"),
            Self::NoSecret => {
                write!(f, "the link has no #SECRET at its end (write it in quotes, since a shell may cut it at `#`)")
            }
            Self::NoHost => write!(f, "the link names no host"),
            Self::Host(host) => {
                write!(f, "`{host}` is not a host; write an IPv6 address in brackets, as in [2001:db8::1]")
            }
            Self::Port(port) => write!(f, "`{port}` is not a port: give a number from 1 to 65535"),
            Self::Path(path) => write!(f, "the link has `{path}` after the port, where only ? or # may follow"),
            Self::Key(key) => write!(f, "`{key}=` is not known in a link: write latency= or maxbw=, or leave it out"),
            Self::Value(key, wrong) => write!(f, "{key}= in the link: {wrong}"),
            Self::Secret(wrong) => wrong.fmt(f),
        }?;
        write!(f, "; {EXAMPLE}")
    }
}

impl std::error::Error for LinkError {}

/// How the connecting side recognizes the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever opens a link must handle every kind of credentials")]
pub enum Peer {
    /// A secret that both sides share. It opens the connection.
    Secret(Secret),
    /// The public key of the listener. The private key of the connecting side opens the connection.
    Key(PublicKey),
}

impl Peer {
    /// Returns the public key, if the link has one.
    pub fn key(&self) -> Option<&PublicKey> {
        match self {
            Self::Secret(_) => None,
            Self::Key(key) => Some(key),
        }
    }

    /// Returns the text after `#`, which may be a secret.
    pub fn reveal(&self) -> String {
        match self {
            Self::Secret(secret) => secret.reveal().to_string(),
            Self::Key(key) => key.to_string(),
        }
    }
}

impl FromStr for Peer {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        if text.get(..4).is_some_and(|head| head.eq_ignore_ascii_case(TextKind::PublicKey.prefix())) {
            return text.parse().map(Self::Key);
        }
        text.parse().map(Self::Secret)
    }
}

/// A parsed link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// A name or an address, without brackets.
    pub host: String,
    /// UDP port.
    pub port: u16,
    /// The query as typed: `latency` and `maxbw`, each at most once.
    pub query: Vec<(String, String)>,
    /// The text after `#`.
    pub peer: Peer,
}

impl Link {
    /// Returns the value of a query key.
    pub fn query(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Resolves the host with the resolver of the system; see [`names::resolve`].
    ///
    /// # Errors
    /// The error of the resolver.
    pub async fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        names::resolve(&self.host, self.port).await
    }

    /// Returns the whole link with its secret. Only the listener that made the secret prints it.
    pub fn reveal(&self) -> String {
        let host = if is_v6(&self.host) { format!("[{}]", self.host) } else { self.host.clone() };
        let query: Vec<String> = self.query.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        format!("tidewire://{host}:{}/{query}#{}", self.port, self.peer.reveal())
    }
}

impl FromStr for Link {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        let rest = text.trim().strip_prefix("tidewire://").ok_or(LinkError::Scheme)?;
        let (rest, peer) = rest.split_once('#').ok_or(LinkError::NoSecret)?;
        let peer = peer.parse().map_err(LinkError::Secret)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() {
            return Err(LinkError::Path(format!("/{path}")));
        }
        let (host, port) = parse_authority(authority)?;
        Ok(Self { host, port, query: parse_query(query)?, peer })
    }
}

fn parse_authority(authority: &str) -> Result<(String, u16), LinkError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(|| LinkError::Host(authority.into()))?;
            if !is_v6(host) {
                return Err(LinkError::Host(host.into()));
            }
            match port {
                "" => (host, None),
                port => (host, Some(port.strip_prefix(':').ok_or_else(|| LinkError::Port(port.into()))?)),
            }
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(LinkError::Host(authority.into())),
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    match host {
        "" => return Err(LinkError::NoHost),
        host if !is_v6(host) && !host.chars().all(is_ordinary) => return Err(LinkError::Host(host.into())),
        _ => {}
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => match port.parse::<u16>() {
            Ok(number) if number != 0 => number,
            _ => return Err(LinkError::Port(port.into())),
        },
    };
    Ok((host.to_owned(), port))
}

fn is_ordinary(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':')
}

/// Whether this is an IPv6 address, with or without a zone (RFC 4007 section 11): `fe80::1%eth0`.
fn is_v6(host: &str) -> bool {
    let (address, zone) = host.split_once('%').unwrap_or((host, "-"));
    address.parse::<Ipv6Addr>().is_ok() && !zone.is_empty() && zone.chars().all(is_ordinary)
}

fn parse_query(query: &str) -> Result<Vec<(String, String)>, LinkError> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !matches!(key, "latency" | "maxbw") {
            return Err(LinkError::Key(key.into()));
        }
        if pairs.iter().any(|(name, _)| name == key) {
            return Err(LinkError::Value(key.into(), "given twice".into()));
        }
        check_value(key, value).map_err(|wrong| LinkError::Value(key.into(), wrong))?;
        pairs.push((key.into(), value.into()));
    }
    Ok(pairs)
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    match key {
        "latency" => parse_latency(value).map(drop),
        _ => value.parse::<Rate>().map(drop).map_err(|error| error.to_string()),
    }
}

/// Parses a latency target: a time with a unit, at least 1 ms.
///
/// # Errors
/// What is wrong, and what to write.
pub fn parse_latency(text: &str) -> Result<Duration, String> {
    let latency = parse_duration(text).map_err(|error| error.to_string())?;
    if latency < Duration::from_millis(1) {
        return Err("less than 1 ms is too short for a network; write at least 1ms".into());
    }
    Ok(latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> String {
        Secret::new([7; 32]).reveal().to_string()
    }

    fn parse(authority_and_query: &str) -> Result<Link, LinkError> {
        format!("tidewire://{authority_and_query}#{}", secret()).parse()
    }

    #[test]
    fn what_is_printed_is_what_is_read() {
        for text in [
            "192.0.2.7:7701/",
            "[2001:db8::1]:7700/",
            "[fe80::1%eth0]:7700/",
            "example.org:1/",
            "h:9/?latency=80ms&maxbw=20mbit",
        ] {
            let link = parse(text).unwrap();
            assert_eq!(link.reveal(), format!("tidewire://{text}#{}", secret()));
        }
        assert_eq!(parse("host").unwrap().port, DEFAULT_PORT);
        assert_eq!(parse("[::1]").unwrap().host, "::1");
        assert_eq!(parse("host:5/?latency=80ms").unwrap().query("latency"), Some("80ms"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(parse("2001:db8::1:7700/"), Err(LinkError::Host("2001:db8::1:7700".into())));
        assert_eq!(parse("[host]:1/"), Err(LinkError::Host("host".into())));
        for text in ["fe80::1%", "fe80::1%a b", "host%eth0"] {
            assert_eq!(parse(&format!("[{text}]:1/")), Err(LinkError::Host(text.into())));
        }
        assert_eq!(parse("10.0.0.1%eth0/"), Err(LinkError::Host("10.0.0.1%eth0".into())));
        assert_eq!(parse(":7700/"), Err(LinkError::NoHost));
        assert_eq!(parse("h:0/"), Err(LinkError::Port("0".into())));
        assert_eq!(parse("h:65536/"), Err(LinkError::Port("65536".into())));
        assert_eq!(parse("h/x"), Err(LinkError::Path("/x".into())));
        for (query, wanted) in [
            ("maxbw=1mbit&maxbw=1mbit", "maxbw= in the link: given twice"),
            ("mode=caller", "`mode=` is not known in a link: write latency= or maxbw=, or leave it out"),
            ("latency=80", "latency= in the link: \"80\" has no unit; write for example \"60ms\""),
            ("latency=1us", "latency= in the link: less than 1 ms"),
            ("maxbw", "maxbw= in the link: \"\" is not a rate; write for example \"25mbit\""),
            ("speed=1", "`speed=` is not known in a link: write latency= or maxbw=, or leave it out"),
        ] {
            let error = parse(&format!("h/?{query}")).unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{query}: {error}");
        }
        assert_eq!("http://h/#x".parse::<Link>(), Err(LinkError::Scheme));
        assert_eq!("tidewire://h:1/".parse::<Link>(), Err(LinkError::NoSecret));
    }

    #[test]
    fn a_damaged_secret_is_found_and_not_repeated() {
        let good = secret();
        for length in 0..good.len() {
            let error = format!("tidewire://h/#{}", &good[..length]).parse::<Link>().unwrap_err();
            assert!(matches!(error, LinkError::Secret(_)), "{error:?}");
            assert!(length < 12 || !error.to_string().contains(&good[4..length]));
        }
        assert!(!format!("{:?}", parse("h").unwrap()).contains(&good[4..]));
    }

    #[test]
    fn a_public_key_stands_in_the_place_of_the_secret() {
        let key = tidewire_proto::crypto::PrivateKey::new([3; 32]).public();
        let link: Link = format!("tidewire://h:9/#{key}").parse().unwrap();
        assert_eq!(link.peer.key(), Some(&key));
        assert_eq!(link.reveal(), format!("tidewire://h:9/#{key}"));
        let cut = format!("tidewire://h:9/#{}", &key.to_string()[..40]).parse::<Link>().unwrap_err();
        assert!(cut.to_string().starts_with("a public key has 56 letters"), "{cut}");
    }
}
