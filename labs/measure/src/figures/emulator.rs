//! Runs `tidewire-lab link` as a process: the emulated link between the two ends that are measured.

use crate::context::lab_of;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::process::{Line, Process};

/// The exit code of a verb that ran until it was asked to stop.
pub const INTERRUPTED: i32 = 130;

/// A running link.
pub struct Emulator(Process);

impl Emulator {
    /// Starts the emulator in front of the listener that printed `link`. Returns it with the link that leads
    /// through it.
    pub fn start(binary: &Path, arguments: &[&str], link: &str, deadline: Instant) -> Result<(Self, String), String> {
        let target = host(link).ok_or_else(|| format!("the listener printed no link: {link}"))?;
        let (emulator, listening) = Self::before(binary, arguments, target, deadline)?;
        Ok((emulator, link.replacen(target, &listening, 1)))
    }

    /// Starts the emulator in front of a UDP socket. Returns it with the address that leads through it.
    pub fn before(
        binary: &Path,
        arguments: &[&str],
        target: &str,
        deadline: Instant,
    ) -> Result<(Self, String), String> {
        let mut lab = Command::new(lab_of(binary));
        lab.args(["link", "--json", "--listen", "127.0.0.1:0", "--to", target]).args(arguments);
        let mut process = Process::start("the link", &mut lab)?;
        let listening = process.wait_for("listening", deadline)?.text("/listening")?.to_owned();
        Ok((Self(process), listening))
    }

    /// Stops it, and returns every line it printed.
    pub fn end(self, deadline: Instant) -> Result<Vec<Line>, String> {
        self.0.interrupt()?;
        self.0.finish(INTERRUPTED, deadline)
    }
}

/// `HOST:PORT` of a link.
fn host(link: &str) -> Option<&str> {
    Some(link.strip_prefix("tidewire://")?.split_once('/')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_link_stands_before_the_secret() {
        assert_eq!(host("tidewire://127.0.0.1:7711/#tws1abc"), Some("127.0.0.1:7711"));
        assert_eq!(host("http://127.0.0.1/"), None);
    }
}
