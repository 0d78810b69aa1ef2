//! Targets of forwarding and the addresses to listen on: `HOST:PORT`, and ssh's `[ADDR:]PORT:HOST:PORT` and
//! `[ADDR:]PORT`.
//!
//! Users write them, and the far end reads targets off the wire. Invariant: two spellings of one
//! address are equal, so an allow-list compares addresses and not texts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// Longest host in bytes: a domain name (RFC 1035 section 2.3.4).
pub const MAX_HOST: usize = 255;

/// A TCP port of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// A name in lower case, or an address in its shortest form, without brackets.
    host: String,
    port: u16,
}

impl Target {
    /// Makes a target of a host without brackets and a port.
    ///
    /// # Errors
    /// Fails if the host is neither a name nor an address, or the port is 0.
    pub fn new(host: &str, port: u16) -> Result<Self, TargetError> {
        let wrong = || TargetError::new(&format!("{host}:{port}"), TARGET);
        let ordinary = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let host = match host.parse::<IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) if !host.is_empty() && host.len() <= MAX_HOST && host.chars().all(ordinary) => {
                host.to_ascii_lowercase()
            }
            Err(_) => return Err(wrong()),
        };
        if port == 0 { Err(wrong()) } else { Ok(Self { host, port }) }
    }

    /// The host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the host is a name or address of this machine, so that loopback is intended.
    pub fn names_loopback(&self) -> bool {
        let name = self.host.as_str();
        name == "localhost" || name.ends_with(".localhost") || self.host.parse::<IpAddr>().is_ok()
    }

    /// Whether the host is `localhost`, or a loopback or link-local address.
    pub fn is_this_host(&self) -> bool {
        match self.host.parse() {
            Ok(address) => is_private_to_host(address),
            Err(_) => self.names_loopback(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let wrong = || TargetError::new(text, TARGET);
        match fields(text).ok_or_else(wrong)?[..] {
            [host, port] => Self::new(host, port.parse().map_err(|_| wrong())?).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

/// Whether an address is of this host or its local network segment. Somebody else may have pointed a name to
/// such an address (DNS rebinding).
pub fn is_private_to_host(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified(),
    }
}

/// One `-L` or `-R` option: the address to listen on, and the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortForward {
    /// Address on which TCP connections are accepted. With port 0 the system chooses the port.
    pub listen: SocketAddr,
    /// The target that the other side connects to.
    pub target: Target,
}

impl FromStr for PortForward {
    type Err = TargetError;

    /// Parses `[ADDR:]PORT:HOST:PORT`. Without ADDR, only the machine that listens can connect.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let wrong = || TargetError::new(text, PORT_FORWARD);
        let fields = fields(text).ok_or_else(wrong)?;
        let [place @ .., host, port] = &fields[..] else { return Err(wrong()) };
        let target = Target::new(host, port.parse().map_err(|_| wrong())?).map_err(|_| wrong())?;
        Ok(Self { listen: address(place).ok_or_else(wrong)?, target })
    }
}

/// One `-D` option: the loopback address on which SOCKS clients are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocksForward(pub SocketAddr);

impl FromStr for SocksForward {
    type Err = TargetError;

    /// Parses `[ADDR:]PORT`.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let address = fields(text).and_then(|fields| address(&fields)).ok_or_else(|| TargetError::new(text, SOCKS))?;
        if !address.ip().to_canonical().is_loopback() {
            return Err(TargetError::new(text, SOCKS_ADDRESS));
        }
        Ok(Self(address))
    }
}

/// Reads the fields of `[ADDR:]PORT`.
fn address(fields: &[&str]) -> Option<SocketAddr> {
    let (address, port) = match *fields {
        [port] | ["localhost", port] => (Ipv4Addr::LOCALHOST.into(), port),
        [address, port] => (address.parse().ok()?, port),
        _ => return None,
    };
    Some(SocketAddr::new(address, port.parse().ok()?))
}

