//! Ways to peers: through a gateway, and to a neighbour whose Ethernet address moves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{BYTES, bind, connect, freed, set, transfer};
use crate::namespaces::{self, Host, INTERFACE};
use crate::pair::within;

/// Addresses of the far host behind the gateway.
const FAR: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 90, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfd90, 0, 0, 0, 0, 0, 0, 1))];

/// A near host, a gateway that forwards by its kernel, and a far host that is reached only through it.
fn hosts() -> [Host; 3] {
    let hosts = [namespaces::host(1), namespaces::host(1), namespaces::host(1)];
    let [near, gateway, far] = &hosts;
    // All are on one switch: nobody shall tell the others of the shorter way.
    for end in [near, far] {
        set(end, &[("ipv4/conf/eth0/accept_redirects", "0"), ("ipv6/conf/eth0/accept_redirects", "0")]);
        set(end, &[("ipv4/conf/all/accept_redirects", "0")]);
    }
    set(gateway, &[("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")]);
    set(gateway, &[("ipv4/conf/all/send_redirects", "0"), ("ipv4/conf/eth0/send_redirects", "0")]);
    let [far_v4, far_v6] = FAR;
    far.ip(&format!(
        "address add {far_v4}/32 dev {INTERFACE}
        address add {far_v6}/128 dev {INTERFACE} nodad
        route add {}/32 via {}
        route add {}/128 via {}",
        near.v4[0], gateway.v4[0], near.v6, gateway.v6
    ));
    gateway.ip(&format!("route add {far_v4}/32 via {}\nroute add {far_v6}/128 via {}", far.v4[0], far.v6));
    near.ip(&format!("route add {far_v4}/32 via {}\nroute add {far_v6}/128 via {}", gateway.v4[0], gateway.v6));
    hosts
}

#[tokio::test]
async fn a_gateway_is_the_next_hop() {
    let [near, gateway, far] = hosts();
    for (from, to) in [(near.v4[0], FAR[0]), (near.v6, FAR[1])] {
        let (client, server) = (bind(&near, (from, 0)).expect("binds"), bind(&far, (to, 0)).expect("binds"));
        let (ours, theirs) = connect(&client, &server, to).await;
        transfer(&ours, &theirs, BYTES).await;
        drop((ours, theirs, client, server));
        freed(&near).await;
        freed(&far).await;
    }
    assert_eq!([near.by_kernel()[0], far.by_kernel()[0]], [0, 0]);
    let forwarded = [gateway.counter_v4("Ip", "ForwDatagrams"), gateway.counter_v6("Ip6OutForwDatagrams")];
    // No packet is longer than the interface's MTU.
    assert!(forwarded.iter().all(|count| *count > BYTES as u64 / 1_500), "{forwarded:?}");
}

/// The gateway takes another Ethernet address in the middle of a transfer, and tells or does not tell. If it
/// does not, the kernel finds out because it is told that the neighbour is in use.
#[tokio::test]
async fn a_neighbour_that_moves_is_found_again() {
    for (announce, station) in [("1", "02:00:00:00:78:51"), ("0", "02:00:00:00:78:52")] {
        let [near, gateway, far] = hosts();
        set(&gateway, &[("ipv4/conf/eth0/arp_notify", announce)]);
        for end in [&near, &far] {
            // The kernel's defaults are 30 s, 5 s and 3 times 1 s.
            set(
                end,
                &[
                    ("ipv4/neigh/eth0/base_reachable_time_ms", "500"),
                    ("ipv4/neigh/eth0/delay_first_probe_time", "1"),
                    ("ipv4/neigh/eth0/retrans_time_ms", "100"),
                ],
            );
        }
        let client = bind(&near, (near.v4[0], 0)).expect("binds");
        let server = bind(&far, (FAR[0], 0)).expect("binds");
        let (ours, theirs) = connect(&client, &server, FAR[0]).await;
        transfer(&ours, &theirs, BYTES).await;
        let moves = async {
            while theirs.stats().bytes.app_received < (BYTES + BYTES / 4) as u64 {
                tokio::task::yield_now().await;
            }
            gateway.ip(&format!("link set {INTERFACE} address {station}"));
        };
        tokio::join!(transfer(&ours, &theirs, BYTES), moves);
        // The kernel's sockets carry it until the way is known again. Then nothing leaves by them.
        let bypasses = async {
            loop {
                let before = near.by_kernel()[1];
                transfer(&ours, &theirs, BYTES).await;
                if near.by_kernel()[1] == before {
                    break;
                }
            }
        };
        within(bypasses).await;
        assert_eq!([near.by_kernel()[0], far.by_kernel()[0]], [0, 0]);
    }
}
