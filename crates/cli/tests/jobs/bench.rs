//! `bench` at both ends: the figures that it prints agree with the link.

use serde_json::Value;

use crate::process::{Running, lossy_link, tidewire};
use crate::schema;

fn server() -> (Running, String) {
    let mut server = Running::start(&["bench", "-s", "--json", "--listen", "127.0.0.1:0"]);
    let link = server.line()["link"].as_str().unwrap().to_owned();
    (server, link)
}

/// Returns the exit code and the lines of a client.
fn measure(link: &str, arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let client = tidewire(&[&["bench", "--json", "-c", link], arguments].concat()).output().unwrap();
    (client.status.code(), schema::lines(&client.stdout))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
#[ignore = "slow: waits in real time"]
fn each_way_and_several_streams_give_figures_that_fit_together() {
    let (mut server, direct) = server();
    let (_proxy, link) = lossy_link(&direct, &["--rate", "25mbit", "--rtt", "40ms", "--loss", "10%"]);
    for (arguments, lossy) in [(&["-P", "4"][..], true), (&["-R"][..], false)] {
        let common = ["-b", "4mbit", "-t", "2", "-l", "1000", "-i", "500ms"];
        let (code, lines) = measure(&link, &[&common, arguments].concat());
        assert_eq!(code, Some(0), "{lines:?}");
        let summary = lines.last().unwrap();
        // 4 Mbit/s for 2 s in records of 1,000 bytes.
        let records = &summary["records"];
        assert_eq!((&records["delivered"], &summary["bytes"]), (&1_000.into(), &1_000_000.into()));
        let intervals: Vec<_> = lines.iter().filter(|line| line["event"] == "interval").collect();
        assert_eq!(intervals.iter().map(|interval| interval["bytes"].as_u64().unwrap()).sum::<u64>(), 1_000_000);
        let delay = |name: &str| number(&records["delay_ms"][name]);
        assert!(delay("p50") <= delay("p95") && delay("p95") <= delay("p99") && delay("p99") <= delay("max"));
        // Both ends share a clock here, and no record is faster than the link.
        assert!(number(&records["one_way_ms"]) >= 20.0, "{records}");
        // Only the data's direction loses packets, and only its sender knows.
        let loss = number(&summary["loss"]);
        assert_eq!(loss > 0.05, lossy, "{summary}");
        assert_eq!(summary["symbols"]["repaired"].as_u64().unwrap() > 0, lossy, "{summary}");
        assert!(number(&summary["overhead"]) > 0.0);
        assert_eq!(server.wait_for("summary")["event"], "summary");
    }
    server.interrupt();
    assert_eq!(server.end().0, Some(130));
}

#[test]
fn what_is_required_and_not_met_ends_with_8() {
    let (_server, link) = server();
    let load = ["-b", "1mbit", "-t", "300ms"];
    let (code, lines) = measure(&link, &[&load[..], &["--require", "goodput>=1gbit,loss<=50%"]].concat());
    assert_eq!(code, Some(8));
    let met: Vec<_> = lines.iter().filter(|line| line["event"] == "requirement").map(|line| &line["met"]).collect();
    assert_eq!(met, [false, true]);
    let error = lines.iter().find(|line| line["event"] == "error").unwrap();
    assert!(error["message"].as_str().unwrap().starts_with("not met: goodput>=1gbit"), "{error}");
    assert_eq!(lines.last().unwrap()["event"], "summary");
    assert_eq!(measure(&link, &[&load[..], &["--require", "goodput>=1kbit"]].concat()).0, Some(0));
    for wrong in [&["--require", "p95<40ms"][..], &["-l", "8"], &["-P", "0"], &["-t", "0"], &["-b", "20"]] {
        assert_eq!(measure(&link, wrong).0, Some(2), "{wrong:?}");
    }
}

/// Source symbols and repairs of a server that sends to a client with these options.
fn served(started_with: &[&str], asked: &[&str]) -> (u64, u64) {
    let mut server = Running::start(&[&["bench", "-s", "--json", "--listen", "127.0.0.1:0"], started_with].concat());
    let link = server.line()["link"].as_str().unwrap().to_owned();
    let (code, lines) = measure(&link, &[&["-R", "-b", "4mbit", "-t", "1", "-l", "1000"], asked].concat());
    assert_eq!(code, Some(0), "{lines:?}");
    let summary = server.wait_for("summary");
    let packets = |name: &str| summary["packets"][name].as_u64().unwrap();
    (packets("source"), packets("repair"))
}

#[test]
#[ignore = "slow: waits in real time"]
fn the_clients_choice_of_redundancy_holds_for_what_the_server_sends() {
    for asked in [&["--redundancy", "every:5"][..], &["--profile", "block:32,8", "--code", "rlc16"]] {
        let (source, repair) = served(&[], asked);
        assert!(source >= 200 && repair * 10 >= source * 2, "{asked:?}: {source} and {repair}");
        // A server with a choice of its own.
        let (source, repair) = served(&["--profile", "stream"], asked);
        assert!(repair * 10 < source, "{asked:?}: {source} and {repair}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_backend_that_does_not_work_is_told_and_the_kernels_sockets_take_over() {
    let mut server = Running::start(&["bench", "-s", "--once", "--json", "--listen", "127.0.0.1:0"]);
    let link = server.line()["link"].as_str().unwrap().to_owned();
    let load = ["-b", "1mbit", "-t", "300ms", "--backend", "xdp:absent"];
    let client = tidewire(&[&["bench", "-c", &link], &load[..]].concat()).output().unwrap();
    let told = String::from_utf8_lossy(&client.stderr);
    assert_eq!(client.status.code(), Some(0), "{told}");
    assert!(told.contains("there is no interface `absent`") && told.contains("the kernel's sockets"), "{told}");
    let alone = tidewire(&["bench", "-c", &link, "--backend", "xdp:"]).output().unwrap();
    assert_eq!(alone.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("xdp:eth0"));
}

#[test]
fn a_server_of_several_threads_serves_clients_at_once() {
    let mut server = Running::start(&["bench", "-s", "--json", "--listen", "127.0.0.1:0", "--threads", "3"]);
    let link = server.line()["link"].as_str().unwrap().to_owned();
    let load = ["-b", "4mbit", "-t", "1", "-l", "1000"];
    let clients: Vec<_> = (0..6).map(|_| (link.clone(), load)).collect();
    let codes = std::thread::scope(|scope| {
        let running: Vec<_> = clients.iter().map(|(link, load)| scope.spawn(move || measure(link, load))).collect();
        running.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    for (code, lines) in codes {
        assert_eq!((code, &lines.last().unwrap()["bytes"]), (Some(0), &500_000.into()), "{lines:?}");
    }
    server.interrupt();
    assert_eq!(server.end().0, Some(130));
    let none = tidewire(&["bench", "-s", "--threads", "0"]).output().unwrap();
    assert_eq!(none.status.code(), Some(2));
}
