//! `--metrics` as Debian's Prometheus reads it, with the rules and the dashboard of `packaging`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::{Running, lossy_link, tidewire};
use crate::{needs, repository, schema};

/// How long to wait for a program on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Status line, headers and body of the answer to a request.
fn ask(address: &str, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn get(address: &str, path: &str) -> Option<String> {
    ask(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"))
}

/// A server of `bench` with `--metrics`: the process, HOST:PORT of its figures, and its link.
fn server() -> (Running, String, String) {
    let arguments = ["bench", "-s", "--json", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut server = Running::start(&arguments);
    let url = server.wait_for("metrics")["url"].as_str().unwrap().to_owned();
    let link = server.wait_for("link")["link"].as_str().unwrap().to_owned();
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics")).unwrap().to_owned();
    (server, address, link)
}

fn measure(link: &str, time: &str) -> Value {
    let client = tidewire(&["bench", "--json", "-c", link, "-b", "4mbit", "-t", time]).output().unwrap();
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    schema::lines(&client.stdout).pop().unwrap()
}

/// The value of a series in OpenMetrics text.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_figures_of_a_receiver_are_those_of_its_summary() {
    let (mut server, address, link) = server();
    let (_proxy, lossy) = lossy_link(&link, &["--rate", "25mbit", "--rtt", "20ms", "--loss", "5%"]);
    measure(&lossy, "1s");
    let summary = server.wait_for("summary");
    // The connection has ended, and the figures follow within a batch.
    let begun = Instant::now();
    let text = loop {
        let answer = get(&address, "/metrics").unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("200 OK") && head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
        if value(body, "tidewire_connections") == 0.0 || begun.elapsed() > PATIENCE {
            break body.to_owned();
        }
    };
    let symbols = &summary["symbols"];
    let passed = |kind: &str| value(&text, &format!("tidewire_symbols_passed_total{{kind=\"{kind}\"}}"));
    let delivered = symbols["delivered"].as_f64().unwrap();
    let all: f64 = ["direct", "repaired", "resent"].into_iter().map(passed).sum();
    // The last words of the peer come after the summary.
    assert!((delivered..=delivered + 3.0).contains(&all), "{all}: {symbols}");
    assert!((passed("repaired") - symbols["repaired"].as_f64().unwrap()).abs() <= 3.0, "{symbols}");
    assert!(delivered > 300.0 && symbols["repaired"].as_f64().unwrap() > 0.0, "{symbols}");
    assert_eq!(value(&text, "tidewire_in_order_delay_seconds_count"), all);
    let mean = value(&text, "tidewire_in_order_delay_seconds_sum") / all * 1_000.0;
    let wanted = summary["delay_ms"]["mean"].as_f64().unwrap();
    assert!((mean - wanted).abs() <= 0.1 + 0.05 * wanted, "{mean} and {wanted} ms");
    assert_eq!(value(&text, "tidewire_connections_opened_total"), 1.0);
    assert_eq!(value(&text, "tidewire_events_missed_total"), 0.0);
}

#[test]
fn a_port_that_is_taken_ends_with_2_before_the_job_begins() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for arguments in [
        &["bench", "-s", "--listen", "127.0.0.1:0", "--metrics", &address][..],
        &["bench", "-c", "tidewire://127.0.0.1:9/#tws1aaaa", "--metrics", "nowhere"],
    ] {
        let output = tidewire(arguments).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}");
    }
    let output = tidewire(&["bench", "-s", "--listen", "127.0.0.1:0", "--metrics", &address]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&format!("cannot listen on --metrics {address}; choose another port")), "{said}");
}

#[test]
fn hostile_clients_are_refused_and_the_job_goes_on() {
    let (_server, address, link) = server();
    let rebound = ask(&address, "GET /metrics HTTP/1.0\r\nHost: evil.example\r\n\r\n").unwrap();
    assert!(rebound.contains("403 Forbidden") && !rebound.contains("tidewire_"), "{rebound}");
    assert!(ask(&address, "GET /metrics HTTP/1.0\r\n\r\n").unwrap().contains("403 Forbidden"));
    assert!(get(&address, "/other").unwrap().contains("404 Not Found"));
    assert!(
        ask(&address, &format!("GET /{} HTTP/1.0\r\n\r\n", "a".repeat(1 << 20)))
            .is_none_or(|said| !said.contains("200 OK"))
    );
    // More clients than there are places, none of which asks for anything.
    let crowd: Vec<_> = (0..100).filter_map(|_| TcpStream::connect(&address).ok()).collect();
    assert!(crowd.len() > 16);
    assert!(measure(&link, "500ms")["bytes"].as_u64().unwrap() >= 250_000);
    drop(crowd);
    assert!(get(&address, "/metrics").unwrap().contains("tidewire_connections_opened_total 1\n"));
}

