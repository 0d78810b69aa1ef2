//! `tidewire tunnel up` between hosts of the lab: real devices, kernel TCP and lost packets. Tests that need
//! root and TUN say so and pass where these are missing.
#![cfg(target_os = "linux")]

mod default_route;
mod hosts;
mod leaks;
mod peers;
#[path = "../process/mod.rs"]
mod process;
#[path = "../schema/mod.rs"]
mod schema;
mod surroundings;
mod ways;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;
use hosts::{CLIENT, ECHO, HEARTBEAT, Hosts, counts, needs_lab, on, python, server};
use process::{Running, tidewire};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
#[ignore = "needs root: network namespaces"]
fn tcp_crosses_losses_in_both_families() {
    needs_lab();
    let hosts = Hosts::new("rate = \"50mbit\"\nrtt = \"20ms\"\nloss = \"5%\"");
    // The lab's hosts have no IPv6.
    for host in [&hosts.near, &hosts.far] {
        python(host, "open('/proc/sys/net/ipv6/conf/default/disable_ipv6', 'w').write('0')", &[]);
    }
    let (listener, link) = hosts.listener(&["--address", "fd77::1/64"]);
    let dialer = hosts.dialer(&link, &["--address", "fd77::2/64"]);
    for (address, header) in [("10.77.0.1", 40), ("fd77::1", 60)] {
        let _server = server(&hosts.far, address);
        let mss: u32 = python(&hosts.near, CLIENT, &[address, "3000000"]).parse().unwrap();
        assert_eq!(mss, 1_420 - header - 12, "the MTU without the headers and the timestamps");
    }
    let (sent, received) = (counts(dialer), counts(listener));
    let bytes = |counts: &Value, key: &str| counts[key]["bytes"].as_u64().unwrap();
    assert!(bytes(&sent, "sent") > 6_000_000 && bytes(&received, "received") > 6_000_000, "{sent} {received}");
    for counts in [sent, received] {
        for reason in ["malformed", "spoofed", "too_long", "refused", "overflow"] {
            assert_eq!(counts["dropped"][reason], 0, "{reason}: {counts}");
        }
    }
}

/// The device counts what the kernel was given: with each segment alone, as much as was received.
#[test]
#[ignore = "needs root: network namespaces"]
fn segments_that_follow_each_other_are_written_as_one_packet() {
    needs_lab();
    let hosts = Hosts::new("rtt = \"4ms\"");
    let (listener, link) = hosts.listener(&[]);
    let _dialer = hosts.dialer(&link, &[]);
    let _server = server(&hosts.far, "10.77.0.1");
    python(&hosts.near, CLIENT, &["10.77.0.1", "10000000"]);
    let count = "print(open('/sys/class/net/tidewire0/statistics/rx_packets').read())";
    let written: u64 = python(&hosts.far, count, &[]).parse().unwrap();
    let received = counts(listener)["received"]["packets"].as_u64().unwrap();
    assert!(received > 7_000 && 3 * written < received, "{received} packets, {written} writes");
}

/// Combinations instead of packets, for TCP that controls its rate itself.
#[test]
#[ignore = "needs root: network namespaces"]
fn tcp_crosses_losses_as_combinations_without_another_rate_control() {
    needs_lab();
    let hosts = Hosts::new("rate = \"50mbit\"\nrtt = \"20ms\"\nqueue = \"20ms\"\nloss = \"2%\"");
    for options in [
        &["--profile", "pipeline", "--redundancy", "pipeline:16,1.25,open", "--rate-control", "open"][..],
        &["--profile", "bucket"],
    ] {
        let (listener, link) = hosts.listener(options);
        let dialer = hosts.dialer(&link, options);
        let _server = server(&hosts.far, "10.77.0.1");
        python(&hosts.near, CLIENT, &["10.77.0.1", "3000000"]);
        for counts in [counts(dialer), counts(listener)] {
            for reason in ["malformed", "spoofed", "too_long", "refused"] {
                assert_eq!(counts["dropped"][reason], 0, "{reason}: {counts}");
            }
        }
    }
}

