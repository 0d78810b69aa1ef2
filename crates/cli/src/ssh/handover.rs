//! The line with which the far end hands its link over: what both ends speak, the far version, and the link.
//!
//! [`detach`](super::detach) writes it to the output of ssh, [`start`](super::start) finds it there among
//! what the far user's shell may print. Invariant: neither the text of an error nor `Debug` has the link.

use tidewire::link::Link;

/// What the line begins with. Chosen: no shell prints it by chance.
const MARK: &str = "TIDEWIRE-LINK ";

/// The verb that the far end runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarVerb {
    /// `tidewire receive`.
    Receive,
    /// `tidewire serve`.
    Serve,
}

impl FarVerb {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Serve => "serve",
        }
    }

    /// The versions of all protocols that both ends must share: of the packets and of the verb.
    fn speaks(self) -> String {
        let verb = match self {
            Self::Receive => tidewire_transfer::PROTOCOL,
            Self::Serve => tidewire_forward::PROTOCOL,
        };
        format!("{:08x}.{verb}", tidewire_proto::wire::VERSION)
    }
}

/// Why a line has no link that this end can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverError {
    /// The far end speaks other versions: its release, and the versions.
    #[error("tidewire {0} there speaks another protocol ({1}) than tidewire {here} here: install the same \
                 release on both machines", here = env!("CARGO_PKG_VERSION"))]
    Version(String, String),
    /// The line was cut short, or its link is wrong.
    #[error("tidewire there answered with a line that has no link: install the same release on both machines")]
    Malformed,
}

/// The line of a far end that runs `verb` behind `link`. It holds the secret.
pub fn write(verb: FarVerb, link: &Link) -> String {
    format!("{MARK}{} {} {}", verb.speaks(), env!("CARGO_PKG_VERSION"), link.reveal())
}

/// Reads a line of ssh's output. `None` if it is something else, such as the greeting of a shell, which may
/// also stand before the mark.
pub fn read(verb: FarVerb, line: &str) -> Option<Result<Link, HandoverError>> {
    let (_, handed) = line.split_once(MARK)?;
    let mut words = handed.split_whitespace();
    let (Some(speaks), Some(release), link) = (words.next(), words.next(), words.next()) else {
        return Some(Err(HandoverError::Malformed));
    };
    if speaks != verb.speaks() {
        return Some(Err(HandoverError::Version(release.to_owned(), speaks.to_owned())));
    }
    Some(link.and_then(|link| link.parse().ok()).ok_or(HandoverError::Malformed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_found_among_what_a_shell_prints() {
        let secret = tidewire::new_secret().unwrap();
        let link: Link = format!("tidewire://192.0.2.7:7700/#{}", *secret.reveal()).parse().unwrap();
        let line = write(FarVerb::Receive, &link);
        for line in [line.clone(), format!("Welcome!{line}\r\n")] {
            assert_eq!(read(FarVerb::Receive, &line), Some(Ok(link.clone())));
        }
        assert_eq!(read(FarVerb::Receive, "Welcome!"), None);
        assert_eq!(read(FarVerb::Receive, &line[..line.len() - 9]), Some(Err(HandoverError::Malformed)));
        assert_eq!(read(FarVerb::Receive, MARK), Some(Err(HandoverError::Malformed)));
    }

    #[test]
    fn another_version_is_named() {
        let line = "TIDEWIRE-LINK 54570009.1 9.9.9 something else";
        let error = read(FarVerb::Serve, line).unwrap().unwrap_err();
        let said = error.to_string();
        assert!(said.contains("9.9.9") && said.contains("54570009.1") && said.contains("same release"), "{said}");
        assert_ne!(FarVerb::Receive.speaks(), FarVerb::Serve.speaks());
    }
}
