//! Runs `tidewire serve`, `tidewire-lab link` and `forward` as processes, and opens TCP connections through
//! them.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::super::emulator::{Emulator, INTERRUPTED};
use super::super::goodput::cell::LINK_OPTIONS;
use super::super::process::{Line, Process};

/// The processes between the applications.
pub struct Stage {
    /// The target of the forwarding, in this process.
    target: TcpListener,
    /// The address on which `forward` listens.
    local: String,
    server: Process,
    emulator: Emulator,
    client: Process,
}

impl Stage {
    /// Starts all three processes. Packets from the client are lost as `loss` says.
    pub fn start(binary: &Path, loss: &str, seed: u64, deadline: Instant) -> Result<Self, String> {
        let problem = |error: std::io::Error| format!("cannot open a local port: {error}");
        let target = TcpListener::bind("127.0.0.1:0").map_err(problem)?;
        let allowed = target.local_addr().map_err(problem)?.to_string();
        let mut serve = Command::new(binary);
        serve.args(["serve", "--json", "--listen", "127.0.0.1:0", "--allow", &allowed]);
        let mut server = Process::start("the server", &mut serve)?;
        let link = server.wait_for("link", deadline)?.text("/link")?.to_owned();
        let seed = seed.to_string();
        let arguments = [&LINK_OPTIONS[..], &["--seed", &seed, "--loss", loss]].concat();
        let (emulator, link) = Emulator::start(binary, &arguments, &link, deadline)?;

        let mut forward = Command::new(binary);
        forward.args(["forward", "--json", "-L", &format!("0:{allowed}"), &link]);
        let mut client = Process::start("the client", &mut forward)?;
        let local = client.wait_for("listening", deadline)?.text("/listening")?.to_owned();
        Ok(Self { target, local, server, emulator, client })
    }

    /// Opens a TCP connection through them. Returns the end at the client and the end at the target.
    pub fn connect(&self) -> Result<(TcpStream, TcpStream), String> {
        let problem = |error: std::io::Error| format!("a TCP connection through the forwarding: {error}");
        let near = TcpStream::connect(&self.local).map_err(problem)?;
        let (far, _) = self.target.accept().map_err(problem)?;
        // A record must leave when it is made.
        near.set_nodelay(true).map_err(problem)?;
        Ok((near, far))
    }

    /// Ends all three processes, and returns the lines of the link.
    pub fn end(self, deadline: Instant) -> Result<Vec<Line>, String> {
        for process in [self.client, self.server] {
            process.interrupt()?;
            process.finish(INTERRUPTED, deadline)?;
        }
        self.emulator.end(deadline)
    }
}
