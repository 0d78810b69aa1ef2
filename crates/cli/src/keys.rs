//! Reads and writes files with secrets and keys: `--key FILE`, `--authorized-keys FILE` and the output of
//! `keygen`.
//!
//! The verbs that connect ([`Own`]) and [`crate::listen`] read them before a socket is opened. Invariant: no
//! error contains a secret or a private key, or any part of a text that might be one.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use tidewire::link::{Link, Peer};
use tidewire::{Credentials, KeyCredentials, PrivateKey, PublicKey, Secret, TextKind};

use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::Console;
use tidewire_transfer::is_damage;

/// The credentials option of the verbs that connect.
#[derive(Args, Clone, Debug)]
pub struct Own {
    /// File with your private key (see `keygen --pair`), for a link that ends with a public key
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// The prefix of the text tells which it is.
#[derive(Debug)]
pub enum KeyFile {
    /// A secret that both sides share (`tws1...`).
    Secret(Secret),
    /// The private key of this side (`twk1...`).
    Private(PrivateKey),
}

/// Returns the credentials that open `link`: its secret, or the private key in the file `key`.
///
/// # Errors
/// [`Exit::Usage`] if the link ends with a public key and `key` is missing, or if the file is wrong.
pub fn to_open(link: &Link, key: Option<&Path>, console: &Console) -> Result<Credentials, Failure> {
    match (&link.peer, key) {
        (Peer::Secret(secret), _) => Ok(Credentials::Psk(secret.clone())),
        (Peer::Key(_), Some(path)) => match read(path, console).or_exit(Exit::Usage)? {
            KeyFile::Private(private) => Ok(Credentials::Key(KeyCredentials::new(private))),
            KeyFile::Secret(_) => {
                let wanted = "holds a secret, and the link ends with a public key: give a private key";
                Err(Failure::message(Exit::Usage, format_args!("`{}` {wanted}", path.display())))
            }
        },
        (Peer::Key(_), None) => {
            let wanted = "the link ends with a public key: give the file of your private key with --key (tidewire keygen --pair -o FILE)";
            Err(Failure::message(Exit::Usage, wanted))
        }
    }
}

/// Reads the first line of a key file, and warns if other users can read or write the file.
///
/// # Errors
/// The file cannot be read, or holds neither a secret nor a private key.
pub fn read(path: &Path, console: &Console) -> anyhow::Result<KeyFile> {
    let text = text_of(path)?;
    let line = text.lines().next().unwrap_or_default().trim();
    let begins = |kind: TextKind| line.get(..4).is_some_and(|head| head.eq_ignore_ascii_case(kind.prefix()));
    let file = if begins(TextKind::PrivateKey) {
        line.parse().map(KeyFile::Private)
    } else if begins(TextKind::PublicKey) {
        bail!("`{}` holds a public key: give --key a file with a private key or a secret", path.display());
    } else {
        line.parse().map(KeyFile::Secret)
    };
    if let (Ok(_), Some(danger)) = (&file, danger(path)) {
        console.warn(&format!("`{}` holds a key and {danger}", path.display()));
    }
    file.with_context(|| format!("`{}` is not a key file; make one with `tidewire keygen`", path.display()))
}

/// Who else may read or replace a file, and what to do about it.
#[cfg(unix)]
fn danger(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok()?;
    let (mode, owner, path) = (metadata.mode() & 0o777, metadata.uid(), path.display());
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Some(format!(
            "belongs to another user (uid {owner}): chown it, or make a new one with `tidewire keygen`"
        ));
    }
    (mode & 0o066 != 0).then(|| format!("is open to others (mode {mode:04o}): chmod 600 '{path}'"))
}

#[cfg(not(unix))]
fn danger(_: &Path) -> Option<String> {
    None
}

/// Reads the public keys that may connect: one a line, optionally followed by a comment. Lines that begin
/// with `#` are comments.
///
/// # Errors
/// The file cannot be read, or the first wrong line as FILE:LINE.
pub fn read_authorized(path: &Path) -> anyhow::Result<BTreeSet<PublicKey>> {
    parse_authorized(&text_of(path)?, path)
}

fn parse_authorized(text: &str, path: &Path) -> anyhow::Result<BTreeSet<PublicKey>> {
    let mut keys = BTreeSet::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(word) = line.split_whitespace().next().filter(|word| !word.starts_with('#')) else { continue };
        let key = PublicKey::from_str(word).map_err(|wrong| anyhow!("{}:{number}: {wrong}", path.display()))?;
        if !keys.insert(key) {
            bail!("{}:{number}: this key is listed twice; remove one of the lines", path.display());
        }
    }
    Ok(keys)
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}

/// Writes a line into a new file that only its owner can read.
///
/// # Errors
/// The file exists or cannot be written.
pub fn write_private(path: &Path, line: &str) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    writeln!(file, "{line}")?;
    match file.sync_all() {
        // The file system has no such call. The line is written.
        Err(error) if !is_damage(&error) => Ok(()),
        flushed => flushed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    #[ignore = "needs root: gives a file to another user"]
    fn a_key_file_of_another_user_is_named() {
        tidewire_testing::needs("root", rustix::process::geteuid().is_root());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        write_private(&path, "key").unwrap();
        assert_eq!(danger(&path), None);
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        assert!(danger(&path).is_some_and(|text| text.starts_with("belongs to another user (uid 65534)")));
    }

    #[test]
    fn authorized_keys_have_comments_and_faults_a_place() {
        let keys: Vec<_> = (1..4).map(|n| PrivateKey::new([n; 32]).public()).collect();
        let parse = |text: &str| parse_authorized(text, Path::new("peers"));
        let text = format!("# who may come in\n\n{} ann\n  {}\tbob at work\n", keys[0], keys[1]);
        assert_eq!(parse(&text).unwrap(), BTreeSet::from([keys[0], keys[1]]));
        let wrong = |text: &str| parse(text).unwrap_err().to_string();
        let cut = keys[2].to_string()[..50].to_owned();
        assert!(wrong(&format!("{text}{cut} eve")).starts_with("peers:5: a public key has 56 letters"));
        assert!(wrong(&PrivateKey::new([1; 32]).reveal()).starts_with("peers:1: a public key begins"));
        assert!(wrong(&format!("{text}{}", keys[0])).starts_with("peers:5: this key is listed twice"));
    }
}
