//! A flow of ours from the near host to the far one: server and client of `tidewire bench`, as a user would
//! run them.
//!
//! [`contest`](crate::contest) starts it beside flows of kernel TCP. The received bytes are read from the
//! lines that the client prints for each tenth of a second. Invariant: the processes end when the flow is
//! dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use tidewire_sim::pair::End;

use crate::hosts::Hosts;

/// Interval of the client's reports: the least that it accepts.
const INTERVAL: &str = "100ms";

/// A running flow.
#[derive(Debug)]
pub struct OurFlow {
    received: Arc<AtomicU64>,
    server: Child,
    client: Child,
    reader: Option<JoinHandle<()>>,
}

impl OurFlow {
    /// Starts a flow of duration `time` with the `tidewire` command in the file `program`. Both ends use the
    /// profile; all other options are the defaults.
    ///
    /// # Errors
    /// Fails if a process cannot be started or the server does not listen.
    pub fn start(hosts: &Hosts, program: &Path, profile: &str, time: Duration) -> anyhow::Result<Self> {
        let bench = |end, arguments: &[&str]| {
            let mut command = hosts.command(end, program);
            command.args(["bench", "--json", "--profile", profile]).args(arguments);
            // Use defaults, whatever this user has configured.
            command.env("TIDEWIRE_CONFIG", "/dev/null").env_remove("TIDEWIRE_LINK");
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot run tidewire bench")
        };
        let mut server = bench(End::Far, &["-s", "-1", "--listen", &format!("{}:0", hosts.address(End::Far))])?;
        let link = match link(&mut server) {
            Ok(link) => link,
            Err(error) => {
                end(&mut server);
                return Err(error);
            }
        };
        let seconds = format!("{}ms", time.as_millis());
        let mut client = bench(End::Near, &["-c", &link, "-t", &seconds, "-i", INTERVAL])?;
        let received = Arc::new(AtomicU64::new(0));
        let (lines, count) = (client.stdout.take(), Arc::clone(&received));
        let reader = lines.map(|lines| std::thread::spawn(move || add_up(lines, &count)));
        Ok(Self { received, server, client, reader })
    }

    /// Bytes that have arrived in order, a tenth of a second and a one-way time ago.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for OurFlow {
    fn drop(&mut self) {
        end(&mut self.client);
        end(&mut self.server);
        let _ = self.reader.take().map(JoinHandle::join);
    }
}

/// The link that a server prints first.
fn link(server: &mut Child) -> anyhow::Result<String> {
    let mut line = String::new();
    let stdout = server.stdout.as_mut().context("no output")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let line: Value = serde_json::from_str(&line).unwrap_or_default();
    match line["link"].as_str() {
        Some(link) => Ok(link.to_owned()),
        None => bail!("tidewire bench -s does not listen"),
    }
}

/// Adds up the bytes of all intervals until the client ends.
fn add_up(lines: ChildStdout, received: &AtomicU64) {
    for line in BufReader::new(lines).lines().map_while(Result::ok) {
        let line: Value = serde_json::from_str(&line).unwrap_or_default();
        if line["event"] == "interval" {
            received.fetch_add(line["bytes"].as_u64().unwrap_or_default(), Ordering::Relaxed);
        }
    }
}

fn end(process: &mut Child) {
    // It may have ended already.
    let _ = process.kill();
    let _ = process.wait();
}
