//! What `serve --allow` covers (`docs/forward.md` section 5): targets that clients may reach, and ports that
//! they may open.
//!
//! The user of the far end gives the rules, [`crate::far`] asks them. The near end makes rules of its `-R`
//! targets. Invariants: what no rule covers is refused. A wildcard for the host never covers an address of
//! this machine itself.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use crate::header::{Answer, Code};
use crate::own::is_own;
use crate::target::{Target, TargetError, fields};

/// One `--allow` option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Clients may reach these targets.
    Reach {
        /// Compared with the host of a target as it is written.
        host: HostPattern,
        /// The port, or `None` for all.
        port: Option<u16>,
    },
    /// Clients may open these ports of this machine.
    Listen {
        /// The address to listen on, or `None` for all.
        address: Option<IpAddr>,
        /// The port, or `None` for all.
        port: Option<u16>,
    },
}

/// Hosts as `--allow` writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// This host, as a target spells it.
    Exactly(String),
    /// All names that end with this text, which begins with a dot.
    Below(String),
    /// All hosts.
    Any,
}

/// Where the name of an allowed target may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// To every address: a rule names a loopback address.
    Everywhere,
    /// To addresses that are neither loopback nor link-local: a rule names this host, and its name may have
    /// been pointed there.
    Named,
    /// To addresses of other hosts only: a wildcard covers it.
    OtherHosts,
}

/// All rules. Without a rule, everything is refused.
#[derive(Clone, Debug, Default)]
pub struct Allowed(Vec<Rule>);

impl Allowed {
    /// Allows exactly what these rules cover.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// Where `target` may lead, or the answer that refuses it.
    pub(crate) fn target(&self, target: &Target) -> Result<Reach, Answer> {
        let hosts = || {
            self.0.iter().filter_map(|rule| match rule {
                Rule::Reach { host, port } if port.is_none_or(|port| port == target.port()) => Some(host),
                _ => None,
            })
        };
        if hosts().any(|host| matches!(host, HostPattern::Exactly(name) if name == target.host())) {
            return Ok(if target.names_loopback() { Reach::Everywhere } else { Reach::Named });
        }
        let is_below = |host: &HostPattern| matches!(host, HostPattern::Below(end) if target.host().ends_with(end));
        if !hosts().any(|host| *host == HostPattern::Any || is_below(host)) {
            return Err(Answer::new(Code::NotAllowed, ""));
        }
        // Names are checked when they are resolved.
        if target.is_this_host() || target.host().parse().is_ok_and(is_own) {
            let why = format!("a wildcard covers no address of the far machine itself: --allow {target}");
            return Err(Answer::new(Code::NotAllowed, why));
        }
        Ok(Reach::OtherHosts)
    }

    /// Returns an answer if clients may not listen on `wanted`.
    pub(crate) fn listen(&self, wanted: SocketAddr) -> Result<(), Answer> {
        let covers = |rule: &Rule| match rule {
            Rule::Listen { address, port } => {
                address.is_none_or(|address| address.to_canonical() == wanted.ip().to_canonical())
                    && port.is_none_or(|port| port == wanted.port())
            }
            Rule::Reach { .. } => false,
        };
        if self.0.iter().any(covers) {
            return Ok(());
        }
        Err(Answer::new(Code::NotAllowed, format!("--allow listen={wanted}")))
    }
}

impl From<&Target> for Rule {
    fn from(target: &Target) -> Self {
        Self::Reach { host: HostPattern::Exactly(target.host().to_owned()), port: Some(target.port()) }
    }
}

impl FromStr for Rule {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let parsed = match text.strip_prefix(LISTEN) {
            Some(place) => listen_rule(place),
            None => reach_rule(text),
        };
        parsed.ok_or_else(|| TargetError::new(text, RULE))
    }
}

/// `*` stands for every port.
fn port_pattern(text: &str) -> Option<Option<u16>> {
    match text {
        "*" => Some(None),
        number => number.parse().ok().filter(|port| *port > 0).map(Some),
    }
}

fn reach_rule(text: &str) -> Option<Rule> {
    let [host, port] = fields(text)?[..] else { return None };
    let port = port_pattern(port)?;
    let name = |host: &str| Target::new(host, 1).ok().map(|target| target.host().to_owned());
    let host = match host.strip_prefix('*') {
        Some("") => HostPattern::Any,
        Some(end) => {
            let name = name(end.strip_prefix('.')?)?;
            // The last label of a domain name is not a number: `*.0.0.1` would be meant for addresses.
            let last = name.rsplit('.').next().unwrap_or_default();
            if last.is_empty() || last.bytes().all(|byte| byte.is_ascii_digit()) || name.contains(':') {
                return None;
            }
            HostPattern::Below(format!(".{name}"))
        }
        None => HostPattern::Exactly(name(host)?),
    };
    Some(Rule::Reach { host, port })
}

