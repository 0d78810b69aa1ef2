//! Transfers of which no datagram passes the kernel, and datagrams that must.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tidewire::{Config, Endpoint, XdpConfig, XdpMode};

use super::{BYTES, bind, bind_over, connect, freed, set, transfer};
use crate::namespaces::{self, INTERFACE, SWITCH_V4};
use crate::pair::{plain, pseudo_random, secret, within};
use crate::places::Place;
use crate::silence::hello;

#[tokio::test]
async fn transfers_of_both_families_bypass_the_kernel() {
    let (a, b) = (namespaces::host(1), namespaces::host(1));
    let mapped = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => IpAddr::V6(v4.to_ipv6_mapped()),
        ip => ip,
    };
    let (any_v4, any_v6) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    for (ours, theirs, to) in [
        (any_v4, any_v4, b.v4[0]),
        (a.v4[0], b.v4[0], b.v4[0]),
        (a.v4[0], any_v4, b.v4[1]),
        (any_v6, any_v6, b.v6),
        (any_v6, any_v6, mapped(b.v4[0])),
    ] {
        let (client, server) = (bind(&a, (ours, 0)).expect("binds"), bind(&b, (theirs, 0)).expect("binds"));
        let (ours, theirs) = connect(&client, &server, to).await;
        transfer(&ours, &theirs, BYTES).await;
        assert_eq!([a.by_kernel()[0], b.by_kernel()[0]], [0, 0], "{to}");
        assert_eq!([&a, &b].map(|host| host.hook(INTERFACE)), [Some("xdp".into()), Some("xdp".into())]);
        drop((ours, theirs, client, server));
        freed(&a).await;
        freed(&b).await;
    }
    // Only the first datagrams to a new peer leave by the kernel.
    let sent = [a.by_kernel()[1], b.by_kernel()[1]];
    assert!(sent.iter().all(|sent| (1..500).contains(sent)), "{sent:?}");
}

/// The other tests of this binary say nothing about AF_XDP if their places do not use it.
#[tokio::test]
async fn places_of_the_other_tests_bypass_the_kernel() {
    let places = [Place::new(), Place::new()];
    let bind = |place: &Place| place.bind((place.v4[0], 0).into(), secret(), Config::default()).expect("binds");
    let [client, server] = places.each_ref().map(bind);
    let (ours, theirs) = connect(&client, &server, server.local_addr().ip()).await;
    transfer(&ours, &theirs, BYTES).await;
    for host in places.iter().map(|place| &place.host) {
        assert_eq!((host.hook(INTERFACE).as_deref(), host.by_kernel()[0]), (Some("xdp"), 0));
    }
}

#[tokio::test]
async fn several_queues_are_spread_over_shards() {
    let (a, b) = (namespaces::host(4), namespaces::host(4));
    let xdp = XdpConfig::new(INTERFACE).mode(XdpMode::Copy);
    let client = bind(&a, (a.v4[0], 0)).expect("binds");
    let server = bind_over(&b, (b.v4[0], 0), 2, &xdp).expect("binds");
    let (ours, theirs) = connect(&client, &server, b.v4[0]).await;
    transfer(&ours, &theirs, BYTES).await;
    assert_eq!([a.by_kernel()[0], b.by_kernel()[0]], [0, 0]);
}

/// A macvlan has no hook of its own.
#[tokio::test]
async fn a_driver_without_a_hook_uses_the_generic_one() {
    let hosts = [namespaces::host(1), namespaces::host(1)];
    let [a, b] = &hosts;
    let upper = |host: &namespaces::Host| {
        let ip = Ipv4Addr::new(10, 79, 0, host.number);
        // The lower interface must not answer for the upper one's address.
        set(host, &[("ipv4/conf/all/arp_ignore", "1")]);
        host.ip(&format!(
            "link add link {INTERFACE} name upper0 type macvlan mode bridge
            address add {ip}/24 dev upper0
            link set upper0 up"
        ));
        IpAddr::V4(ip)
    };
    let (xdp, ips) = (XdpConfig::new("upper0"), [a, b].map(upper));
    let client = bind_over(a, (ips[0], 0), 1, &xdp).expect("binds");
    let server = bind_over(b, (ips[1], 0), 1, &xdp).expect("binds");
    assert_eq!([a, b].map(|host| host.hook("upper0")), [Some("xdpgeneric".into()), Some("xdpgeneric".into())]);
    let (ours, theirs) = connect(&client, &server, ips[1]).await;
    transfer(&ours, &theirs, BYTES).await;
    assert_eq!([a.by_kernel()[0], b.by_kernel()[0]], [0, 0]);
}

#[tokio::test]
async fn what_does_not_pass_the_interface_goes_through_the_kernel() {
    let host = namespaces::host(1);
    let server = bind(&host, (Ipv4Addr::UNSPECIFIED, 0)).expect("binds");
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let client = host.enter(|| Endpoint::bind(local, secret(), Config::default())).expect("binds");
    let (ours, theirs) = connect(&client, &server, local.ip()).await;
    transfer(&ours, &theirs, 100_000).await;
    assert!(host.by_kernel()[0] > 2);
}

/// The program does not put fragments together. The kernel does, and gives the datagram to its own socket.
#[tokio::test]
async fn fragments_come_through_the_kernel() {
    let host = namespaces::host(1);
    let server = bind(&host, (Ipv4Addr::UNSPECIFIED, 0)).expect("binds");
    let to = SocketAddr::new(host.v4[0], server.local_addr().port());
    let mut buffer = [0; 2_000];
    for (mtu, through_kernel) in [("mtu lock 200", 1), ("", 1), ("mtu lock 200", 2)] {
        namespaces::batch(&format!("route replace {}/32 dev br0 src {SWITCH_V4} {mtu}", host.v4[0]));
        let prober = plain().await;
        prober.send_to(&hello(&secret(), 7), to).await.expect("sent");
        let (_, from) = within(prober.recv_from(&mut buffer)).await.expect("an answer");
        assert_eq!((from, host.by_kernel()[0]), (to, through_kernel));
    }
    // A fragmented datagram over IPv6, which is none of ours: it is counted, and nothing ends.
    drop(server);
    freed(&host).await;
    let server = bind(&host, (Ipv6Addr::UNSPECIFIED, 0)).expect("binds");
    let to = SocketAddr::new(host.v6, server.local_addr().port());
    let prober = tokio::net::UdpSocket::bind("[::]:0").await.expect("binds");
    prober.send_to(&pseudo_random(1, 3_000), to).await.expect("sent");
    prober.send_to(&hello(&secret(), 8), to).await.expect("sent");
    within(prober.recv_from(&mut buffer)).await.expect("an answer");
    assert_eq!(host.by_kernel()[0], 3);
}