#[test]
fn top_shows_the_figures_of_a_job() {
    let (_server, address, _) = server();
    let output = tidewire(&["top", &address, "--once", "--interval", "100ms"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(&format!("tidewire bench {} at {address}", env!("CARGO_PKG_VERSION"))), "{text}");
    assert!(text.contains("0 of 0 connections are open"), "{text}");
    let output = tidewire(&["top", "127.0.0.1:9", "--once"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(3) && said.contains("no job answers at 127.0.0.1:9"), "{said}");
    // Its output here is no terminal.
    assert_eq!(tidewire(&["top", &address]).output().unwrap().status.code(), Some(2));
}

#[test]
#[ignore = "needs prometheus"]
fn the_rules_hold_their_tests() {
    needs("promtool");
    let folder = repository("packaging/prometheus");
    let output =
        Command::new("promtool").args(["test", "rules", "tidewire.rules.test.yml"]).current_dir(folder).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A running Prometheus that is killed at the end, and HOST:PORT of it.
fn prometheus(folder: &std::path::Path, target: &str) -> (Running, String) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let rules = repository("packaging/prometheus/tidewire.rules.yml");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [\"{rules}\"]\nscrape_configs:\n  \
         - {{job_name: tidewire, static_configs: [{{targets: [\"{target}\"]}}]}}\n"
    );
    let path = folder.join("prometheus.yml");
    fs::write(&path, config).unwrap();
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", path.display()));
    command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
    command.arg(format!("--web.listen-address={address}"));
    (Running::spawn_with_errors(&mut command, Stdio::null()), address)
}

/// The result of a query, or why there is none.
fn query(address: &str, expression: &str) -> Option<Value> {
    let escaped: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let answer = get(address, &format!("/api/v1/query?query={escaped}"))?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

#[test]
#[ignore = "needs prometheus"]
fn prometheus_scrapes_a_job_and_evaluates_rules_and_dashboard() {
    needs("prometheus");
    let folder = tempfile::tempdir().unwrap();
    let (_server, target, link) = server();
    let (_prometheus, address) = prometheus(folder.path(), &target);
    // Prometheus begins to scrape some seconds after its start, and the state of a connection is there only
    // while it is open.
    let begun = Instant::now();
    while query(&address, "up").is_none_or(|up| up["data"]["result"][0]["value"][1] != "1") {
        assert!(begun.elapsed() < PATIENCE, "Prometheus does not scrape");
        std::thread::yield_now();
    }
    let (_proxy, lossy) = lossy_link(&link, &["--rate", "25mbit", "--rtt", "20ms", "--loss", "5%"]);
    let delivered = measure(&lossy, "3s")["records"]["delivered"].as_f64().unwrap();
    let begun = Instant::now();
    let series = loop {
        let found = query(&address, "tidewire_in_order_delay_seconds_count");
        let value =
            found.as_ref().and_then(|found| found["data"]["result"][0]["value"][1].as_str()?.parse::<f64>().ok());
        // A symbol is about as long as a record.
        if value.is_some_and(|value| value >= 0.8 * delivered) {
            break found.unwrap();
        }
        assert!(begun.elapsed() < PATIENCE, "{found:?}");
        std::thread::yield_now();
    };
    assert_eq!(series["data"]["result"][0]["metric"]["job"], "tidewire");
    // Prometheus knows types and units of what it scraped.
    let metadata = get(&address, "/api/v1/targets/metadata?metric=tidewire_in_order_delay_seconds").unwrap();
    assert!(metadata.contains("\"type\":\"histogram\"") && metadata.contains("\"unit\":\"seconds\""), "{metadata}");
    let rules: Value =
        serde_json::from_str(get(&address, "/api/v1/rules").unwrap().split_once("\r\n\r\n").unwrap().1).unwrap();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() == 8 && rules.iter().all(|rule| rule["health"] == "ok"), "{rules:?}");

    let names = get(&address, "/api/v1/label/__name__/values").unwrap();
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(repository("packaging/grafana/tidewire.json")).unwrap()).unwrap();
    let mut seen = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let names = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
            seen.extend(names.filter(|name| name.starts_with("tidewire_")).map(str::to_owned));
            let plain = expression.replace("$__rate_interval", "30s").replace("$job", ".*").replace("$instance", ".*");
            let result = query(&address, &plain).unwrap();
            assert_eq!(result["status"], "success", "{plain}: {result}");
        }
    }
    for name in seen {
        assert!(names.contains(&format!("\"{name}\"")), "Prometheus has no {name}: {names}");
    }
}
