//! What other programs remove from the kernel while a tunnel is up: packets are refused meanwhile, not sent
//! outside the tunnel, and what was removed comes back.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::hosts::{needs_lab, on, python};
use crate::process::Running;
use crate::ways::{BEYOND, Ways, ask, ip, is_reached, kill, rules};

/// Sends the time to each address, every 0.1 ms, until it is interrupted.
const SEND: &str = "
import signal, socket, struct, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print('ready', flush=True)
try:
    while True:
        for to in sys.argv[1:]:
            try: s.sendto(struct.pack('!d', time.monotonic()), (to, 9))
            except OSError: pass
        until = time.monotonic() + 0.0001
        while time.monotonic() < until: pass
except KeyboardInterrupt: print('end', flush=True)
";

/// Counts the packets to each address that this host sees, with a filter in the kernel, until it is
/// interrupted. Prints how many, and the longest time from the first to the last of adjacent ones.
const COUNT: &str = "
import ctypes, json, signal, socket, struct, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
wanted = [struct.unpack('!I', socket.inet_aton(address))[0] for address in sys.argv[1:]]
code = [(0x20, 0, 0, 16)] + [(0x15, len(wanted) - n, 0, to) for n, to in enumerate(wanted)] + [(6, 0, 0, 0), (6, 0, 0, 100)]
code = b''.join(struct.pack('HBBI', *one) for one in code); held = ctypes.create_string_buffer(code)
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
s.setsockopt(socket.SOL_SOCKET, 26, struct.pack('HxxxxxxP', len(code) // 8, ctypes.addressof(held)))
times = []
print('ready', flush=True)
try:
    while True:
        p = s.recv(100)
        # What came before the filter.
        if socket.inet_ntoa(p[16:20]) in sys.argv[1:] and p[9] == 17: times.append(struct.unpack('!d', p[28:36])[0])
except KeyboardInterrupt: pass
longest, begun, last = 0, 0, -1
for t in sorted(times):
    if t - last > 0.01: begun = t
    last = t; longest = max(longest, t - begun)
print(json.dumps({'packets': len(times), 'longest_ms': 1000 * longest}), flush=True)
";

/// An address of a network that `--route` names; no router knows it.
const INSIDE: &str = "172.20.1.1";
/// Rounds of each removal.
const ROUNDS: u32 = 5;

/// What a router saw of packets to [`BEYOND`] and [`INSIDE`] while `act` ran again and again: how many, and
/// the longest time of adjacent ones in milliseconds.
fn seen(Ways { hosts, routers, .. }: &Ways, mut act: impl FnMut()) -> (u64, f64) {
    let start = |host: &str, program: &str| {
        let mut running = Running::spawn(on(host, Path::new("python3")).args(["-c", program, BEYOND, INSIDE]));
        assert_eq!(running.text(), "ready");
        running
    };
    let (mut count, mut send) = (start(&routers[0], COUNT), start(&hosts.near, SEND));
    for _ in 0..ROUNDS {
        std::thread::sleep(Duration::from_millis(30));
        act();
    }
    send.interrupt();
    send.text();
    std::thread::sleep(Duration::from_millis(100));
    count.interrupt();
    let counted: Value = serde_json::from_str(&count.text()).unwrap();
    (counted["packets"].as_u64().unwrap(), counted["longest_ms"].as_f64().unwrap())
}

/// Waits until everything is as the tunnel wants it.
fn settle(host: &str) {
    let begun = Instant::now();
    let into = |address: &str| ip(host, &["route", "get", address]).contains("dev tidewire0 ");
    let has_address = || ip(host, &["address", "show", "dev", "tidewire0"]).contains("10.77.0.2/24");
    while !(rules(host).len() == 5 && into(BEYOND) && into(INSIDE) && has_address()) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?} {}", rules(host), ip(host, &["address"]));
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn error(lines: &[Value]) -> &str {
    lines.iter().rfind(|line| line["event"] == "error").expect("an error")["message"].as_str().unwrap()
}

/// Nothing leaks while one part is missing. Of two that hold the same packets, both have to be removed at
/// once; then the time until they are back counts, which `--nocapture` shows.
#[test]
#[ignore = "needs root: network namespaces"]
fn issue_40_what_other_programs_remove_comes_back_and_leaks_nothing_meanwhile() {
    needs_lab();
    let ways = Ways::new();
    let near = ways.hosts.near.as_str();
    let (_listener, link) = ways.hosts.listener(&[]);
    let (packets, ms) = seen(&ways, || ());
    assert!(packets > 100 && ms > 1.0, "without a tunnel, the router sees {packets} packets, {ms} ms");
    let (everything, part) = ("0.0.0.0/0", "172.20.0.0/16");
    let mut dialer = ways.hosts.dialer(&link, &["--route", everything, "--route", part]);
    settle(near);
    let batch = |lines: &str| {
        let program = "import subprocess, sys; subprocess.run(['ip', '-batch', '-'], input=sys.argv[1].encode())";
        python(near, program, &[lines]);
        settle(near);
    };
    assert_eq!(seen(&ways, || ()).0, 0, "while nothing is removed");
    let mut table = String::new();
    let down = ["link set tidewire0 down", "link set tidewire0-shut down", "address flush dev tidewire0"];
    let mut single: Vec<_> = down.map(str::to_owned).into();
    single.extend(
        ["default dev tidewire0 table 7700", "172.20.0.0/16 dev tidewire0"].map(|of| format!("route del {of}")),
    );
    single.extend((7_700..=7_704).map(|priority| format!("rule del pref {priority}")));
    for removal in single {
        let (packets, ms) = seen(&ways, || batch(&removal));
        writeln!(table, "{removal}: {packets} packets, longest {ms:.2} ms").unwrap();
        assert_eq!(packets, 0, "{table}");
    }
    // It looks again after it flushed, so it removes what is restored while the rest is being restored.
    let flush = "
import subprocess, time
for n in range(20): subprocess.run(['ip', 'address', 'flush', 'dev', 'tidewire0'], stderr=subprocess.DEVNULL); time.sleep(0.05)
";
    assert_eq!(seen(&ways, || drop(python(near, flush, &[]))).0, 0, "while addresses are flushed");
    settle(near);
    for removal in [
        "rule del pref 7702\nrule del pref 7703\n",
        "route flush table 7700\n",
        "route del 172.20.0.0/16 dev tidewire0\nroute del 172.20.0.0/16 dev tidewire0-shut\n",
        "link del tidewire0-shut\n",
        "link set tidewire0 down\nlink set tidewire0-shut down\n",
    ] {
        let (packets, ms) = seen(&ways, || batch(removal));
        writeln!(table, "{}: {packets} packets, longest {ms:.2} ms", removal.trim().replace('\n', ", ")).unwrap();
        // Chosen for a busy machine: `docs/tunnel.md` section 5 has what an idle one takes.
        assert!(ms < 1_000.0, "{table}");
    }
    println!("{table}");
    assert_eq!(ask(near, BEYOND), "10.77.0.2", "the tunnel works");
    let told = dialer.wait_for("restored");
    assert_eq!(told["last_told"], false, "{told}");
    dialer.interrupt();
    let (code, lines) = dialer.end();
    let told: Vec<_> = lines.iter().filter(|line| line["event"] == "restored").collect();
    assert!(told.len() < 10 && told.last().unwrap()["last_told"] == true, "{told:?}");
    assert_eq!(code, Some(130));
    assert_eq!(rules(near), [""; 0]);
}

/// The kernel removes addresses and routes of IPv6 when their device is set down. The route of an address's
/// network comes back too.
#[test]
#[ignore = "needs root: network namespaces"]
fn issue_40_ipv6_and_the_networks_of_addresses_come_back() {
    needs_lab();
    let ways = Ways::new();
    let near = ways.hosts.near.as_str();
    ip(&ways.hosts.far, &["-6", "address", "add", "2001:db8::9/128", "dev", "lo"]);
    let (_listener, link) = ways.hosts.listener(&["--address", "fd77::1/64"]);
    let mut dialer = ways.hosts.dialer(&link, &["--address", "fd77::2/64", "--route", "::/0"]);
    let state = || {
        let parts = [&["address", "show", "dev", "tidewire0"][..], &["route"], &["-6", "route"], &["-6", "rule"]];
        let tables = ip(near, &["-6", "route", "show", "table", "7700"]);
        let mut lines: Vec<_> = (parts.map(|part| ip(near, part)).concat() + &tables)
            .lines()
            .filter(|line| !line.contains("fe80:") && !line.contains("valid_lft"))
            .map(|line| line.trim().to_owned())
            .collect();
        lines.sort();
        lines
    };
    let before = state();
    for removal in [
        "link set tidewire0 down",
        "link set tidewire0 mtu 1300",
        "address flush dev tidewire0",
        "-6 address del fd77::2/64 dev tidewire0",
        "-6 route del default dev tidewire0 table 7700",
        "-6 route del fd77::/64 dev tidewire0",
        "route del 10.77.0.0/24 dev tidewire0",
        "-6 rule del pref 7702",
    ] {
        ip(near, &removal.split(' ').collect::<Vec<_>>());
        dialer.wait_for("restored");
        assert_eq!(state(), before, "{removal}");
        assert_eq!(ask(near, "2001:db8::9"), "fd77::2", "{removal}");
    }
}

/// systemd-networkd removes the rules of all other protocols when it starts.
#[test]
#[ignore = "needs root: network namespaces"]
fn issue_40_rules_have_the_protocol_that_others_leave_alone() {
    needs_lab();
    let ways = Ways::new();
    let (_listener, link) = ways.hosts.listener(&[]);
    let _dialer = ways.hosts.dialer(&link, &["--route", "0.0.0.0/0"]);
    let shown: Value = serde_json::from_str(&ip(&ways.hosts.near, &["-json", "-details", "rule"])).unwrap();
    let ours: Vec<_> =
        shown.as_array().unwrap().iter().filter(|rule| rule["priority"].as_u64() < Some(32_766)).collect();
    assert_eq!(ours.len(), 6, "{shown}");
    assert!(ours.iter().all(|rule| rule["protocol"] == "kernel"), "{shown}");
}

/// Nothing that a killed process left changes a way, unless it was to stay closed. Then the next tunnel takes
/// it over, and the commands of `docs/tunnel.md` open it.
#[test]
#[ignore = "needs root: network namespaces"]
fn issue_40_a_tunnel_that_fails_closed_stays_closed_until_it_is_opened() {
    needs_lab();
    let ways = Ways::new();
    let near = ways.hosts.near.as_str();
    let (_listener, link) = ways.hosts.listener(&[]);
    let routes = ["--route", "0.0.0.0/0", "--route", "172.20.0.0/16"];
    let way = |address: &str| {
        let output = on(near, Path::new("ip")).args(["route", "get", address]).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).contains("dev tidewire0"))
    };
    let is_closed = || (way(BEYOND), way(INSIDE)) == (None, None);
    let is_open = || (way(BEYOND), way(INSIDE)) == (Some(false), Some(false));
    let is_inside = || (way(BEYOND), way(INSIDE)) == (Some(true), Some(true));
    kill(ways.hosts.dialer(&link, &routes));
    assert!(is_open(), "after kill -9 without the option");

    let closed = [&routes[..], &["--fail-closed"]].concat();
    kill(ways.hosts.dialer(&link, &closed));
    assert!(is_closed() && !is_reached(near, BEYOND));
    assert_eq!(seen(&ways, || ()).0, 0);
    // The next one with the option takes it over, and leaves it closed when it is interrupted.
    let dialer = ways.hosts.dialer(&link, &closed);
    assert!(is_inside() && ask(near, BEYOND) == "10.77.0.2");
    dialer.interrupt();
    assert_eq!(dialer.end().0, Some(130));
    assert!(is_closed());
    // One without the option opens it at its end.
    let dialer = ways.hosts.dialer(&link, &routes);
    assert!(is_inside());
    dialer.interrupt();
    assert_eq!(dialer.end().0, Some(130));
    assert!(is_open() && rules(near).is_empty());
    // So do the commands of the page.
    kill(ways.hosts.dialer(&link, &closed));
    assert!(is_closed());
    let page = include_str!("../../../../docs/tunnel.md").replace("192.168.7.0/24", "172.20.0.0/16");
    let commands: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("near# ip route ")).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        ip(near, &[&["route"], &command.split_whitespace().collect::<Vec<_>>()[..]].concat());
    }
    assert!(is_open());
}

/// What cannot be restored ends the tunnel, and says why.
#[test]
#[ignore = "needs root: network namespaces"]
fn issue_40_what_cannot_be_restored_ends_the_tunnel_with_a_sentence() {
    needs_lab();
    let ways = Ways::new();
    let near = ways.hosts.near.as_str();
    let (_listener, link) = ways.hosts.listener(&[]);
    let dialer = ways.hosts.dialer(&link, &["--route", "172.20.0.0/16"]);
    ip(near, &["link", "del", "tidewire0"]);
    let (code, lines) = dialer.end();
    assert_eq!((code, error(&lines)), (Some(7), "the device tidewire0 is gone: another program deleted it"));

    let dialer = ways.hosts.dialer(&link, &["--route", "172.20.0.0/16"]);
    ip(near, &["route", "replace", "172.20.0.0/16", "dev", "lo"]);
    let (code, lines) = dialer.end();
    let said = error(&lines);
    assert!(code == Some(7) && said.contains("in the place of the route 172.20.0.0/16"), "{said}");
}
