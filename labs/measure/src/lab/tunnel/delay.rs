//! The in-order delay of records at half of the link's rate, through the tunnel and through
//! `tidewire forward`.
//!
//! The inner connection is TCP, because `forward` carries TCP too: a reader of either gets every record, in
//! order. UDP in the tunnel is measured beside it, and shows which part is the tunnel's own: a record that
//! the tunnel gives up has no delay there.

use super::super::{lines, with_scenario};
use super::{LINK, LOSSES, add_row, event, flow, number, pairs, run_network};
use crate::context::{Context, lab_of};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The tunnel may add this to the delay of `forward`, in milliseconds, at p50 and p99.
const ADDED_MS: f64 = 2.0;
/// One-way time of the link in milliseconds, which no delay contains.
const ONE_WAY_MS: f64 = 30.0;
/// Time of each run. Start-up counts, as in `figures forward`; a hundredth of the records is 0.24 s of it.
const SECONDS: u32 = 24;
/// Half of the link's rate in records of 1,200 bytes.
const LOAD: &str = "rate = \"12.5mbit\"\nrecord = \"1200B\"";
const QUANTILES: [&str; 3] = ["p50", "p95", "p99"];

/// Measures each loss, which is toward the reader only, as in `figures forward`.
pub fn measure(_: &Context, binary: &Path, _: bool) -> Result<(String, bool), String> {
    let mut text = String::new();
    add_row(
        &mut text,
        "| loss | forward p50 / p95 / p99 ms | TCP through the tunnel | | UDP through the tunnel | not arrived |",
    );
    add_row(&mut text, "| --- | --- | --- | --- | --- | --- |");
    let mut holds = true;
    for (title, loss, _) in LOSSES {
        let forward = forward(binary, loss)?;
        let [tcp, udp] = [("tcp", true), ("udp", true)];
        let scenario = [
            format!("seed = 1\ntime = \"{SECONDS}s\"\n"),
            pairs(&format!("{LINK}forward.loss = \"{loss}\"\n"), &[tcp, udp]),
            flow("tcp", "cubic", tcp, LOAD),
            flow("udp", "udp", udp, LOAD),
        ];
        let events = run_network(binary, &scenario.concat())?;
        let (tcp, udp) = (event(&events, "network_flow", "tcp")?, event(&events, "network_flow", "udp")?);
        let delays = |flow: &Value| quantiles(&flow["latency_ms"]).map(|ms| ms - ONE_WAY_MS);
        let missing = 1.0 - number(&udp["bytes"]) / (1_200.0 * number(&udp["packets"]));
        let held = [0, 2].iter().all(|&n| delays(tcp)[n] <= forward[n] + ADDED_MS);
        let verdict = if held { "ok" } else { "**MISSED**" };
        add_row(
            &mut text,
            &format!(
                "| {title} | {} | {} | <= forward + {ADDED_MS}: {verdict} | {} | {:.2} % |",
                shown(forward),
                shown(delays(tcp)),
                shown(delays(udp)),
                100.0 * missing
            ),
        );
        holds &= held;
    }
    Ok((text, holds))
}

/// The delays of records through `tidewire forward` over the same link.
fn forward(binary: &Path, loss: &str) -> Result<[f64; 3], String> {
    let scenario = format!("seed = 1\n[link]\n{LINK}[forward]\nloss = \"{loss}\"\n");
    let runs = with_scenario(&scenario, |path| {
        let mut command = Command::new(lab_of(binary));
        command.args(["run", "--json", "--peer", "tidewire", "--load", "50%"]);
        lines(command.args(["--time", &format!("{SECONDS}s")]).arg(path), "peer_run")
    })?;
    let run = runs.first().ok_or("the lab printed no peer_run")?;
    Ok(quantiles(&run["delay_ms"]))
}

fn quantiles(delay: &Value) -> [f64; 3] {
    QUANTILES.map(|quantile| number(&delay[quantile]))
}

fn shown(delays: [f64; 3]) -> String {
    delays.map(|ms| format!("{ms:.1}")).join(" / ")
}
