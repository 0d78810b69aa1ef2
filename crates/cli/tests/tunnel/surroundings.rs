//! What a tunnel finds on a machine: a persistent device of its name, a local network of the same addresses,
//! IPv6 that is off.

use std::fs::{self, File};

use serde_json::Value;

use crate::hosts::{Hosts, needs_lab, python};
use crate::process::Running;
use crate::ways::{BEYOND, Ways, ask, ip, kill};

fn said(lines: &[Value], event: &str) -> String {
    let of = lines.iter().filter(|line| line["event"] == event);
    of.filter_map(|line| line["message"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The device, its addresses and routes as `ip` shows them.
fn shown(host: &str, device: &str) -> String {
    let parts = [&["-o", "link"][..], &["-o", "address"], &["route"], &["route", "show", "table", "all"], &["rule"]];
    let all: String = parts.map(|part| ip(host, part)).concat();
    // A device that was up once has another queue.
    all.lines().filter(|line| line.contains(device)).map(|line| line.replace("noop", "pfifo_fast") + "\n").collect()
}

#[test]
#[ignore = "needs root: network namespaces"]
fn issue_40_a_persistent_device_is_used_and_left_as_it_was_found() {
    needs_lab();
    let ways = Ways::new();
    let near = ways.hosts.near.as_str();
    ip(near, &["tuntap", "add", "dev", "tw7", "mode", "tun"]);
    ip(near, &["address", "add", "10.70.0.9/24", "dev", "tw7"]);
    let before = shown(near, "tw7");
    let (_listener, link) = ways.hosts.listener(&[]);
    let arguments = ["--interface", "tw7", "--route", "0.0.0.0/0", "--route", "172.20.0.0/16"];
    let dialer = ways.hosts.dialer(&link, &arguments);
    assert_eq!(ask(near, BEYOND), "10.77.0.2", "not from the address that the device had");
    let (code, lines) = ways.hosts.tunnel(near, &[&link, "--address", "10.78.0.2/24", "--interface", "tw7"]).end();
    assert!(code == Some(7) && said(&lines, "error").contains("tw7 is in use"), "{lines:?}");
    dialer.interrupt();
    assert_eq!(dialer.end().0, Some(130));
    assert_eq!(shown(near, "tw7"), before);
    // What a killed process left in it is taken over.
    kill(ways.hosts.dialer(&link, &arguments));
    let dialer = ways.hosts.dialer(&link, &arguments);
    assert_eq!(ask(near, BEYOND), "10.77.0.2");
    drop(dialer);
    for (mode, name) in [("tap", "tw8"), ("tun", "tw9")] {
        let queues = if mode == "tun" { &["multi_queue"][..] } else { &[] };
        ip(near, &[&["tuntap", "add", "dev", name, "mode", mode], queues].concat());
        let (code, lines) = ways.hosts.tunnel(near, &[&link, "--address", "10.78.0.2/24", "--interface", name]).end();
        assert!(code == Some(7) && said(&lines, "error").contains("is no TUN device"), "{lines:?}");
    }
}

#[test]
#[ignore = "needs root: network namespaces"]
fn issue_40_networks_of_the_tunnel_and_the_local_network_are_compared() {
    needs_lab();
    let hosts = Hosts::new("rtt = \"4ms\"");
    ip(&hosts.near, &["link", "add", "lan0", "type", "veth", "peer", "name", "lan1"]);
    ip(&hosts.near, &["address", "add", "192.168.7.10/24", "dev", "lan0"]);
    let (_listener, link) = hosts.listener(&["--route", "192.168.7.0/24"]);
    let same = [link.as_str(), "--address", "192.168.7.99/24"];
    let (code, lines) = hosts.tunnel(&hosts.near, &same).end();
    let wanted = "192.168.7.0/24 is also the network of lan0, which gets its packets: give the tunnel another network";
    assert_eq!((code, said(&lines, "error").as_str()), (Some(7), wanted));

    let part = [link.as_str(), "--address", "10.77.0.2/24", "--route", "192.168.7.128/25", "--route", "192.168.0.0/16"];
    let errors = hosts.folder.path().join("errors");
    let to = File::create(&errors).unwrap();
    let mut dialer = Running::spawn_with_errors(&mut hosts.command(&hosts.near, &part), to);
    dialer.wait_for("connected");
    let errors = fs::read_to_string(errors).unwrap();
    assert_eq!(errors.matches("is a part of 192.168.7.0/24, the network of lan0").count(), 1, "{errors}");
}

#[test]
#[ignore = "needs root: network namespaces"]
fn issue_40_ipv6_that_is_off_is_told() {
    needs_lab();
    let ways = Ways::new();
    let near = ways.hosts.near.as_str();
    let (_listener, link) = ways.hosts.listener(&[]);
    let switch = |of: &str, to: u8| {
        python(near, &format!("open('/proc/sys/net/ipv6/conf/{of}/disable_ipv6', 'w').write('{to}')"), &[]);
    };
    switch("all", 0);
    switch("default", 1);
    let everything = ["--route", "0.0.0.0/0", "--route", "::/0"];
    let arguments = [&[link.as_str(), "--address", "10.77.0.2/24"], &everything[..]].concat();
    let (code, lines) = ways.hosts.tunnel(near, &arguments).end();
    let message = said(&lines, "error");
    assert!(code == Some(7) && message.contains("IPv6 is off for tidewire0 and on for"), "{message}");
    switch("all", 1);
    let _dialer = ways.hosts.dialer(&link, &everything);
    assert_eq!(ask(near, BEYOND), "10.77.0.2", "IPv4 goes on");
}