/// A packet whose source belongs to nobody or to us, and one whose destination no peer has.
#[test]
#[ignore = "needs root: network namespaces"]
fn spoofed_and_homeless_packets_are_dropped_and_counted() {
    needs_lab();
    let hosts = Hosts::new("rtt = \"4ms\"");
    let (listener, link) = hosts.listener(&["--route", "192.168.7.0/24"]);
    // The near end leads more networks into the tunnel than the far end accepts from it.
    let dialer = hosts.dialer(&link, &["--route", "172.16.0.0/12", "--interface", "tw9"]);
    let send = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for source in sys.argv[2:]:
    head = bytes([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]) + socket.inet_aton(source) + socket.inet_aton(sys.argv[1])
    s.sendto(head + bytes([0, 9, 0, 9, 0, 8, 0, 0]), (sys.argv[1], 0))
import time; time.sleep(0.3)
";
    python(&hosts.near, send, &["10.77.0.1", "10.77.0.2", "10.77.0.9", "192.168.7.7", "8.8.8.8", "10.77.0.1"]);
    let unreachable = "
import socket
import subprocess
subprocess.run(['ip', 'route', 'add', '203.0.113.0/24', 'dev', 'tw9'], check=True)
IP_RECVERR = 11
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
s.connect(('203.0.113.5', 9)); s.send(b'x')
import time; time.sleep(0.3)
try: s.send(b'x'); print('sent')
except OSError as e: print(e.errno)
";
    assert_eq!(python(&hosts.near, unreachable, &[]), "113", "EHOSTUNREACH, from our ICMP answer");
    let (near, far) = (counts(dialer), counts(listener));
    assert_eq!(far["dropped"]["spoofed"], 2, "8.8.8.8, and the listener's own address: {far}");
    assert!(near["dropped"]["no_peer"].as_u64().unwrap() >= 1, "{near}");
}

/// The far end takes shorter packets than the near end's device allows.
#[test]
#[ignore = "needs root: network namespaces"]
fn longer_packets_than_the_peer_takes_are_answered_and_tcp_shrinks() {
    needs_lab();
    let hosts = Hosts::new("rtt = \"4ms\"");
    let (_listener, link) = hosts.listener(&["--mtu", "1280"]);
    let dialer = hosts.dialer(&link, &["--mtu", "1500"]);
    let _server = server(&hosts.far, "10.77.0.1");
    let mss: u32 = python(&hosts.near, CLIENT, &["10.77.0.1", "200000"]).parse().unwrap();
    assert!(mss <= 1_280 - 40, "{mss}");
    let discover = "
import socket, time
IP_MTU_DISCOVER, IP_MTU, DO = 10, 14, 2
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, DO)
s.connect(('10.77.0.1', 9)); s.send(bytes(1400)); time.sleep(0.3)
print(s.getsockopt(socket.IPPROTO_IP, IP_MTU))
";
    assert_eq!(python(&hosts.near, discover, &[]), "1280");
    assert!(counts(dialer)["dropped"]["too_long"].as_u64().unwrap() >= 1);
}

#[test]
#[ignore = "needs root: network namespaces"]
fn flows_go_on_after_either_end_was_killed() {
    needs_lab();
    let hosts = Hosts::new("rtt = \"10ms\"\nloss = \"2%\"");
    let secret = String::from_utf8(tidewire(&["keygen"]).output().unwrap().stdout).unwrap();
    let key = hosts.file("secret", secret.lines().next().unwrap());
    let (mut listener, link) = hosts.listener(&["--key", &key]);
    let mut dialer = hosts.dialer(&link, &[]);
    let mut echo = Running::spawn(on(&hosts.far, Path::new("python3")).arg("-c").arg(ECHO));
    assert_eq!(echo.text(), "ready");
    for kill_far in [true, false] {
        let mut beat = on(&hosts.near, Path::new("python3"));
        let mut beat = Running::spawn(beat.arg("-c").arg(HEARTBEAT).args(["10.77.0.1", "9"]));
        assert_eq!(beat.text(), "ready");
        std::thread::sleep(Duration::from_secs(1));
        let end = if kill_far { &mut listener } else { &mut dialer };
        // `ip netns exec` becomes the command, so this is the tunnel itself.
        kill_process(Pid::from_child(&end.child), Signal::KILL).unwrap();
        end.child.wait().unwrap();
        let host = if kill_far { &hosts.far } else { &hosts.near };
        let devices = on(host, Path::new("ip")).args(["-o", "link"]).output().unwrap();
        assert!(!String::from_utf8_lossy(&devices.stdout).contains("tidewire0"), "the device is gone");
        if kill_far {
            listener = hosts.listener(&["--key", &key]).0;
        } else {
            dialer = hosts.dialer(&link, &[]);
        }
        let longest: f64 = beat.text().parse().unwrap();
        // Measured 0.2 to 3.5 s: then the timer of the TCP inside decides, which doubles.
        assert!(longest < 8.0, "{longest} s without an echo after a kill, far {kill_far}");
    }
}

