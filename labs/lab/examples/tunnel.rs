//! Measures the round trip that a tunnel adds, beside loads, and how much one TCP flow carries through it.
//!
//! `cargo measure lab tunnel-added` runs it as root and keeps its table in `docs/tunnel.md`. Arguments: the
//! command `tidewire`, and the seconds of each load. The hosts are joined by a `veth` pair, because an
//! emulator would take the processors that both ends of the tunnel share. A figure that misses its goal is
//! marked, and then the exit code is 8.

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tidewire_figures::{ascending, quantile};
use tidewire_lab::hosts::Hosts;
use tidewire_sim::pair::End;

/// What iperf3 sends through the tunnel, and how the table calls it.
const LOADS: [(&str, Option<&str>); 4] = [
    ("nothing", None),
    ("TCP at 300 Mbit/s", Some("300M")),
    ("TCP at 600 Mbit/s", Some("600M")),
    ("TCP as fast as it goes", Some("0")),
];
/// The tunnel may add this to p50 and p99, in milliseconds.
const ADDED_MS: [f64; 2] = [1.0, 3.0];
/// What one flow has to reach, in Mbit/s, and what is hoped for.
const LEAST_MBPS: f64 = 300.0;
const HOPED_MBPS: f64 = 600.0;
/// Time between two probes. They go directly and through the tunnel by turns.
const STEP: Duration = Duration::from_millis(3);
/// A probe without an answer for so long is lost. Chosen: far above any goal.
const LOST: Duration = Duration::from_secs(1);
/// Longest time for a program to start.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time before a load counts: slow start, and the search of the tunnel's rate control.
const SETTLING: Duration = Duration::from_secs(2);
/// The hosts' addresses on the pair and in the tunnel, near and far. Chosen: unlike those of the lab.
const OUTER: [&str; 2] = ["10.96.0.1", "10.96.0.2"];
const INNER: [&str; 2] = ["10.77.0.2", "10.77.0.1"];
const ECHO_PORT: u16 = 9_000;
const IPERF_PORT: &str = "5201";

fn main() -> anyhow::Result<ExitCode> {
    let program = PathBuf::from(std::env::args().nth(1).context("name the command tidewire")?);
    let seconds: u64 = std::env::args().nth(2).map_or(Ok(10), |text| text.parse())?;
    let hosts = Hosts::start()?;
    join(&hosts)?;
    let _tunnel = tunnel(&hosts, &program)?;
    let echo = hosts.inside(End::Far, || UdpSocket::bind(("0.0.0.0", ECHO_PORT)))??;
    std::thread::spawn(move || answer(&echo));
    println!("| beside | Mbit/s | | directly p50, p99 ms | through the tunnel p50, p99 ms | added p50, p99 ms | |");
    println!("| --- | ---: | --- | --- | --- | --- | --- |");
    let mut holds = true;
    for (name, rate) in LOADS {
        let load = rate.map(|rate| Load::start(&hosts, rate, seconds)).transpose()?;
        if load.is_some() {
            std::thread::sleep(SETTLING);
        }
        let [direct, inner] = probe(&hosts, Duration::from_secs(seconds))?;
        let mbps = load.map(Load::finish).transpose()?;
        let added = [0, 1].map(|n| inner[n] - direct[n]);
        let held = added.iter().zip(ADDED_MS).all(|(added, most)| *added < most);
        let reached = match (rate, mbps) {
            (Some("0"), Some(mbps)) if mbps >= HOPED_MBPS => "ok, and >= 600",
            (Some("0"), Some(mbps)) if mbps >= LEAST_MBPS => "ok",
            (Some("0"), _) => "**MISSED**",
            _ => "",
        };
        holds &= held && reached != "**MISSED**";
        println!(
            "| {name} | {} | {reached} | {:.2}, {:.2} | {:.2}, {:.2} | {:.2}, {:.2} | {} |",
            mbps.map_or_else(String::new, |mbps| format!("{mbps:.0}")),
            direct[0],
            direct[1],
            inner[0],
            inner[1],
            added[0],
            added[1],
            if held { "ok" } else { "**MISSED**" },
        );
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(8) })
}

