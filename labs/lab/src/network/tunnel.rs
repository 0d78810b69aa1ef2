//! The tunnels of a network: `tidewire tunnel up` at both ends of each, and what the ends said at last.
//!
//! `tidewire-lab run` starts them before the flows, and `tidewire-lab up` beside the nodes. The ends of
//! tunnel number n (from 0) have the addresses 1 and 2 of the n-th part of `10.98.0.0/16`, and the device
//! `tunnel` and n + 1. Invariant: both ends have ended when this value is dropped.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tidewire_sim::network::{DROPS, Plan, TunnelEnd, TunnelPlan, TunnelReport};

use crate::nodes::Nodes;

/// The network that the tunnels' networks are parts of (RFC 1918 section 3). The links have 10.99.0.0/16.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 0);
/// Prefix length of a tunnel's network, which has two addresses (RFC 1878), and the number of its addresses.
const PREFIX: u8 = 30;
const PER_TUNNEL: u32 = 4;
/// Most tunnels: as many as `10.98.0.0/16` has networks.
const MOST_TUNNELS: usize = 1 << 14;
/// Longest time until an end says what is waited for, and until it ends. Chosen: a handshake over a path that
/// loses half of all packets takes less.
const PATIENCE: Duration = Duration::from_secs(20);
/// The exit code of an end that ran until it was asked to stop.
const INTERRUPTED: i32 = 130;

/// The running tunnels of a plan.
#[derive(Debug)]
pub struct Tunnels(Vec<Tunnel>);

/// A running tunnel.
#[derive(Debug)]
struct Tunnel {
    name: String,
    nodes: [usize; 2],
    names: [String; 2],
    addresses: [Ipv4Addr; 2],
    ends: [End; 2],
}

impl Tunnels {
    /// Starts both ends of each tunnel and waits until they are connected. The emulator has to run.
    ///
    /// # Errors
    /// Fails if an end cannot be started, or ends early.
    pub fn start(nodes: &Nodes, plan: &Plan, program: &Path) -> anyhow::Result<Self> {
        if plan.tunnels.len() > MOST_TUNNELS {
            bail!("the lab has at most {MOST_TUNNELS} tunnels, and this network {}", plan.tunnels.len());
        }
        let start = |(number, tunnel): (usize, &TunnelPlan)| {
            Tunnel::start(nodes, number, tunnel, plan, program).with_context(|| format!("tunnel {}", tunnel.name))
        };
        plan.tunnels.iter().enumerate().map(start).collect::<anyhow::Result<_>>().map(Self)
    }

    /// The address of a node in a tunnel that ends there.
    pub fn address(&self, tunnel: usize, node: usize) -> Ipv4Addr {
        let Tunnel { nodes, addresses, .. } = &self.0[tunnel];
        addresses[usize::from(nodes[1] == node)]
    }

    /// A sentence for each tunnel: its ends and their addresses.
    pub fn describe(&self) -> impl Iterator<Item = String> {
        let sentence = |Tunnel { name, names: [from, to], addresses: [one, other], .. }: &Tunnel| {
            format!("tunnel {name}: {one} at {from}, {other} at {to}")
        };
        self.0.iter().map(sentence)
    }

    /// Ends all, and returns what they did.
    ///
    /// # Errors
    /// Fails if an end failed, or did not end in time.
    pub fn end(self) -> anyhow::Result<Vec<TunnelReport>> {
        self.0.into_iter().map(Tunnel::end).collect()
    }
}

impl Tunnel {
    fn start(nodes: &Nodes, number: usize, plan: &TunnelPlan, whole: &Plan, program: &Path) -> anyhow::Result<Self> {
        let base = NETWORK.to_bits() + PER_TUNNEL * u32::try_from(number)?;
        let addresses = [Ipv4Addr::from_bits(base + 1), Ipv4Addr::from_bits(base + 2)];
        let interface = format!("tunnel{}", number + 1);
        let settings = plan.settings.iter().map(|(key, text)| format!("--{}={text}", key.replace('_', "-")));
        let settings: Vec<_> = settings.collect();
        let start = |node: usize, own: Ipv4Addr, more: &[&str], link: Option<&str>| {
            let mut command = nodes.command(node, program);
            command.args(["tunnel", "up", "--json", "--interface", &interface]);
            command.args(["--address", &format!("{own}/{PREFIX}")]).args(more).args(&settings);
            // Our program uses defaults, whatever this user has configured. Nobody else sees the link.
            command.env("TIDEWIRE_CONFIG", "/dev/null").env_remove("TIDEWIRE_LINK");
            command.envs(link.map(|link| ("TIDEWIRE_LINK", link)));
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            End::start(command.spawn().context("cannot run `ip`: install iproute2")?)
        };
        let listen = format!("{}:0", nodes.address(plan.to));
        let mut far = start(plan.to, addresses[1], &["--listen", &listen], None)?;
        let link = far.wait_for("link")?["link"].as_str().context("the listener printed no link")?.to_owned();
        let mut near = start(plan.from, addresses[0], &[], Some(&link))?;
        near.wait_for("connected")?;
        let nodes = [plan.from, plan.to];
        let names = nodes.map(|node| whole.topology.nodes[node].name.clone());
        Ok(Self { name: plan.name.clone(), nodes, names, addresses, ends: [near, far] })
    }

