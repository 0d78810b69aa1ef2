//! Hosts as scp and rsync write them: `[user@]host` and `[user@]host:PATH`.
//!
//! `send` parses its last argument, `forward` its only one. Invariant: a text that may be a mistyped link is
//! refused and never repeated, because ssh would show it in its command line.

use std::fmt;
use std::net::Ipv6Addr;

/// What every link contains, and no host does.
const LINK_MARKS: [&str; 3] = ["://", "tws1", "#"];

/// A host that ssh reaches: `host` or `user@host`, without brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(String);

/// Why a text is no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// It may be a link with a secret.
    #[error("this looks like a mistyped link: a link begins with tidewire:// and ends with #tws1... or #twp1...")]
    Link,
    /// ssh would take it for an option, or it contains what no host has. The text.
    #[error("`{0}` is neither a link (tidewire://...), nor @FILE, nor a host for ssh, as in user@host.example")]
    Wrong(String),
}

impl Host {
    /// Parses `[user@]host`. An IPv6 address may have brackets.
    ///
    /// # Errors
    /// See `HostError`.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if LINK_MARKS.iter().any(|mark| text.contains(mark)) {
            return Err(HostError::Link);
        }
        let wrong = || HostError::Wrong(text.to_owned());
        let (user, host) = match text.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, text),
        };
        let (host, bracketed) = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
            Some(inner) => (inner.ok_or_else(wrong)?, true),
            None => (host, false),
        };
        let ordinary = |c: char| !c.is_whitespace() && !c.is_control() && !"/[]'\"\\$`;&|<>".contains(c);
        let fits = |part: &str| !part.is_empty() && !part.starts_with('-') && part.chars().all(ordinary);
        // A zone, as in fe80::1%eth0, is part of the address for ssh.
        let is_v6 = host.split('%').next().is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        let is_whole = is_v6 || !(bracketed || host.contains(':'));
        if !fits(host) || !user.is_none_or(fits) || !is_whole {
            return Err(wrong());
        }
        Ok(Self(user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"))))
    }

    /// Parses `[user@]host:PATH`. `None` if it is the path of a file of this machine, because no colon comes
    /// before the first slash.
    ///
    /// # Errors
    /// See `HostError`.
    pub fn with_path(text: &str) -> Result<Option<(Self, String)>, HostError> {
        let begins_bracket = |open: usize| text.get(..open).is_some_and(|user| user.is_empty() || user.ends_with('@'));
        let colon = match text.find('[').filter(|open| begins_bracket(*open)) {
            Some(_) => text.find("]:").map(|end| end.saturating_add(1)),
            None => text.find(':'),
        };
        let Some((host, path)) = colon.and_then(|at| Some((text.get(..at)?, text.get(at..)?.strip_prefix(':')?)))
        else {
            return Ok(None);
        };
        if host.is_empty() || host.contains('/') {
            return Ok(None);
        }
        if LINK_MARKS[..2].iter().any(|mark| text.contains(mark)) {
            return Err(HostError::Link);
        }
        Ok(Some((Self::parse(host)?, path.to_owned())))
    }

    /// The name or address, without the user.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('@').map_or(&self.0, |(_, host)| host)
    }

    /// What ssh is given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Quotes a path for the shell of the far host. A `~` or `~user` before the first slash keeps its meaning.
/// Without a path, it is the folder in which ssh begins.
pub fn quote_path(path: &str) -> Result<String, shlex::QuoteError> {
    if path.is_empty() {
        return Ok(".".into());
    }
    let (head, rest) = path.split_once('/').map_or((path, None), |(head, rest)| (head, Some(rest)));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if head.strip_prefix('~').is_some_and(|user| user.chars().all(plain)) {
        return match rest {
            None | Some("") => Ok(format!("{head}/")),
            Some(rest) => Ok(format!("{head}/{}", shlex::try_quote(rest)?)),
        };
    }
    // An option begins with a hyphen, a path does not have to.
    let path = if path.starts_with('-') { format!("./{path}") } else { path.to_owned() };
    Ok(shlex::try_quote(&path)?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_argument_is_read_as_scp_and_rsync_read_it() {
        let parse = |text: &str| Host::with_path(text).unwrap().map(|(host, path)| (host.0, path));
        let is = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(parse("host:dir"), is("host", "dir"));
        assert_eq!(parse("ann@host:/srv/a:b"), is("ann@host", "/srv/a:b"));
        assert_eq!(parse("host:"), is("host", ""));
        assert_eq!(parse("[2001:db8::1]:x"), is("2001:db8::1", "x"));
        assert_eq!(parse("ann@[2001:db8::1]:x y"), is("ann@2001:db8::1", "x y"));
        assert_eq!(parse("host:a#b"), is("host", "a#b"));
        for local in ["file", "./a:b", "/a:b", "dir/a:b", ":x"] {
            assert_eq!(parse(local), None, "{local}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused_and_a_secret_is_not_repeated() {
        for text in ["idewire://h:1/#tws1abcdef", "h#tws1abcdef", "h:/#tws1abcdef", "Tidewire://h/#x"] {
            let error = Host::with_path(text).map(drop).and(Host::parse(text).map(drop)).unwrap_err();
            assert_eq!(error, HostError::Link, "{text}");
            assert!(!error.to_string().contains("abcdef"));
        }
        for text in ["-oProxyCommand=x", "-x:y", "a b:c", "u@-x:y", "$(x):y", "u@:x", "[::1:x]"] {
            assert!(matches!(Host::parse(text.split(":y").next().unwrap()), Err(HostError::Wrong(_))), "{text}");
        }
        assert!(Host::with_path("-oProxyCommand=x:y").is_err());
        assert_eq!(Host::parse("ann@[::1]").unwrap().name(), "::1");
        assert_eq!(Host::parse("ann@::1").unwrap().as_str(), "ann@::1");
    }

    #[test]
    fn paths_are_quoted_for_a_shell_and_keep_the_home() {
        for (path, quoted) in [
            ("", "."),
            ("~", "~/"),
            ("~/", "~/"),
            ("~/a b", "~/'a b'"),
            ("~ann/x", "~ann/x"),
            ("~$x/y", "'~$x/y'"),
            ("a'b", "\"a'b\""),
            ("-x", "./-x"),
        ] {
            assert_eq!(quote_path(path).unwrap(), quoted, "{path}");
        }
        assert!(quote_path("a\0b").is_err());
    }
}
