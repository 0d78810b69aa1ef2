//! Sockets past the kernel between the two ends of a veth pair: marks, and a queue that is taken.
//!
//! The tests need root and are skipped without it. Whole endpoints are tested in the crate's
//! `tests/sockets/xdp.rs`. Invariant: each test has a thread of its own, which alone leaves the namespace of
//! the process, and its namespaces have no name, so the kernel removes them with the thread.

use std::fs::File;
use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};
use tidewire_proto::path::Ecn;

use super::*;

/// The interface of each end.
pub(super) const NAME: &str = "veth0";

/// Two namespaces that a veth pair joins. Addresses end in 1 and 2.
pub(super) struct Ends([File; 2]);

impl Ends {
    /// Enters the namespace of an end.
    pub fn enter(&self, end: usize) {
        setns(&self.0[end], CloneFlags::CLONE_NEWNET).expect("root");
    }
}

/// Runs a test in a thread that is in the namespace of the first end.
pub(super) fn between_two_ends<F: Future<Output = ()>>(test: impl FnOnce(Ends) -> F + Send) {
    tidewire_testing::needs("root, for network namespaces", nix::unistd::Uid::effective().is_root());
    let inside = || {
        let [first, second] = [0, 1].map(|_| {
            unshare(CloneFlags::CLONE_NEWNET).expect("root");
            File::open("/proc/thread-self/ns/net").expect("proc is mounted")
        });
        let there = format!("/proc/{}/fd/{}", std::process::id(), first.as_raw_fd());
        ip(&format!("link add {NAME} type veth peer name {NAME} netns {there}"));
        let ends = Ends([first, second]);
        for end in [1, 0] {
            ends.enter(end);
            ip(&format!("address add 10.77.0.{}/24 dev {NAME}", end + 1));
            ip(&format!("address add fd77::{}/64 dev {NAME} nodad", end + 1));
            ip(&format!("link set {NAME} up"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(test(ends));
    };
    std::thread::scope(|scope| scope.spawn(inside).join()).expect("no panic");
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip is there");
    assert!(status.success(), "ip {arguments}");
}

/// Sends one datagram and receives it. Returns its mark, and whether it came through the kernel.
async fn pass(from: &mut Xdp, to: &mut Xdp, transmit: &Transmit, datagram: &[u8]) -> (Option<Ecn>, bool) {
    poll_fn(|cx| from.poll_send(cx, transmit, datagram)).await.expect("sent");
    poll_fn(|cx| to.poll_receive(cx, false)).await.expect("received");
    let (mut mark, is_from_kernel) = (None, to.is_from_kernel);
    to.take(&mut |mut train| {
        assert_eq!(train.datagrams.next().as_deref(), Some(datagram));
        mark = train.ecn;
    });
    (mark, is_from_kernel)
}

#[test]
#[ignore = "needs root: network namespaces"]
fn marks_arrive_as_they_were_sent() {
    between_two_ends(async |ends| {
        for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let config = XdpConfig::new(NAME);
            let [mut first, mut second] = [0, 1].map(|end| {
                ends.enter(end);
                bind((any, 7_700).into(), 1, &config).expect("binds").remove(0)
            });
            let to: IpAddr = if any.is_ipv4() { "10.77.0.2" } else { "fd77::2" }.parse().expect("an address");
            let marked = |ecn| Transmit {
                destination: SocketAddr::new(to, 7_700),
                source: None,
                ecn,
                len: 9,
                segment_size: None,
            };
            // The kernel sends until it knows the neighbour.
            while first.envelope(&marked(None)).is_none() {
                assert!(!pass(&mut first, &mut second, &marked(None), b"hear this").await.1);
                tokio::task::yield_now().await;
            }
            for ecn in [None, Some(Ecn::Ect0), Some(Ecn::Ect1), Some(Ecn::Ce)] {
                let passed = pass(&mut first, &mut second, &marked(ecn), b"hear this").await;
                assert_eq!(passed, (ecn, false), "{to}");
            }
        }
    });
}

#[test]
#[ignore = "needs root: network namespaces"]
fn a_queue_that_is_taken_is_named_and_all_else_is_free_again() {
    between_two_ends(async |_ends| {
        let interface = Interface::named(NAME).expect("it is there");
        let taken = Queue::open(interface.index, 0, interface.mtu, XdpMode::Any).expect("opens");
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7_700));
        let refused = bind(address, 1, &XdpConfig::new(NAME)).expect_err("taken").to_string();
        assert!(refused.starts_with("cannot open queue 0 of `veth0`: "), "{refused}");
        assert!(refused.ends_with("(another program has it)"), "{refused}");
        // The port is free for the kernel's sockets, and the hook for the next try. A process that another
        // test starts has our sockets for a moment, so the next try has another port.
        while UdpSocket::bind(address).is_err() {
            tokio::task::yield_now().await;
        }
        drop(taken);
        bind((address.ip(), 7_701).into(), 1, &XdpConfig::new(NAME)).expect("binds");
    });
}