    fn end(self) -> anyhow::Result<TunnelReport> {
        let Self { name, names: [from, to], ends: [near, far], .. } = self;
        // Both are asked before one is waited for: else the last state of the other has no connection.
        let ends = near.interrupt().and_then(|()| far.interrupt());
        ends.with_context(|| format!("tunnel {name}"))?;
        let end = |end: End, at: &str| end.report().with_context(|| format!("tunnel {name} at {at}"));
        let ends = [end(near, &from)?, end(far, &to)?];
        Ok(TunnelReport { name, from, to, ends, errors: Vec::new() })
    }
}

/// The process at one end.
#[derive(Debug)]
struct End {
    child: Child,
    said: Receiver<Value>,
    /// The last event, for errors.
    last: Value,
}

impl End {
    fn start(mut child: Child) -> anyhow::Result<Self> {
        let printed = child.stdout.take().context("its output is not ours")?;
        let (tell, said) = channel();
        // Reads all the time, so that a full pipe never stops the program.
        std::thread::spawn(move || {
            for line in BufReader::new(printed).lines().map_while(Result::ok) {
                let _ = tell.send(serde_json::from_str(&line).unwrap_or(Value::String(line)));
            }
        });
        Ok(Self { child, said, last: Value::Null })
    }

    /// Reads until the event `name`.
    fn wait_for(&mut self, name: &str) -> anyhow::Result<Value> {
        let end = Instant::now() + PATIENCE;
        while let Some(event) = self.next(end)? {
            if event["event"] == name {
                return Ok(event);
            }
        }
        bail!("an end ended early; it said {}", self.last)
    }

    /// The next event; `None` after the last.
    fn next(&mut self, end: Instant) -> anyhow::Result<Option<Value>> {
        match self.said.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(event) => {
                self.last = event.clone();
                Ok(Some(event))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                bail!("an end took longer than {} s; it said {}", PATIENCE.as_secs(), self.last)
            }
        }
    }

    fn interrupt(&self) -> anyhow::Result<()> {
        // `ip netns exec` becomes the program that it runs, so this is the tunnel itself.
        let stopped = kill_process(Pid::from_child(&self.child), Signal::TERM);
        stopped.with_context(|| format!("cannot stop an end, which said {}", self.last))
    }

    /// Waits for its end, and returns what it did.
    fn report(mut self) -> anyhow::Result<TunnelEnd> {
        let (patience, mut events) = (Instant::now() + PATIENCE, Vec::new());
        while let Some(event) = self.next(patience)? {
            events.push(event);
        }
        let ended = self.child.wait()?;
        if ended.code() != Some(INTERRUPTED) {
            bail!("it ended with {ended}; it said {}", self.last);
        }
        Ok(report_of(&events))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an end did, from its events (`docs/json.md`): the last state, and the summary of each connection.
fn report_of(events: &[Value]) -> TunnelEnd {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let mut end = TunnelEnd::default();
    for event in events.iter().filter(|event| event["event"] == "state") {
        let (peer, packets) = (&event["peers"][0], &event["packets"]);
        if let Some(rtt) = peer["rtt_ms"].as_f64() {
            end.rtt = Some(Duration::from_secs_f64(rtt / 1e3));
        }
        end.loss = peer["loss"].as_f64().or(end.loss);
        end.sent = ["packets", "bytes"].map(|key| count(&packets["sent"][key]));
        end.received = ["packets", "bytes"].map(|key| count(&packets["received"][key]));
        end.marked = count(&packets["marked"]);
        end.dropped = DROPS.map(|reason| count(&packets["dropped"][reason]));
    }
    for event in events.iter().filter(|event| event["event"] == "summary") {
        let packets = &event["packets"];
        end.source += count(&packets["source"]);
        end.repair += count(&packets["repair"]);
        end.feedback_repair += count(&packets["feedback_repair"]);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_state_counts_and_the_packets_of_all_connections() {
        let state = |rtt: &str, sent: u64| {
            format!(
                r#"{{"event":"state","peers":[{{"rtt_ms":{rtt},"loss":0.05}}],"packets":{{"sent":{{"packets":{sent},"bytes":90}},
                "received":{{"packets":2,"bytes":7}},"marked":3,"dropped":{{"malformed":0,"late":4,"expired":5}}}}}}"#
            )
        };
        let summary = r#"{"event":"summary","packets":{"source":10,"repair":2,"feedback_repair":1}}"#;
        let lines = [state("60.5", 1), summary.to_owned(), state("null", 9), summary.to_owned()];
        let events: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let end = report_of(&events);
        assert_eq!((end.rtt, end.loss), (Some(Duration::from_micros(60_500)), Some(0.05)), "the last known");
        assert_eq!((end.sent, end.received, end.marked), ([9, 90], [2, 7], 3));
        assert_eq!((end.source, end.repair, end.feedback_repair), (20, 4, 2));
        assert_eq!(end.dropped, [0, 0, 0, 0, 0, 4, 0, 5]);
    }
}
