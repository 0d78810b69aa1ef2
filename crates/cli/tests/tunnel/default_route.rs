//! A default route through the tunnel: everything goes through it but the tunnel's own datagrams.

use std::path::Path;

use crate::hosts::{needs_lab, on, python};
use crate::process::Running;
use crate::ways::{BEYOND, SNIFF, UPLINK, Ways, ask, ip, is_reached, kill, rules};

#[test]
#[ignore = "needs root: network namespaces"]
fn everything_goes_through_the_tunnel_but_its_own_datagrams() {
    needs_lab();
    let Ways { hosts, routers, _who } = &Ways::new();
    let (near, far) = (hosts.near.as_str(), hosts.far_address.as_str());
    let (_listener, link) = hosts.listener(&[]);
    assert!(!is_reached(near, BEYOND) && is_reached(near, far), "without a tunnel");
    let dialer = hosts.dialer(&link, &["--route", "0.0.0.0/0"]);
    let mut sniffers: Vec<_> =
        routers.iter().map(|router| Running::spawn(on(router, Path::new("python3")).arg("-c").arg(SNIFF))).collect();
    sniffers.iter_mut().for_each(|sniffer| assert_eq!(sniffer.text(), "ready"));
    assert_eq!(ask(near, BEYOND), "10.77.0.2");
    assert_eq!(ask(near, far), "10.77.0.2", "even to the address of the far side");
    let with_tunnel = rules(near);
    assert_eq!(with_tunnel.len(), 5, "{with_tunnel:?}");

    // The uplink changes: the kernel's own routes are followed.
    python(near, "open('/proc/sys/net/ipv4/conf/all/rp_filter', 'w').write('0')", &[]);
    let moved = python(near, UPLINK, &["1"]);
    assert!(ip(near, &["route", "get", far, "ipproto", "udp", "dport", "7700"]).contains(&moved));
    assert_eq!(ask(near, BEYOND), "10.77.0.2");
    for mut sniffer in sniffers {
        sniffer.interrupt();
        assert_eq!(sniffer.text(), "end", "no packet but the tunnel's");
    }

    // A killed process leaves rules that change nothing, and the next one replaces them.
    kill(dialer);
    assert!(!is_reached(near, BEYOND) && is_reached(near, far), "as without a tunnel");
    let dialer = hosts.dialer(&link, &["--route", "0.0.0.0/0"]);
    assert_eq!(ask(near, BEYOND), "10.77.0.2");
    assert_eq!(rules(near), with_tunnel);
    let second = [link.as_str(), "--address", "10.78.0.2/24", "--route", "0.0.0.0/0", "--interface", "tw2"];
    let (code, lines) = hosts.tunnel(near, &second).end();
    let said = lines.iter().rfind(|line| line["event"] == "error").unwrap()["message"].as_str().unwrap();
    assert!(code == Some(7) && said.contains("does another tunnel have it?"), "{said}");
    assert_eq!(rules(near), with_tunnel, "those of the first stay");
    dialer.interrupt();
    assert_eq!(dialer.end().0, Some(130));
    assert_eq!(rules(near), [""; 0]);
    assert!(!is_reached(near, BEYOND) && is_reached(near, far));
}

/// A listener answers peers at any address, so what leaves from its port passes.
#[test]
#[ignore = "needs root: network namespaces"]
fn a_listener_can_have_the_default_route_too() {
    needs_lab();
    let Ways { hosts, .. } = &Ways::new();
    let near_address = python(&hosts.near, UPLINK, &["0"]);
    let arguments = ["--listen", &format!("{near_address}:7700"), "--address", "10.77.0.2/24", "--route", "0.0.0.0/0"];
    let mut listener = hosts.tunnel(&hosts.near, &arguments);
    let link = listener.wait_for("link")["link"].as_str().unwrap().to_owned();
    let mut dialer = hosts.tunnel(&hosts.far, &[&link, "--address", "10.77.0.1/24"]);
    dialer.wait_for("connected");
    assert_eq!(ask(&hosts.near, BEYOND), "10.77.0.2");
    listener.interrupt();
    assert_eq!(listener.end().0, Some(130));
    assert_eq!(rules(&hosts.near), [""; 0]);
}

#[test]
#[ignore = "needs root: network namespaces"]
fn ipv6_has_a_default_route_of_its_own() {
    needs_lab();
    let Ways { hosts, .. } = &Ways::new();
    ip(&hosts.far, &["-6", "address", "add", "2001:db8::9/128", "dev", "lo"]);
    let (_listener, link) = hosts.listener(&["--address", "fd77::1/64"]);
    let dialer = hosts.dialer(&link, &["--address", "fd77::2/64", "--route", "::/0"]);
    assert_eq!(ask(&hosts.near, "2001:db8::9"), "fd77::2");
    assert!(!is_reached(&hosts.near, BEYOND), "IPv4 stays as it was");
    dialer.interrupt();
    assert_eq!(dialer.end().0, Some(130));
    assert_eq!(rules(&hosts.near), [""; 0]);
}