fn listen_rule(place: &str) -> Option<Rule> {
    let (address, port) = match fields(place)?[..] {
        [port] | ["localhost", port] => (Some(Ipv4Addr::LOCALHOST.into()), port),
        ["*", port] => (None, port),
        [address, port] => (Some(address.parse().ok()?), port),
        _ => return None,
    };
    Some(Rule::Listen { address, port: port_pattern(port)? })
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = |port: &Option<u16>| port.map_or_else(|| "*".to_owned(), |port| port.to_string());
        match self {
            Self::Reach { host, port: number } => write!(f, "{host}:{}", port(number)),
            Self::Listen { address: None, port: number } => write!(f, "{LISTEN}*:{}", port(number)),
            Self::Listen { address: Some(IpAddr::V6(v6)), port: number } => {
                write!(f, "{LISTEN}[{v6}]:{}", port(number))
            }
            Self::Listen { address: Some(v4), port: number } => write!(f, "{LISTEN}{v4}:{}", port(number)),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(host) if host.contains(':') => write!(f, "[{host}]"),
            Self::Exactly(host) => f.write_str(host),
            Self::Below(end) => write!(f, "*{end}"),
            Self::Any => f.write_str("*"),
        }
    }
}

/// What a rule for a port of this machine begins with. A host has no `=`, so no target is taken for it.
const LISTEN: &str = "listen=";
const RULE: &str = "HOST:PORT, as web.example:80, [2001:db8::1]:80, *:443, *.example.com:443, localhost:* or *:*, \
                    and not listen=[ADDR:]PORT, as listen=8080 or listen=0.0.0.0:8080";

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(rules: &[&str]) -> Allowed {
        Allowed::new(rules.iter().map(|rule| rule.parse().unwrap()))
    }

    fn reach(rules: &[&str], target: &str) -> Option<Reach> {
        allowed(rules).target(&target.parse().unwrap()).ok()
    }

    #[test]
    fn only_what_a_rule_covers_is_allowed() {
        let (named, other) = (Some(Reach::Named), Some(Reach::OtherHosts));
        for (rule, target, wanted) in [
            ("web.example:80", "WEB.example:80", named),
            ("web.example:80", "web.example:81", None),
            ("web.example:*", "web.example:81", named),
            ("web.example:*", "a.web.example:81", None),
            ("*:443", "web.example:443", other),
            ("*:443", "web.example:80", None),
            ("*.example:*", "web.example:80", other),
            ("*.example:*", "a.web.example:80", other),
            ("*.example:*", "example:80", None),
            ("*.example:*", "webexample:80", None),
            ("*:*", "10.0.0.1:1", other),
            ("[::1]:80", "[0::1]:80", Some(Reach::Everywhere)),
            ("listen=80", "127.0.0.1:80", None),
        ] {
            assert_eq!(reach(&[rule], target), wanted, "{rule} {target}");
        }
        assert_eq!(reach(&[], "web:80"), None);
    }

    #[test]
    fn wildcards_do_not_cover_this_host() {
        for target in ["127.0.0.1:80", "localhost:80", "a.localhost:80", "[::1]:80", "0.0.0.0:80", "169.254.169.254:80"]
        {
            assert_eq!(reach(&["*:*", "*:80"], target), None, "{target}");
        }
        assert_eq!(reach(&["*:*"], "[::ffff:127.0.0.1]:80"), None);
        assert_eq!(reach(&["*.localhost:*"], "a.localhost:80"), None);
        assert_eq!(reach(&["*:*", "localhost:*"], "localhost:80"), Some(Reach::Everywhere));
        assert_eq!(reach(&["127.0.0.1:*"], "127.0.0.1:80"), Some(Reach::Everywhere));
        assert_eq!(reach(&["127.0.0.1:*"], "localhost:80"), None);
    }

    #[test]
    fn ports_are_opened_only_on_the_named_address() {
        let listens = |rule: &str, address: &str| allowed(&[rule]).listen(address.parse().unwrap()).is_ok();
        assert!(listens("listen=8080", "127.0.0.1:8080") && listens("listen=localhost:8080", "127.0.0.1:8080"));
        assert!(!listens("listen=8080", "0.0.0.0:8080") && !listens("listen=8080", "[::1]:8080"));
        assert!(!listens("listen=8080", "127.0.0.1:8081") && !listens("listen=8080", "127.0.0.1:0"));
        assert!(listens("listen=*", "127.0.0.1:0") && !listens("listen=*", "10.0.0.1:1"));
        assert!(listens("listen=*:80", "0.0.0.0:80") && listens("listen=[::]:*", "[::]:1"));
        assert!(!listens("*:*", "127.0.0.1:8080"), "a wildcard for targets opens no port");
        let says = allowed(&[]).listen("0.0.0.0:80".parse().unwrap()).unwrap_err().to_string();
        assert!(says.contains("listen=0.0.0.0:80"), "{says}");
    }

    #[test]
    fn rules_are_written_as_they_are_read_and_others_are_refused() {
        for text in
            ["web:80", "*:*", "*.example.com:443", "[::1]:*", "listen=127.0.0.1:*", "listen=[::]:8080", "listen=*:1"]
        {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        for text in [
            "web",
            "*",
            "w*b:80",
            "*web:80",
            "*.:80",
            "*.*:80",
            "*.0.0.1:80",
            "web:0",
            "web:**",
            ":*",
            "*:65536",
            "listen=",
            "listen=web:80",
            "listen=0",
            "listen=1:2:3",
            "listen:*:80",
        ] {
            let error = text.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("HOST:PORT"), "{error}");
        }
    }
}
