//! A flow of kernel TCP from the near host to the far one: a source that writes as fast as possible, and a
//! sink that counts.
//!
//! [`contest`](crate::contest) starts it beside our flows. It needs no program: two threads and two sockets
//! that are made on the hosts. Buffers are the system's defaults, as users have them. Invariant: the flow and
//! its threads end when it is dropped.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::Context;
use rustix::net::sockopt::set_tcp_congestion;
use tidewire_sim::pair::End;

use crate::hosts::Hosts;

/// Bytes per call. Chosen: several segments, little compared to a socket's buffer.
const BLOCK: usize = 64 << 10;
/// The congestion controls that this kernel has loaded.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// The congestion control of a host's new connections.
const FIRST_CONTROL: &str = "ipv4/tcp_congestion_control";

/// A running flow.
#[derive(Debug)]
pub struct TcpFlow {
    received: Arc<AtomicU64>,
    ends: [TcpStream; 2],
    threads: Vec<JoinHandle<()>>,
}

impl TcpFlow {
    /// Starts a flow with the congestion control that the kernel calls `control`.
    ///
    /// # Errors
    /// Fails if the kernel has no such control, or the hosts cannot reach each other.
    pub fn start(hosts: &Hosts, control: &str) -> anyhow::Result<Self> {
        let far = hosts.address(End::Far);
        let listener = hosts.inside(End::Far, || TcpListener::bind((far, 0)))??;
        let to = listener.local_addr()?;
        begin_with_reno(hosts)?;
        let source = hosts.inside(End::Near, || TcpStream::connect(to))?.context("no TCP across the link")?;
        set_control(&source, control)?;
        let (sink, _) = listener.accept()?;
        let ends = [source.try_clone()?, sink.try_clone()?];
        let received = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&received);
        let threads = vec![std::thread::spawn(move || send(source)), std::thread::spawn(move || receive(sink, &count))];
        Ok(Self { received, ends, threads })
    }

    /// Bytes that the sink has read.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for TcpFlow {
    fn drop(&mut self) {
        for end in &self.ends {
            // It may be closed already.
            let _ = end.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Gives a connection the congestion control that the kernel calls `control`.
pub(crate) fn set_control(connection: &TcpStream, control: &str) -> anyhow::Result<()> {
    set_tcp_congestion(connection, control).with_context(|| {
        let available = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
        format!("the kernel has no TCP congestion control `{control}` (loaded: {})", available.trim_end())
    })
}

/// Lets new connections of the near host begin with Reno, whatever the machine's default is.
///
/// A connection that begins with BBR is paced for the rest of its life, also after its control was changed
/// (`sk_pacing_status`). Reno is always there and needs no permission.
pub(crate) fn begin_with_reno(hosts: &Hosts) -> anyhow::Result<()> {
    hosts.set(End::Near, FIRST_CONTROL, "reno")
}

/// Writes until the flow is ended.
fn send(mut source: TcpStream) {
    let block = vec![0; BLOCK];
    while source.write_all(&block).is_ok() {}
}

/// Reads until the flow is ended.
fn receive(mut sink: TcpStream, received: &AtomicU64) {
    let mut block = vec![0; BLOCK];
    while let Ok(length @ 1..) = sink.read(&mut block) {
        received.fetch_add(length as u64, Ordering::Relaxed);
    }
}
