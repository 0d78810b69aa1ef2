//! Measures `tidewire tunnel up` over links of the lab: what the kernel's TCP inside gets, and what it
//! survives. `docs/tunnel.md` section 4 keeps the tables.
//!
//! These are parts of `cargo measure lab`; the word `tunnel` chooses all of them. Flows with figures of their
//! own are those of `tidewire-lab run`. Where an end of the tunnel is killed or the path changes, a `Stage`
//! keeps the processes, and iperf3 makes the flows. Invariant: a part fails if one of its programs does.

pub mod crowd;
pub mod delay;
pub mod kill;
pub mod share;
mod stage;

use super::{lines, with_scenario};
use crate::context::lab_of;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Losses of the tables, and the share of the packets that is lost. The goals are stated for these.
const LOSSES: [(&str, &str, f64); 5] = [
    ("0 %", "none", 0.0),
    ("2 %", "2%", 0.02),
    ("5 %", "5%", 0.05),
    ("10 %", "10%", 0.10),
    ("5 % in runs of 4", "gilbert:5%,4", 0.05),
];
/// The link of the tables, without its losses: that of all goals.
const LINK: &str = "rate = \"25mbit\"\nrtt = \"60ms\"\n";
/// The rate of [`LINK`] in bits per second.
const RATE_BPS: f64 = 25e6;

/// Pairs of nodes with a link each, and a tunnel over the link of those that have one.
fn pairs(link: &str, pairs: &[(&str, bool)]) -> String {
    let pair = |&(name, has_tunnel): &(&str, bool)| {
        let ends = format!("from = \"{name}-near\"\nto = \"{name}-far\"\n");
        let nodes = ["near", "far"].map(|end| format!("[[node]]\nname = \"{name}-{end}\"\n")).concat();
        let tunnel = format!("[[tunnel]]\nname = \"{name}\"\n{ends}");
        (format!("{nodes}[[link]]\n{ends}{link}"), if has_tunnel { tunnel } else { String::new() })
    };
    let (links, tunnels): (Vec<_>, Vec<_>) = pairs.iter().map(pair).unzip();
    format!("{}{}", links.concat(), tunnels.concat())
}

/// A flow of a pair. `rest` are its further keys.
fn flow(name: &str, kind: &str, pair: (&str, bool), rest: &str) -> String {
    let through = if pair.1 { format!("through = \"{}\"\n", pair.0) } else { String::new() };
    let ends = format!("from = \"{0}-near\"\nto = \"{0}-far\"\n", pair.0);
    format!("[[flow]]\nname = \"{name}\"\nkind = \"{kind}\"\n{ends}{through}{rest}\n")
}

/// Runs a network in the lab, and returns its events.
fn run_network(binary: &Path, scenario: &str) -> Result<Vec<Value>, String> {
    with_scenario(scenario, |path| lines(Command::new(lab_of(binary)).args(["run", "--json"]).arg(path), ""))
}

/// The event of this name about the flow or tunnel of this name.
fn event<'a>(events: &'a [Value], event: &str, name: &str) -> Result<&'a Value, String> {
    let found = events.iter().find(|line| line["event"] == event && line["name"] == name);
    found.ok_or_else(|| format!("the lab printed no {event} of {name}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Prints a row as it comes, and adds it to the table.
fn add_row(text: &mut String, row: &str) {
    println!("{row}");
    *text += &format!("{row}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_pairs_has_a_tunnel_where_it_is_wanted() {
        let text = pairs("loss = \"1%\"\n", &[("t", true), ("u", false)]);
        let count = |what: &str| text.matches(what).count();
        assert_eq!([count("[[node]]"), count("[[link]]"), count("[[tunnel]]"), count("loss = \"1%\"")], [4, 2, 1, 2]);
        assert!(text.ends_with("[[tunnel]]\nname = \"t\"\nfrom = \"t-near\"\nto = \"t-far\"\n"), "{text}");
        assert!(flow("f", "udp", ("t", true), "rate = \"1mbit\"").contains("through = \"t\"\nrate"));
        assert!(!flow("f", "udp", ("u", false), "").contains("through"));
    }
}