/// Splits at colons outside of brackets and removes the brackets; `None` if the brackets do not match.
pub(crate) fn fields(text: &str) -> Option<Vec<&str>> {
    let mut fields = Vec::new();
    let mut rest = text;
    loop {
        let (field, after) = match rest.strip_prefix('[') {
            Some(inside) => inside.split_once(']')?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        fields.push(field);
        match after.strip_prefix(':') {
            Some(next) => rest = next,
            None if after.is_empty() => return Some(fields),
            None => return None,
        }
    }
}

const TARGET: &str = "HOST:PORT, as web.example:80 or [2001:db8::1]:80";
const PORT_FORWARD: &str = "[ADDR:]PORT:HOST:PORT, as 8080:web.example:80 or [::1]:8080:[2001:db8::1]:80";
const SOCKS: &str = "[ADDR:]PORT, as 1080 or [::1]:1080";
const SOCKS_ADDRESS: &str = "on a loopback address: the port asks for no password, so whoever reaches it could use \
                             the far side. Give PORT alone, 127.0.0.1:PORT or [::1]:PORT";

/// A text that is not a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {wanted}")]
pub struct TargetError {
    text: String,
    wanted: &'static str,
}

impl TargetError {
    /// `text` is not `wanted`.
    pub(crate) fn new(text: &str, wanted: &'static str) -> Self {
        Self { text: text.to_owned(), wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_target_are_equal() {
        for (one, other) in [("Web.Example:80", "web.example:80"), ("[2001:DB8:0::1]:443", "[2001:db8::1]:443")] {
            assert_eq!(one.parse::<Target>(), other.parse());
            assert_eq!(other.parse::<Target>().unwrap().to_string(), other);
        }
        assert_ne!("localhost:80".parse::<Target>(), "127.0.0.1:80".parse());
        assert_ne!("a:80".parse::<Target>(), "a:81".parse());
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for text in ["", "a", ":80", "a:", "a:0", "a:65536", "a:b", "a b:1", "a:1:2", "[::1:80", "[::1]80", "::1:80"] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("HOST:PORT"), "{text}: {error}");
        }
        assert!(Target::new("a\nb", 1).is_err() && Target::new(&"a".repeat(256), 1).is_err());
    }

    #[test]
    fn ssh_users_can_type_what_they_know() {
        let forward = |text: &str| text.parse::<PortForward>().map(|f| (f.listen.to_string(), f.target.to_string()));
        let is = |listen: &str, target: &str| Ok((listen.to_owned(), target.to_owned()));
        assert_eq!(forward("8080:web:80"), is("127.0.0.1:8080", "web:80"));
        assert_eq!(forward("localhost:1:web:80"), is("127.0.0.1:1", "web:80"));
        assert_eq!(forward("0.0.0.0:0:[::1]:80"), is("0.0.0.0:0", "[::1]:80"));
        assert_eq!(forward("[::1]:8080:10.0.0.1:80"), is("[::1]:8080", "10.0.0.1:80"));
        for text in ["8080", "8080:web", "x:web:80", "8080:web:0", "nowhere:1:web:80", "1:2:3:4:5", "70000:web:80"] {
            assert!(forward(text).is_err(), "{text}");
        }
    }

    #[test]
    fn socks_ports_open_on_loopback_only() {
        let socks = |text: &str| text.parse::<SocksForward>().map(|socks| socks.0.to_string());
        for (text, address) in [
            ("1080", "127.0.0.1:1080"),
            ("localhost:0", "127.0.0.1:0"),
            ("127.0.0.9:1", "127.0.0.9:1"),
            ("[::1]:1080", "[::1]:1080"),
        ] {
            assert_eq!(socks(text), Ok(address.to_owned()));
        }
        for text in ["0.0.0.0:1080", "[::]:1080", "10.0.0.1:1080"] {
            let error = socks(text).unwrap_err().to_string();
            assert!(error.contains("password") && error.contains("127.0.0.1:PORT"), "{error}");
        }
        for text in ["", "web:1080", "1080:web:80", "65536", "*:1080"] {
            assert!(socks(text).unwrap_err().to_string().contains("[ADDR:]PORT"), "{text}");
        }
    }

    #[test]
    fn names_do_not_lead_to_this_host_unless_they_say_so() {
        for (address, private) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("169.254.169.254", true),
            ("fe80::1", true),
            ("0.0.0.0", true),
            ("10.0.0.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_private_to_host(address.parse().unwrap()), private, "{address}");
        }
        let names = |text: &str| text.parse::<Target>().unwrap().names_loopback();
        assert!(names("127.0.0.1:1") && names("localhost:1") && names("[::1]:1"));
        assert!(!names("localhost.example:1"));
    }
}