/// Joins the hosts by a pair of devices. The lab's own link stays without an emulator.
fn join(hosts: &Hosts) -> anyhow::Result<()> {
    let [near, far] = [End::Near, End::Far].map(|end| hosts.name(end));
    ip(&["-n", near, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", far])?;
    for (host, address) in [near, far].into_iter().zip(OUTER) {
        ip(&["-n", host, "address", "add", &format!("{address}/30"), "dev", "wire"])?;
        ip(&["-n", host, "link", "set", "wire", "up"])?;
    }
    Ok(())
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let ended = Command::new("ip").args(arguments).status().context("cannot run `ip`: install iproute2")?;
    ensure!(ended.success(), "ip {arguments:?} ended with {ended}");
    Ok(())
}

/// A child that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts both ends of the tunnel.
fn tunnel(hosts: &Hosts, program: &Path) -> anyhow::Result<[Running; 2]> {
    let start = |end: End, address: &str, more: &[&str], link: &str, event: &str| {
        let mut command = hosts.command(end, program);
        command.args(["tunnel", "up", "--json", "--address", &format!("{address}/24")]).args(more);
        command.env("TIDEWIRE_CONFIG", "/dev/null").env("TIDEWIRE_LINK", link);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut printed = BufReader::new(child.stdout.take().context("its output is not ours")?).lines();
        let running = Running(child);
        let found = loop {
            let line: Value = serde_json::from_str(&printed.next().context("an end of the tunnel ended")??)?;
            if line["event"] == event {
                break line;
            }
        };
        // The rest is read, so that a full pipe does not stop the program.
        std::thread::spawn(move || printed.map_while(Result::ok).for_each(drop));
        anyhow::Ok((running, found))
    };
    let listen = format!("{}:7700", OUTER[1]);
    let (far, said) = start(End::Far, INNER[1], &["--listen", &listen], "", "link")?;
    let link = said["link"].as_str().context("the listener printed no link")?;
    let (near, _) = start(End::Near, INNER[0], &[], link, "connected")?;
    Ok([near, far])
}

/// Sends each datagram back, for ever.
fn answer(socket: &UdpSocket) {
    let mut datagram = [0; 64];
    while let Ok((length, from)) = socket.recv_from(&mut datagram) {
        // A datagram that is not sent back is one that got lost.
        let _ = socket.send_to(&datagram[..length], from);
    }
}

/// The p50 and p99 of round trips in milliseconds, directly and through the tunnel.
fn probe(hosts: &Hosts, time: Duration) -> anyhow::Result<[[f64; 2]; 2]> {
    let socket = |to: &'static str| {
        let socket = hosts.inside(End::Near, || UdpSocket::bind("0.0.0.0:0"))??;
        socket.connect((to, ECHO_PORT))?;
        socket.set_read_timeout(Some(LOST))?;
        anyhow::Ok(socket)
    };
    let sockets = [socket(OUTER[1])?, socket(INNER[1])?];
    let (mut found, begun, mut number) = ([Vec::new(), Vec::new()], Instant::now(), 0_u32);
    while begun.elapsed() < time {
        number += 1;
        for (socket, found) in sockets.iter().zip(&mut found) {
            let (sent, mut answer) = (Instant::now(), [0; 64]);
            socket.send(&number.to_be_bytes())?;
            // Answers to earlier probes came too late. A probe that is lost counts as one that takes so long.
            while socket.recv(&mut answer).is_ok_and(|length| answer[..length] != number.to_be_bytes()) {}
            found.push(1e3 * sent.elapsed().as_secs_f64());
            std::thread::sleep(STEP);
        }
    }
    Ok(found.map(|found| {
        let found = ascending(found);
        [0.5, 0.99].map(|share| quantile(&found, share).unwrap_or(f64::NAN))
    }))
}

/// One flow of iperf3 through the tunnel.
struct Load {
    _server: Running,
    client: Running,
}

impl Load {
    /// Starts a flow of this rate, which outlives the probes.
    fn start(hosts: &Hosts, rate: &str, seconds: u64) -> anyhow::Result<Self> {
        let mut server = hosts.command(End::Far, "iperf3");
        server.args(["-s", "-1", "-B", INNER[1], "-p", IPERF_PORT]).stdin(Stdio::null());
        let server = Running(server.stdout(Stdio::null()).spawn().context("cannot run iperf3")?);
        let is_there = || {
            let look = hosts.command(End::Far, "ss").args(["-Hltn", &format!("sport = :{IPERF_PORT}")]).output();
            look.is_ok_and(|look| !look.stdout.is_empty())
        };
        let deadline = Instant::now() + PATIENCE;
        while !is_there() {
            ensure!(Instant::now() < deadline, "iperf3 does not listen");
            std::thread::sleep(STEP);
        }
        let time = (SETTLING.as_secs() + seconds + 1).to_string();
        let mut client = hosts.command(End::Near, "iperf3");
        // The machine's default control may be another one.
        client.args(["-c", INNER[1], "-p", IPERF_PORT, "-C", "cubic", "-b", rate, "-t", &time, "-J"]);
        let client = client.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot run iperf3")?;
        Ok(Self { _server: server, client: Running(client) })
    }

    /// Waits for its end. Returns what arrived, in Mbit/s.
    fn finish(mut self) -> anyhow::Result<f64> {
        let mut printed = String::new();
        self.client.0.stdout.take().context("its output is not ours")?.read_to_string(&mut printed)?;
        self.client.0.wait()?;
        let counted: Value = serde_json::from_str(&printed).context("iperf3 printed no JSON")?;
        match counted["end"]["sum_received"]["bits_per_second"].as_f64() {
            Some(bps) => Ok(bps / 1e6),
            None => bail!("iperf3 counted nothing: {}", counted["error"]),
        }
    }
}
