//! `kill -9` of either end of the tunnel and an immediate restart: how long a flow inside stands still.

use super::stage::{Side, Stage, longest_silence};
use super::{add_row, number};
use crate::context::Context;
use std::path::Path;
use std::time::Duration;

/// Two hosts; the link of the first measurement.
const NETWORK: &str = "seed = 1\n[[node]]\nname = \"near\"\n[[node]]\nname = \"far\"\n[[link]]\nfrom = \"near\"\nto = \"far\"\nrtt = \"10ms\"\nloss = \"2%\"\n";
/// Repetitions: usual and full.
const RUNS: [usize; 2] = [4, 12];
/// A flow that writes a hundred times a second; its length covers the longest silence that was measured.
const FLOW: [&str; 6] = ["-b", "1M", "-l", "1200", "-t", "12"];
/// What the server counts by: the least that iperf3 takes, in seconds.
const INTERVAL: &str = "0.1";
/// When the end is killed.
const SETTLED: Duration = Duration::from_secs(2);
const PORT: u16 = 5_201;

/// Measures both ends. There is no goal.
pub fn measure(_: &Context, binary: &Path, full: bool) -> Result<(String, bool), String> {
    let mut text = String::new();
    add_row(&mut text, "| end | a flow went on after, each run |");
    add_row(&mut text, "| --- | --- |");
    for (side, name) in [(Side::Near, "the end with the link"), (Side::Far, "the listener")] {
        let mut stage = Stage::start(binary, NETWORK)?;
        stage.connect()?;
        let mut silences = Vec::new();
        for _ in 0..RUNS[usize::from(full)] {
            let iperf = stage.iperf(PORT, INTERVAL, &FLOW)?;
            std::thread::sleep(SETTLED);
            stage.restart(side)?;
            let counted = iperf.finish()?;
            let intervals = counted["intervals"].as_array().ok_or("iperf3 counted no intervals")?;
            let sum = |key: &'static str| move |interval: &serde_json::Value| number(&interval["sum"][key]);
            let pairs = intervals.iter().map(|interval| (sum("bytes")(interval), sum("seconds")(interval)));
            silences.push(format!("{:.1}", longest_silence(pairs)));
        }
        stage.end()?;
        add_row(&mut text, &format!("| {name} | {} s |", silences.join(", ")));
    }
    Ok((text, true))
}
