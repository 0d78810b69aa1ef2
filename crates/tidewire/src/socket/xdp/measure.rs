//! Packets a second and a core, over a veth pair: AF_XDP beside `sendmmsg` and `recvmmsg` without GSO, and
//! beside our kernel sockets with it.
//!
//! A measurement and no test: `cargo test --release -p tidewire --features xdp --lib -- --ignored
//! --nocapture packets_a_second` as root. `docs/xdp.md` has its figures. One thread sends as fast as it can,
//! another receives. CPU time is that of each thread: a veth moves packets in the thread that sends them, or
//! in the kernel's `ksoftirqd`, whose time is added to the receiver's.

use std::fs::{self, File};
use std::future::poll_fn;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg};
use nix::sys::time::TimeValLike as _;
use tidewire_proto::connection::Transmit;

use super::{Kernel, Socket, XdpConfig};

/// Datagrams of a system call or batch.
const BATCH: usize = 32;
/// How long a receiver waits before it looks whether it is stopped.
const PATIENCE: Duration = Duration::from_millis(100);
const MEASURED: Duration = Duration::from_secs(3);
const NAMES: [&str; 2] = ["tw-measure-a", "tw-measure-b"];
const ENDS: [&str; 2] = ["10.79.0.1:7700", "10.79.0.2:7700"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// System calls for many datagrams, each of its own.
    Messages,
    /// Our kernel socket with GSO and GRO.
    Joined,
    Xdp,
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip is there");
    assert!(status.success(), "ip {arguments}");
}

fn hosts() {
    let [a, b] = NAMES;
    ip(&format!("netns add {a}"));
    ip(&format!("netns add {b}"));
    ip(&format!("link add veth0 netns {a} type veth peer name veth0 netns {b}"));
    for (name, end) in NAMES.iter().zip(ENDS) {
        ip(&format!("-n {name} address add {}/24 dev veth0", end.split(':').next().expect("a host")));
        ip(&format!("-n {name} link set veth0 up"));
    }
}

/// CPU time of this thread.
fn own_cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("own usage");
    Duration::from_micros((usage.user_time() + usage.system_time()).num_microseconds() as u64)
}

/// CPU time of all `ksoftirqd`.
fn softirq_cpu() -> Duration {
    let time = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let rest = stat.split_once("(ksoftirqd/")?.1.split_once(") ")?.1;
        let field = |n: usize| rest.split(' ').nth(n)?.parse::<u64>().ok();
        // Fields 14 and 15 of proc(5), in hundredths of a second.
        Some(field(11)? + field(12)?)
    };
    Duration::from_millis(10 * fs::read_dir("/proc").expect("proc").flatten().filter_map(time).sum::<u64>())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn open(kind: Kind, address: &str) -> Box<dyn Socket> {
    let address = address.parse().expect("an address");
    match kind {
        Kind::Xdp => Box::new(super::bind(address, 1, &XdpConfig::new("veth0")).expect("binds").remove(0)),
        _ => Box::new(Kernel::bind(address).expect("binds")),
    }
}

/// Sends until it is stopped, and returns how many datagrams.
fn send(kind: Kind, bytes: usize, stop: &AtomicBool) -> u64 {
    let destination: SocketAddr = ENDS[1].parse().expect("an address");
    let (data, mut sent) = (vec![7; bytes * BATCH], 0);
    if kind == Kind::Messages {
        let socket = messages(ENDS[0]);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
        let to = [Some(destination.into()); BATCH];
        let slices: Vec<_> = data.chunks(bytes).map(|datagram| [IoSlice::new(datagram)]).collect();
        while !stop.load(Ordering::Relaxed) {
            let call = sendmmsg(socket.as_raw_fd(), &mut headers, &slices, to, [], MsgFlags::empty());
            sent += call.map_or(0, |call| call.count() as u64);
        }
        return sent;
    }
    runtime().block_on(async {
        let mut socket = open(kind, ENDS[0]);
        let transmit = Transmit { destination, source: None, ecn: None, len: data.len(), segment_size: Some(bytes) };
        while !stop.load(Ordering::Relaxed) {
            sent += poll_fn(|cx| socket.poll_send(cx, &transmit, &data)).await.map_or(0, |()| BATCH as u64);
            tokio::task::yield_now().await;
        }
    });
    sent
}

