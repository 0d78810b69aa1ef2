//! Compares peers: each carries the same records over the same links, one after the other. Each table is one
//! run of `tidewire-lab run --peer`.
//!
//! This is a part of `cargo measure lab`. It has no goals: the tables show which peer is ahead of us, and in
//! which figure.

use super::with_scenario;
use crate::context::{self, Context, lab_of};
use std::path::Path;
use std::process::{Command, Stdio};

/// The link of all tables, except its loss. It is the link of row L1 of `figures delay`.
const LINK: &str = "seed = 1\n[link]\nrate = \"25mbit\"\nrtt = \"60ms\"\n[forward]\n";
/// Losses and their titles. The usual run measures those marked `true`.
const LOSSES: [(&str, &str, bool); 8] = [
    ("none", "no loss", false),
    ("1%", "iid 1 %", true),
    ("2%", "iid 2 %", false),
    ("5%", "iid 5 %", false),
    ("10%", "iid 10 %", true),
    ("20%", "iid 20 %", false),
    ("gilbert:5%,4", "Gilbert 5 %, mean burst 4", false),
    ("gilbert:10%,4", "Gilbert 10 %, mean burst 4", true),
];
/// The loss whose distributions are drawn.
const DRAWN: &str = "gilbert:10%,4";
/// The peers of the usual run.
const USUAL: &str = "tidewire,tcp-cubic,tcp-bbr,quinn-bbr,kcptun-fast3,srt-live";
/// The peers of the full run.
const ALL: &str = "tidewire,tcp-cubic,tcp-bbr,tcp-reno,quinn-cubic,quinn-bbr,kcptun-default,kcptun-fast3,\
                   srt-live,srt-live-fec,srt-live-4rtt,srt-live-4rtt-fec";
/// The peers that the full run also measures with a saturating load: all except those that carry datagrams.
const SATURATING: &str =
    "tidewire,tcp-cubic,tcp-bbr,tcp-reno,quinn-cubic,quinn-bbr,kcptun-default,kcptun-fast3,iperf3-bbr";

/// Measures all tables.
pub fn measure(context: &Context, binary: &Path, full: bool) -> Result<(String, bool), String> {
    let adapters = context.target.join("bench");
    let mut build = context.command("cargo build --release --manifest-path bench/Cargo.toml --bin tidewire-quinn");
    context::run(build.arg("--target-dir").arg(&adapters))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(adapters.join("release")).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).map_err(|e| e.to_string())?;
    let picture = context.root.join("docs/lab-peers.svg");
    let mut text = String::new();
    for (loss, title, _) in LOSSES.iter().filter(|(.., usual)| full || *usual) {
        let (peers, time, seeds) = if full { (ALL, "15s", "3") } else { (USUAL, "12s", "1") };
        let mut loads = vec![("50%", peers)];
        loads.extend(full.then_some(("full", SATURATING)));
        for (load, peers) in loads {
            let arguments = ["--peer", peers, "--load", load, "--time", time, "--seeds", seeds];
            let table = with_scenario(&format!("{LINK}loss = \"{loss}\"\n"), |scenario| {
                let mut command = Command::new(lab_of(binary));
                command.args(["run"]).arg(scenario).args(arguments).env("PATH", &path);
                if *loss == DRAWN && load != "full" {
                    command.arg("--svg").arg(&picture);
                }
                output(&mut command)
            })?;
            let load = if load == "full" { "saturating" } else { "half load" };
            let command = format!("`tidewire-lab run link.toml {}`\n\n", arguments.join(" "));
            // The tables of one load differ by the loss alone.
            let command = if text.contains(&command) { "" } else { &command };
            text += &format!("### {title}, {load}\n\n{command}{table}\n");
        }
    }
    Ok((text, true))
}

/// Runs a command and returns what it printed to standard output.
fn output(command: &mut Command) -> Result<String, String> {
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} ended with {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|e| e.to_string())
}
