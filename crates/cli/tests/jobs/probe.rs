//! `probe` between real processes: its figures agree with the settings of the link.

use serde_json::Value;

use crate::process::{Running, lossy_link, tidewire};
use crate::schema;

/// The time that a test measures. Half of it has too few runs of losses to estimate their length.
fn time() -> &'static str {
    if tidewire_testing::few_seeds() { "5s" } else { "12s" }
}

fn server() -> (Running, String) {
    let mut server = Running::start(&["bench", "-s", "--json", "--listen", "127.0.0.1:0"]);
    let link = server.line()["link"].as_str().unwrap().to_owned();
    (server, link)
}

/// Returns the exit code and the lines of a probe.
fn probe(link: &str, arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = tidewire(&[&["probe", "--json", link], arguments].concat()).output().unwrap();
    (output.status.code(), schema::lines(&output.stdout))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn phase<'a>(lines: &'a [Value], name: &str) -> &'a Value {
    lines.iter().find(|line| line["event"] == "phase" && line["name"] == name).unwrap_or_else(|| panic!("{lines:?}"))
}

fn subjects(lines: &[Value]) -> Vec<&str> {
    let advice = lines.iter().filter(|line| line["event"] == "advice");
    advice.map(|line| line["subject"].as_str().unwrap()).collect()
}

#[test]
#[ignore = "slow: waits in real time"]
fn losses_in_bursts_are_found_as_they_are() {
    let (_server, direct) = server();
    let (_proxy, link) = lossy_link(&direct, &["--rate", "25mbit", "--rtt", "40ms", "--loss", "gilbert:10%,4"]);
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("probe.svg");
    let target = ["--latency", "5ms", "--deliver", "99.9%", "--max-overhead", "10%", "--rate", "4mbit"];
    let (code, lines) = probe(&link, &[&["--time", time(), "--svg", svg.to_str().unwrap()], &target[..]].concat());
    assert_eq!(code, Some(8), "the target cannot be met: {lines:?}");
    for name in ["light", "full"] {
        let phase = phase(&lines, name);
        let (packets, burst) = (number(&phase["packets"]), number(&phase["bursts"]["mean"]));
        // Losses in runs of 4 count as a seventh of as many independent losses.
        let sigma = (0.1 * 0.9 * 7.0 / packets).sqrt();
        assert!((number(&phase["loss"]) - 0.1).abs() < 4.0 * sigma, "{phase}");
        let runs: u64 = phase["bursts"]["runs"].as_array().unwrap().iter().map(|runs| runs.as_u64().unwrap()).sum();
        // The lengths of runs are geometric, with a standard deviation of sqrt(4 * 3).
        assert!((burst - 4.0).abs() < 4.0 * (12.0 / runs as f64).sqrt(), "{phase}");
        let [low, high] = [0, 1].map(|end| number(&phase["loss_interval"][end]));
        assert!(low < number(&phase["loss"]) && number(&phase["loss"]) < high);
        assert!(number(&phase["rtt_ms"]["min"]) >= 40.0 && number(&phase["rate_bps"]) < 26e6, "{phase}");
        assert_eq!(phase["reordering"]["depth"], 0);
    }
    let point = |name: &str| lines.iter().find(|line| line["event"] == "prediction" && line["name"] == name).unwrap();
    assert!(number(&point("asking")["p99_ms"]) > 40.0 && number(&point("code")["overhead"]) > 0.05);
    let subjects = subjects(&lines);
    assert!(subjects.contains(&"bursts") && subjects.contains(&"tcp_starves"), "{subjects:?}");
    assert_eq!(subjects.last(), Some(&"infeasible"));
    assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
    assert!(lines.iter().any(|line| line["event"] == "probing"));
    assert_eq!(lines.last().unwrap()["event"], "summary");
}

#[test]
#[ignore = "slow: waits in real time"]
fn on_a_clean_path_plain_tcp_is_advised_and_its_size_and_order_are_found() {
    let (_server, direct) = server();
    let settings = ["--rate", "10mbit", "--rtt", "20ms", "--mtu", "1400B", "--reorder", "2%,3ms"];
    let (_proxy, link) = lossy_link(&direct, &settings);
    let (code, lines) = probe(&link, &["--time", "4s"]);
    assert_eq!(code, Some(0), "{lines:?}");
    let subjects = subjects(&lines);
    assert!(subjects.contains(&"plain_tcp"), "{lines:?}");
    let full = phase(&lines, "full");
    assert!((1_360..=1_400).contains(&full["packet_bytes"].as_u64().unwrap()), "{full}");
    let late = &full["reordering"];
    let share = number(&late["packets"]) / number(&late["of"]);
    assert!((0.003..0.04).contains(&share) && number(&late["depth"]) >= 1.0, "{full}");
}

#[test]
#[ignore = "slow: waits in real time"]
fn a_policer_is_named_with_its_rate_and_bucket() {
    let (_server, direct) = server();
    let (_proxy, link) = lossy_link(&direct, &["--rate", "50mbit", "--rtt", "20ms", "--police", "5mbit:50kB"]);
    // A busy host delays packets behind their times of sending, and one probe in 25 beside two busy loops
    // does not tell the policer from random losses. In virtual time, `police::tests` hold the exact figures.
    let named = (0..4).find_map(|_| {
        let (code, lines) = probe(&link, &["--time", "10s"]);
        assert_eq!(code, Some(0), "{lines:?}");
        subjects(&lines).contains(&"policed").then_some(lines)
    });
    let lines = named.expect("one of four probes names the policer");
    let policer = lines.iter().find(|line| line["event"] == "policer").unwrap();
    assert!((4.25e6..5.75e6).contains(&number(&policer["rate_bps"])), "{policer}");
    assert!((33_000.0..75_000.0).contains(&number(&policer["bucket_bytes"])), "{policer}");
    let full = phase(&lines, "full");
    assert!(number(&full["rate_control"]["dropped_packets"]) > 100.0 && number(&full["loss"]) < 0.1, "{full}");
}

#[test]
fn what_cannot_be_probed_is_said() {
    let said = |arguments: &[&str], code: i32, text: &str| {
        let output = tidewire(&[&["probe"], arguments].concat()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && stderr.contains(text), "{arguments:?}: {stderr}");
    };
    let mut serve = Running::start(&["serve", "--json", "--listen", "127.0.0.1:0", "--allow", "localhost:9"]);
    let link = serve.line()["link"].as_str().unwrap().to_owned();
    said(&[&link], 1, "tidewire bench -s");
    said(&[&link, "--time", "1s"], 2, "from 2s to 1h");
    said(&[&link, "--time", "20"], 2, "has no unit");
    said(&[&link, "--rate", "4"], 2, "25mbit");
    said(&[], 2, "TIDEWIRE_LINK");
}
