//! Two hundred TCP flows through the tunnel, while an address translator on the path rebinds.

use super::stage::{Stage, longest_silence};
use super::{add_row, number};
use crate::context::Context;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// Flows of each of two runs of iperf3, which takes at most 128 (`MAX_STREAMS`).
const FLOWS: usize = 100;
const PORTS: [u16; 2] = [5_201, 5_202];
/// 200 flows of this rate are half of the link.
const RATE: &str = "60K";
/// Length of the run, and time between two rebindings, in seconds: usual and full.
const TIMES: [(u64, u64); 2] = [(120, 20), (600, 60)];
/// A flow without a byte in the last seconds of a run is broken.
const LAST_SECONDS: usize = 5;
/// The node that translates, and its outer addresses, in turn.
const TRANSLATOR: usize = 1;
const OUTER: [&str; 2] = ["10.99.0.5", "10.97.0.9"];

/// A host, a translator, and a host behind the link.
const NETWORK: &str = r#"seed = 1
[[node]]
name = "near"
[[node]]
name = "r"
role = "router"
[[node]]
name = "far"
[[link]]
from = "near"
to = "r"
[[link]]
from = "r"
to = "far"
rate = "25mbit"
rtt = "60ms"
loss = "2%"
"#;

/// Measures one run.
pub fn measure(_: &Context, binary: &Path, full: bool) -> Result<(String, bool), String> {
    let (seconds, every) = TIMES[usize::from(full)];
    let mut stage = Stage::start(binary, NETWORK)?;
    // The connecting end is behind the translator from the beginning: a packet to its own address would make
    // a connection of the translator that hides the rebinding.
    rebind(&stage, 0)?;
    stage.connect()?;
    let arguments = ["-P", &FLOWS.to_string(), "-b", RATE, "-l", "1200", "-t", &seconds.to_string()];
    let runs: Result<Vec<_>, _> = PORTS.into_iter().map(|port| stage.iperf(port, "1", &arguments)).collect();
    let begun = Instant::now();
    let rebindings = (seconds - 1) / every;
    for index in 1..=rebindings {
        std::thread::sleep((begun + Duration::from_secs(index * every)).saturating_duration_since(Instant::now()));
        rebind(&stage, index)?;
        println!("rebinding {index} of {rebindings} after {:.0} s", begun.elapsed().as_secs_f64());
    }
    let counted: Result<Vec<_>, _> = runs?.into_iter().map(super::stage::Iperf::finish).collect();
    let flows: Vec<_> = counted?.iter().flat_map(flows).collect();
    let (lost, moves) = stage.end()?;
    let silences = || flows.iter().map(|flow| longest_silence(flow.iter().copied()));
    let is_broken = |flow: &&Vec<(f64, f64)>| flow.iter().rev().take(LAST_SECONDS).all(|(bytes, _)| *bytes == 0.0);
    let broken = flows.iter().filter(is_broken).count() + (PORTS.len() * FLOWS).saturating_sub(flows.len());
    let longest = silences().fold(0.0, f64::max);
    let goodput = flows.iter().flatten().map(|(bytes, _)| 8.0 * bytes).sum::<f64>() / seconds as f64 / 1e6;
    let holds = broken == 0 && moves == rebindings as f64;
    let verdict = if holds { "ok" } else { "**MISSED**" };
    let mut text = String::new();
    add_row(
        &mut text,
        "| flows | seconds | rebindings | broken | longest silence of a flow | moves seen | connections lost | Mbit/s |",
    );
    add_row(&mut text, "| --- | --- | --- | --- | --- | --- | --- | --- |");
    add_row(
        &mut text,
        &format!(
            "| {} | {seconds} | {rebindings} | {broken} {verdict} | {longest:.0} s | {moves} | {lost} | {goodput:.1} |",
            flows.len()
        ),
    );
    Ok((text, holds))
}

/// Makes binding number `index`: other ports each time, another outer address every second time. The
/// translator tracks connections in another zone, so it forgets the earlier bindings.
fn rebind(stage: &Stage, index: u64) -> Result<(), String> {
    let (outer, ports) = (OUTER[index as usize / 2 % OUTER.len()], 20_000 + 1_000 * index);
    let rules = format!(
        "flush ruleset
         table ip nat {{
             chain zone {{ type filter hook prerouting priority raw; ct zone set {}; }}
             chain out {{
                 type nat hook postrouting priority srcnat
                 ip daddr {} meta l4proto udp snat to {outer}:{ports}-{}
             }}
         }}",
        index + 1,
        stage.address(2),
        ports + 999
    );
    stage.nft(TRANSLATOR, &rules)
}

/// Bytes and length of each interval of each flow.
fn flows(counted: &Value) -> Vec<Vec<(f64, f64)>> {
    let mut flows: Vec<(u64, Vec<_>)> = Vec::new();
    for interval in counted["intervals"].as_array().into_iter().flatten() {
        for stream in interval["streams"].as_array().into_iter().flatten() {
            let socket = stream["socket"].as_u64().unwrap_or_default();
            let entry = (number(&stream["bytes"]), number(&stream["seconds"]));
            match flows.iter_mut().find(|(known, _)| *known == socket) {
                Some((_, entries)) => entries.push(entry),
                None => flows.push((socket, vec![entry])),
            }
        }
    }
    flows.into_iter().map(|(_, entries)| entries).collect()
}