/// Receives until it is stopped, and returns how many datagrams.
fn receive(kind: Kind, stop: &AtomicBool) -> u64 {
    let mut received = 0;
    if kind == Kind::Messages {
        let socket = messages(ENDS[1]);
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
        let mut buffers = vec![[0; 2_048]; BATCH];
        while !stop.load(Ordering::Relaxed) {
            let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
            let call = recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_WAITFORONE, None);
            received += call.map_or(0, |call| call.count() as u64);
        }
        return received;
    }
    runtime().block_on(async {
        let mut socket = open(kind, ENDS[1]);
        while !stop.load(Ordering::Relaxed) {
            let came = tokio::time::timeout(PATIENCE, poll_fn(|cx| socket.poll_receive(cx, false))).await;
            if matches!(came, Ok(Ok(()))) {
                socket.take(&mut |train| received += train.datagrams.len() as u64);
            }
        }
    });
    received
}

/// A socket for messages, with the buffers of our own.
fn messages(address: &str) -> socket2::Socket {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).expect("a socket");
    let address: SocketAddr = address.parse().expect("an address");
    socket.bind(&address.into()).expect("binds");
    let _ = (socket.set_recv_buffer_size(4 << 20), socket.set_send_buffer_size(4 << 20));
    socket
}

/// Thousands of datagrams that were sent and received a second of CPU, and that arrived a second.
fn run(kind: Kind, bytes: usize) -> [f64; 3] {
    let stop = Arc::new(AtomicBool::new(false));
    let start = |host: usize, work: Box<dyn FnOnce() -> u64 + Send>| {
        thread::spawn(move || {
            let namespace = File::open(format!("/run/netns/{}", NAMES[host])).expect("a namespace");
            setns(namespace, CloneFlags::CLONE_NEWNET).expect("entered");
            let began = own_cpu();
            (work() as f64 / 1e3, (own_cpu() - began).as_secs_f64())
        })
    };
    let softirq = softirq_cpu();
    let stops = Arc::clone(&stop);
    let receiver = start(1, Box::new(move || receive(kind, &stops)));
    thread::sleep(Duration::from_millis(200));
    let stops = Arc::clone(&stop);
    let sender = start(0, Box::new(move || send(kind, bytes, &stops)));
    thread::sleep(MEASURED);
    stop.store(true, Ordering::Relaxed);
    let [(sent, sending), (received, receiving)] = [sender, receiver].map(|end| end.join().expect("no panic"));
    let receiving = receiving + (softirq_cpu() - softirq).as_secs_f64();
    [sent / sending, received / receiving, received / MEASURED.as_secs_f64()]
}

#[test]
#[ignore = "a measurement: see the module"]
fn packets_a_second() {
    hosts();
    for bytes in [100, 1_400] {
        let mut base = None;
        for kind in [Kind::Messages, Kind::Joined, Kind::Xdp] {
            let runs: Vec<_> = (0..3).map(|_| run(kind, bytes)).collect();
            let [sent, received, arrived] = [0, 1, 2].map(|figure| {
                let mut figures: Vec<f64> = runs.iter().map(|run| run[figure]).collect();
                figures.sort_by(f64::total_cmp);
                figures[1]
            });
            let [base_sent, base_received] = *base.get_or_insert([sent, received]);
            println!(
                "{bytes:>5} bytes  {:<9} sent {sent:>5.0} k a core ({:.2}), received {received:>5.0} k ({:.2}), \
                 {arrived:>5.0} k/s",
                format!("{kind:?}"),
                sent / base_sent,
                received / base_received,
            );
        }
    }
    NAMES.iter().for_each(|name| ip(&format!("netns delete {name}")));
}
