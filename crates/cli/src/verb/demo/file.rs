//! The second part of `demo`: one file over the full link, checked by its hash.
//!
//! On a full link every repair costs goodput, so delay is a matter of degree here.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tempfile::TempDir;
use tidewire::{Config, Connection};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::{self, Console, Role};
use tidewire_figures::chart::svg::Caption;

use super::{Ends, LINK_IN_WORDS, Measured};
use crate::session::{self, CLOSE_WAIT, DONE};
use crate::verb::send::{judge, send_over};
use tidewire_transfer::{self as transfer, Destination, Found, scan};

/// Bytes of the file when none is given: five seconds of the link.
const GENERATED: usize = 12_000_000;

/// What the picture says.
pub(super) fn caption() -> Caption<'static> {
    Caption {
        title: "A file that fills the link",
        conditions: LINK_IN_WORDS,
        what: "source symbols",
        see: "On a full link each repair costs goodput: the default repairs as much as that is worth.",
    }
}

/// The file and a folder for what arrives.
pub(super) struct Sent {
    scratch: TempDir,
    found: Found,
    hash: blake3::Hash,
}

impl Sent {
    /// Looks at the file, or makes one.
    pub(super) fn prepare(file: Option<&Path>) -> Result<Self, Failure> {
        let scratch = tempfile::Builder::new().prefix("tidewire-demo-").tempdir().or_exit(Exit::LocalIo)?;
        let file = match file {
            Some(file) => file.to_owned(),
            None => generate(scratch.path()).or_exit(Exit::LocalIo)?,
        };
        let found = scan(std::slice::from_ref(&file)).or_exit(Exit::Usage)?;
        if let Some(failure) = found.failures.first() {
            return Err(Failure::message(Exit::LocalIo, failure));
        }
        if found.files != 1 || found.sources.len() != 1 || found.bytes == 0 {
            return Err(Failure::message(Exit::Usage, "demo sends one file that is not empty: tidewire demo FILE"));
        }
        let hash = hash(&file).or_exit(Exit::LocalIo)?;
        Ok(Self { scratch, found, hash })
    }

    /// Its length.
    pub(super) fn in_words(&self) -> String {
        format!("a file of {}", indicatif::DecimalBytes(self.found.bytes))
    }

    /// One run over the link.
    pub(super) async fn send(&self, config: Config, name: &str, console: &Console) -> Result<Measured, Failure> {
        let into = tempfile::tempdir_in(self.scratch.path()).or_exit(Exit::LocalIo)?;
        let destination = Destination::open(into.path()).or_exit(Exit::LocalIo)?;
        let ends = Ends::start(config.clone()).await?;
        let begun = Instant::now();
        let receiver = async {
            let connection = ends.accept().await?;
            let stream = connection.accept().await.or_exit(Exit::Other)?;
            transfer::receive(stream, &destination, None, &|_| {}).await.or_exit(Exit::Other)?;
            let _ = tokio::time::timeout(CLOSE_WAIT, connection.closed()).await;
            Ok(connection)
        };
        let sender = async {
            let (near, connection) = ends.connect(config, console).await?;
            let outcome = send_over(&connection, &self.found, &|_| {}, console, name).await?;
            let elapsed = begun.elapsed();
            let stats = connection.stats();
            connection.close(DONE, "");
            session::close(&near).await;
            Ok((report::summary(&stats, Role::Sender, outcome.bytes, elapsed), outcome))
        };
        let (connection, (mut summary, outcome)): (Connection, _) = tokio::try_join!(receiver, sender)?;
        judge(&outcome)?;
        let stats = connection.stats();
        let received = report::summary(&stats, Role::Receiver, outcome.bytes, begun.elapsed());
        // Delay and ways of delivery are known where the data arrives.
        (summary.symbols, summary.delay_ms) = (received.symbols, received.delay_ms);
        ends.stop().await?;
        let arrived = into.path().join(self.found.sources[0].name.as_os_str());
        let hash_ok = hash(&arrived).is_ok_and(|arrived| arrived == self.hash);
        Ok(Measured { summary, curve: report::delays(&stats), hash_ok: Some(hash_ok) })
    }
}

/// Writes a file that no compression makes smaller: the output stream of a hash.
fn generate(folder: &Path) -> std::io::Result<PathBuf> {
    let path = folder.join("demo.bin");
    let mut bytes = vec![0; GENERATED];
    blake3::Hasher::new().update(b"tidewire demo").finalize_xof().fill(&mut bytes);
    std::fs::write(&path, bytes)?;
    Ok(path)
}

fn hash(path: &Path) -> std::io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(path)?)?;
    Ok(hasher.finalize())
}
