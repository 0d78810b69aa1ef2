//! Finds the link of a verb that connects, an argument, a file (`@FILE`) or `TIDEWIRE_LINK`, and the
//! addresses of its host.
//!
//! The verbs that connect call it once. Invariant: no error contains the secret of a link, or any part of a
//! text that might be one.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use tidewire::link::Link;
use tidewire_command::exit::{Exit, Failure};

/// Environment variable that holds the link if the command line has none.
pub const LINK_VARIABLE: &str = "TIDEWIRE_LINK";

/// Parses a link, or the link in the file after `@`: its first line that is neither empty nor a comment.
///
/// # Errors
/// The file cannot be read, or the text is not a link.
pub fn from_argument(argument: &str) -> anyhow::Result<Link> {
    match argument.strip_prefix('@') {
        Some(file) => {
            let (number, line) = first_line(Path::new(file))?;
            line.parse::<Link>().with_context(|| format!("{file}:{number}"))
        }
        None => Ok(argument.parse()?),
    }
}

/// Parses the link of the command line, or else the link in [`LINK_VARIABLE`].
///
/// # Errors
/// The errors of [`from_argument`], or no link at all.
pub fn given(argument: Option<&str>) -> anyhow::Result<Link> {
    match (argument, std::env::var(LINK_VARIABLE)) {
        (Some(argument), _) => from_argument(argument),
        (None, Ok(text)) => from_argument(&text).context(LINK_VARIABLE),
        (None, Err(_)) => {
            anyhow::bail!(
                "no link is given: write the link that the other side printed (tidewire://...), write @FILE, or set {LINK_VARIABLE}"
            )
        }
    }
}

/// Whether an argument is a link rather than a path.
pub fn is_link(argument: &str) -> bool {
    argument.starts_with("tidewire://") || argument.starts_with('@')
}

/// Why a connection cannot even be tried now, as before the network is up.
#[derive(Debug, thiserror::Error)]
enum NotReady {
    /// The host of a link has no address, or the resolver does not find one.
    #[error("{why}; check the host in {link}")]
    Unresolved { why: String, link: &'static str },
    /// This machine cannot send there.
    #[error("no route leads to {0}: connect this machine to the network, or check the host in the link")]
    NoRoute(SocketAddr),
}

/// The addresses of the host of `link`, at least one, in the order in which to try them. `name` says which
/// link that is.
///
/// # Errors
/// [`Exit::Unreachable`] if the name has no address; see [`is_not_ready`].
pub async fn addresses(link: &Link, name: &'static str) -> Result<Vec<SocketAddr>, Failure> {
    let unresolved = |why: String| Failure::new(Exit::Unreachable, NotReady::Unresolved { why, link: name });
    match link.resolve().await {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        Ok(_) => Err(unresolved(format!("`{}` has no address", link.host))),
        Err(error) => Err(unresolved(format!("cannot find an address of `{}`: {error}", link.host))),
    }
}

/// This machine has no route to an address; see [`is_not_ready`].
pub fn no_route(address: SocketAddr) -> Failure {
    Failure::new(Exit::Unreachable, NotReady::NoRoute(address))
}

/// Whether the only fault is that a name cannot be resolved, or that there is no route, as before the network
/// is up.
pub fn is_not_ready(failure: &Failure) -> bool {
    failure.error.as_ref().is_some_and(|error| error.is::<NotReady>())
}

/// The first line of a file that says something, and its number. Editors may put a byte order mark before it.
fn first_line(path: &Path) -> anyhow::Result<(usize, String)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut lines = text.lines().map(str::trim).zip(1..);
    let says = lines.find(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let (line, number) = says.with_context(|| format!("`{}` contains no link", path.display()))?;
    Ok((number, line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_link_may_have_a_byte_order_mark_comments_and_empty_lines() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("link");
        let link = format!("tidewire://192.0.2.1:7700/#{}", tidewire::new_secret().unwrap().reveal().as_str());
        let read = |text: String| {
            std::fs::write(&file, text).unwrap();
            from_argument(&format!("@{}", file.display()))
        };
        for text in
            [format!("{link}\n"), format!("\u{feff}{link}\r\n"), format!("# of the office\n\n  {link}  \nmore\n")]
        {
            assert_eq!(read(text.clone()).unwrap().host, "192.0.2.1", "{text:?}");
        }
        assert!(format!("{:#}", read("# nothing\n".to_owned()).unwrap_err()).contains("contains no link"));
        let wrong = format!("{:#}", read("\n\nidewire://x\n".to_owned()).unwrap_err());
        assert!(wrong.contains("link:3"), "{wrong}");
    }
}
