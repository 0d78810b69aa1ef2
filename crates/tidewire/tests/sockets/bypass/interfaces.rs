//! Interfaces that cannot be used, each with a sentence that says why, and rights without root.

use std::net::Ipv4Addr;
use std::process::Command;

use tidewire::{XdpConfig, XdpMode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::child::{Server, serve_if_told};
use super::{bind, bind_over, freed};
use crate::namespaces::{self, Host, INTERFACE};
use crate::pair::{pseudo_random, within};

/// Why an endpoint cannot be bound over an interface. The kernel's sockets work at the same address, as soon
/// as no process that another test starts holds our sockets any more. So each call needs a port of its own.
async fn refusal(host: &Host, port: u16, interface: &str, mode: XdpMode) -> String {
    let address = (Ipv4Addr::UNSPECIFIED, port);
    let error = bind_over(host, address, 1, &XdpConfig::new(interface).mode(mode)).expect_err("refused");
    let is_free = || host.enter(|| std::net::UdpSocket::bind(address)).is_ok();
    within(async {
        while !is_free() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    error.to_string()
}

#[tokio::test]
async fn interfaces_that_cannot_be_used_are_named_with_the_reason() {
    let host = namespaces::host(1);
    let absent = refusal(&host, 7_701, "absent", XdpMode::Any).await;
    assert_eq!(absent, "there is no interface `absent`: `ip link` lists them");
    assert_eq!(refusal(&host, 7_702, "lo", XdpMode::Any).await, "interface `lo` is no Ethernet");
    host.ip("tuntap add tun0 mode tun\nlink set tun0 up");
    assert_eq!(refusal(&host, 7_703, "tun0", XdpMode::Any).await, "interface `tun0` is no Ethernet");
    let no_copy = refusal(&host, 7_704, INTERFACE, XdpMode::ZeroCopy).await;
    assert!(no_copy.starts_with("cannot open queue 0 of `eth0`: "), "{no_copy}");
    let taken = bind(&host, (Ipv4Addr::UNSPECIFIED, 7_700)).expect("binds");
    let second = refusal(&host, 7_705, INTERFACE, XdpMode::Any).await;
    assert!(second.starts_with("cannot attach a program to `eth0`: "), "{second}");
    assert!(second.ends_with("(another program has it)"), "{second}");
    drop(taken);
    freed(&host).await;
    host.ip(&format!("link set {INTERFACE} down"));
    let down = refusal(&host, 7_706, INTERFACE, XdpMode::Any).await;
    assert_eq!(down, "interface `eth0` is down: `ip link set eth0 up`");
}

/// A command that runs another one with these rights only, and with so many KiB of memory to lock.
fn limited(capabilities: &str, locked: &str) -> Vec<String> {
    let rights = capabilities.split(',').fold("-all".to_owned(), |rights, name| format!("{rights},+{name}"));
    let limit = format!("ulimit -l {locked}; exec \"$@\"");
    let mut words = ["sh", "-c", &limit, "sh"].map(str::to_owned).to_vec();
    words.extend(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(str::to_owned));
    words.extend(["inh-caps", "ambient-caps", "bounding-set"].map(|set| format!("--{set}={rights}")));
    let itself = std::env::current_exe().expect("a path");
    let listed = Command::new(&words[0]).args(&words[1..]).arg(itself).arg("--list").output();
    let possible = listed.is_ok_and(|output| output.status.success());
    tidewire_testing::needs("setpriv, and a test binary that another user may run", possible);
    words
}

#[tokio::test]
async fn three_capabilities_are_enough() {
    serve_if_told().await;
    let (a, b) = (namespaces::host(1), namespaces::host(1));
    let wrapper = limited("net_admin,net_raw,bpf", "8192");
    let client = bind(&a, (a.v4[0], 0)).expect("binds");
    let mut server = Server::start(&b, "bypass::interfaces::three_capabilities_are_enough", &wrapper);
    let connection = server.connected(&client).await;
    let (mut stream, data) = (connection.open().await.expect("open"), pseudo_random(1, 300_000));
    stream.write_all(&data).await.expect("taken");
    let mut back = vec![0; data.len()];
    within(stream.read_exact(&mut back)).await.expect("echoed");
    assert!(back == data);
    assert_eq!(b.hook(INTERFACE).as_deref(), Some("xdp"));
    // The first packet of the client may come before the program.
    assert!(b.by_kernel()[0] < 10);
}

#[tokio::test]
async fn what_is_missing_without_root_is_said() {
    serve_if_told().await;
    let host = namespaces::host(1);
    let name = "bypass::interfaces::what_is_missing_without_root_is_said";
    for (capabilities, locked, says) in [
        ("net_raw,bpf", "8192", "cannot attach a program to `eth0`: Operation not permitted (os error 1) (it needs"),
        ("net_admin,bpf", "8192", "cannot open queue 0 of `eth0`: Operation not permitted (os error 1) (it needs"),
        ("net_admin,net_raw,bpf", "4096", "6 MiB of locked memory"),
    ] {
        let wrapper = limited(capabilities, locked);
        let told = Server::start(&host, name, &wrapper).said();
        assert!(told.contains(says), "{capabilities}, {locked} KiB: {told}");
    }
}
