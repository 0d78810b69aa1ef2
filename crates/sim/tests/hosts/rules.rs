//! What a host does to datagrams, apart from what the protocol makes of it.

use tidewire_sim::host::Pauses;

use super::*;

/// Ten clients for a second on this host, on the machine of the server.
fn run(host: Host, loss: &str, seed: u64) -> Report {
    let mut plan = Case { seconds: 1, ..Case::new(10, seed) }.plan();
    plan.server = host;
    plan.link.set(Direction::Both, "loss", loss, Path::new("")).expect("a setting");
    let report = Crowd::new(&plan).run();
    assert!(report.done().is_some() && report.clients.iter().all(|client| client.errors.is_empty()), "{report:?}");
    report
}

fn longest(report: &Report) -> Duration {
    let clients = report.clients.iter().map(|client| client.process.socket.longest);
    clients.fold(report.server.socket.longest, Duration::max)
}

#[test]
fn the_default_host_takes_no_time_and_drops_nothing() {
    let report = run(Host::default(), "2%", 1);
    assert_eq!((report.dropped(), report.busy(), longest(&report)), ([0, 0], Duration::ZERO, Duration::ZERO));
}

#[test]
fn each_datagram_takes_its_time() {
    let [read, send] = [70, 40].map(Duration::from_micros);
    let report = run(Host { processors: 2, read, send, ..Host::default() }, "0%", 1);
    let sent: u64 = report.clients.iter().flat_map(|client| client.sent).map(|sent| sent.datagrams).sum();
    let clients = report.clients.iter().map(|client| client.process.socket.read).sum::<u64>();
    let all = report.server.socket.read + clients;
    let least = read * all as u32 + send * sent as u32;
    // A step that has begun may not be over.
    assert!(report.busy() >= least && report.busy() <= least + (read + send) * 32, "{:?}, {least:?}", report.busy());
}

#[test]
fn a_process_that_pauses_reads_late_and_a_small_socket_drops_meanwhile() {
    let length = [Duration::from_millis(5), Duration::from_millis(500)];
    let pauses = Some(Pauses { every: Duration::from_millis(100), length });
    let late = run(Host { pauses, ..Host::default() }, "0%", 1);
    let most = longest(&late);
    assert!(most > Duration::from_millis(100) && most <= length[1], "{most:?}");
    assert_eq!(late.dropped(), [0, 0]);
    let small = run(Host { pauses, buffer: Some(4_096), ..Host::default() }, "0%", 1);
    assert!(small.dropped()[0] > 0, "{:?}", small.dropped());
}

#[test]
fn a_plan_is_a_run() {
    let pauses = Some(Pauses { every: Duration::from_millis(300), length: [Duration::from_millis(5); 2] });
    let cost = Duration::from_micros(100);
    let host = Host { processors: 2, read: cost, send: cost, buffer: Some(1 << 18), pauses };
    let fingerprint = |seed| run(host, "1%", seed).fingerprint;
    assert_eq!(fingerprint(3), fingerprint(3));
    assert_ne!(fingerprint(3), fingerprint(4));
}
