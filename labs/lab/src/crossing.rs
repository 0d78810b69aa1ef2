//! Numbered packets from one host to another, with the times at which they were sent and received.
//!
//! [`check`](crate::check) and [`way`](crate::way) call it. One thread sends at equal intervals, another
//! receives; both use the emulator's clock. Invariant: when the crossing ends, every packet that was sent is
//! accounted for: it arrived, or the link holds no more packets.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use tidewire_proto::Time;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::IPV4_UDP_HEADERS;
use tidewire_sim::network::topology::Topology;
use tidewire_sim::pair::End;

use crate::emulator::{Counts, Emulator};
use crate::hosts::Hosts;
use crate::nodes::Nodes;
use tidewire_proxy::punctual::be_prompt;

/// Receive buffer for the time in which the receiving thread does not run, as far as the system grants it.
const SOCKET_BUFFER: usize = 4 << 20;
/// How long the receiver waits before it asks whether more packets are in flight.
const PATIENCE: Duration = Duration::from_millis(50);
/// Bytes of a packet's number.
const NUMBER: usize = 8;

/// The packets to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packets {
    /// Length of each packet in bytes, IP header included.
    pub(crate) ip_bytes: usize,
    /// Interval between packets.
    pub(crate) every: Duration,
    /// Number of packets.
    pub(crate) count: usize,
}

/// The result of a crossing.
#[derive(Clone, Debug)]
pub(crate) struct Crossing {
    /// Length of each packet in bytes, IP header included.
    pub(crate) ip_bytes: usize,
    /// When each packet was sent, in the link's time.
    pub(crate) sent: Vec<Time>,
    /// When the emulator took each packet; of a way over several links, none.
    pub(crate) entered: Vec<Time>,
    /// When each packet first arrived, if it did.
    pub(crate) arrived: Vec<Option<Time>>,
}

impl Crossing {
    /// When each packet came to the link; when it was sent, if that was not noted.
    pub(crate) fn entered(&self) -> &[Time] {
        if self.entered.len() == self.sent.len() { &self.entered } else { &self.sent }
    }
}

/// Sends the packets across a new link of this configuration.
pub(crate) fn cross(hosts: &Hosts, config: &DuplexConfig, packets: &Packets) -> anyhow::Result<Crossing> {
    let to = (hosts.address(End::Far), 0);
    let receiver = hosts.inside(End::Far, || UdpSocket::bind(to))??;
    let from = (hosts.address(End::Near), 0);
    let sender = hosts.inside(End::Near, || UdpSocket::bind(from))??;
    let emulator = Emulator::start_noting(hosts.device(End::Near)?, hosts.device(End::Far)?, config, packets.count)?;
    between([sender, receiver], emulator, packets)
}

/// Sends the packets from one node to another, across new links of the topology.
pub(crate) fn cross_nodes(
    nodes: &Nodes,
    [from, to]: [usize; 2],
    topology: &Topology,
    packets: &Packets,
) -> anyhow::Result<Crossing> {
    let [source, target] = [from, to].map(|node| (nodes.address(node), 0));
    let receiver = nodes.inside(to, || UdpSocket::bind(target))??;
    let sender = nodes.inside(from, || UdpSocket::bind(source))??;
    let devices = nodes.devices(topology.links.len())?;
    let configs = topology.links.iter().map(|link| &link.config);
    between([sender, receiver], Emulator::start_all(devices.into_iter().zip(configs), None)?, packets)
}

/// Sends the packets from one socket to the other.
fn between([sender, receiver]: [UdpSocket; 2], emulator: Emulator, packets: &Packets) -> anyhow::Result<Crossing> {
    receiver.set_read_timeout(Some(PATIENCE))?;
    // Best effort: the kernel grants what its limits allow.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, SOCKET_BUFFER);
    sender.connect(receiver.local_addr()?)?;
    let all_sent = AtomicBool::new(false);
    let more = || !all_sent.load(Ordering::Acquire) || in_flight(&emulator.counts()) > 0;
    let (sent, arrived) = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, packets.count, emulator.start_time(), more));
        let sending = scope.spawn(|| send(&sender, packets, emulator.start_time()));
        let sent = sending.join();
        all_sent.store(true, Ordering::Release);
        let ended = sent.and_then(|sent| Ok((sent, receiving.join()?)));
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let entered = emulator.stop()?.entered;
    Ok(Crossing { ip_bytes: packets.ip_bytes, sent: sent.context("cannot send")?, entered, arrived })
}

/// Packets on all links.
fn in_flight(counts: &Counts) -> u64 {
    counts.links.iter().flatten().map(|stats| stats.in_flight).sum()
}

/// Sends each packet at its time, or at once if that has passed.
fn send(sender: &UdpSocket, packets: &Packets, zero: Instant) -> std::io::Result<Vec<Time>> {
    be_prompt();
    let mut payload = vec![0; packets.ip_bytes.saturating_sub(IPV4_UDP_HEADERS).max(NUMBER)];
    let mut sent = Vec::with_capacity(packets.count);
    let mut due = zero.elapsed();
    for number in 0..packets.count as u64 {
        payload[..NUMBER].copy_from_slice(&number.to_be_bytes());
        std::thread::sleep(due.saturating_sub(zero.elapsed()));
        sent.push(Time::ZERO + zero.elapsed());
        sender.send(&payload)?;
        due += packets.every;
    }
    Ok(sent)
}

/// Receives packets until there are no more.
fn receive(receiver: &UdpSocket, count: usize, zero: Instant, more: impl Fn() -> bool) -> Vec<Option<Time>> {
    be_prompt();
    let mut arrived = vec![None; count];
    let mut number = [0; NUMBER];
    loop {
        match receiver.recv(&mut number) {
            Ok(_) => {
                let at = Time::ZERO + zero.elapsed();
                let slot = usize::try_from(u64::from_be_bytes(number)).ok().and_then(|number| arrived.get_mut(number));
                if let Some(slot @ None) = slot {
                    *slot = Some(at);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if !more() {
                    return arrived;
                }
            }
            // An error of a packet sent earlier. The next call continues.
            Err(_) => {}
        }
    }
}