/// Two machines with one secret would take the tunnel from each other for ever.
#[test]
#[ignore = "needs root: network namespaces"]
fn the_end_whose_place_was_taken_leaves_it() {
    needs_lab();
    let hosts = Hosts::new("rtt = \"4ms\"");
    let (_listener, link) = hosts.listener(&[]);
    let first = hosts.dialer(&link, &["--interface", "tw1"]);
    let second = hosts.dialer(&link, &["--interface", "tw2"]);
    let (code, lines) = first.end();
    let said = lines.iter().rfind(|line| line["event"] == "error").unwrap();
    assert!(code == Some(1) && said["message"].as_str().unwrap().contains("has the tunnel now"), "{said}");
    assert_eq!(lines.last().unwrap()["event"], "summary");
    drop(second);
}

#[test]
fn what_cannot_work_is_refused_with_what_to_do() {
    let secret = String::from_utf8(tidewire(&["keygen"]).output().unwrap().stdout).unwrap();
    let link = format!("tidewire://192.0.2.9:7700/#{}", secret.lines().next().unwrap());
    for (arguments, wanted) in [
        (&[link.as_str(), "--address", "10.77.0.0/24"][..], "10.77.0.0 is no address of a host"),
        (&[&link, "--address", "10.77.0.1/24", "--route", "192.0.2.1/24"], "did you mean 192.0.2.0/24?"),
        (
            &[&link, "--address", "10.77.0.1/24", "--route", "192.0.0.0/8"],
            "contains 192.0.2.9, the address of the far side",
        ),
        (&[&link, "--address", "10.77.0.1/24", "--mtu", "500"], "1280..=9000"),
        (&[&link, "--address", "10.77.0.1/24", "--interface", "a/b"], "1 to 15 letters"),
        (&["--address", "10.77.0.1/24"], "no link is given"),
    ] {
        let output = tidewire(&[&["tunnel", "up"], arguments].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
#[ignore = "needs root: network namespaces"]
fn without_the_capability_it_names_what_is_missing_and_what_to_use() {
    needs_lab();
    let begun = Instant::now();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]).arg(cargo_bin("tidewire"));
    command.args(["tunnel", "up", "--listen", "127.0.0.1:0", "--address", "10.77.0.1/24"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("CAP_NET_ADMIN") && said.contains("tidewire forward"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

/// A tunnel through a relay on the far host: one hop loses packets, and TCP inside sees none of it.
#[test]
#[ignore = "needs root: network namespaces"]
fn tcp_crosses_a_tunnel_over_a_relay() {
    needs_lab();
    let hosts = Hosts::new("rate = \"20mbit\"\nrtt = \"20ms\"\nloss = \"10%\"");
    let address = format!("{}:7700", hosts.far_address);
    let own = ["--relayed", "--listen", &address, "--address", "10.77.0.1/24"];
    let mut listener = hosts.tunnel(&hosts.far, &own);
    let hop = listener.wait_for("hop_link")["link"].as_str().unwrap().to_owned();
    let link = listener.wait_for("link")["link"].as_str().unwrap().to_owned();
    let mut command = on(&hosts.far, cargo_bin("tidewire").as_path());
    command.args(["relay", "--json", "--to", &hop, "--listen", &format!("{}:7701", hosts.far_address)]);
    let mut relay = Running::spawn(command.env("TIDEWIRE_CONFIG", "/dev/null"));
    let via = relay.wait_for("link")["link"].as_str().unwrap().to_owned();
    let dialer = hosts.dialer(&link, &["--via", &via]);
    let _server = server(&hosts.far, "10.77.0.1");
    python(&hosts.near, CLIENT, &["10.77.0.1", "2000000"]);
    let (sent, received) = (counts(dialer), counts(listener));
    let bytes = |counts: &Value, key: &str| counts[key]["bytes"].as_u64().unwrap();
    assert!(bytes(&sent, "sent") > 2_000_000 && bytes(&received, "received") > 2_000_000, "{sent} {received}");
    relay.interrupt();
    assert_eq!(relay.end().0, Some(130));
}
