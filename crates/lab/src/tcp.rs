//! A flow of kernel TCP from the near host to the far one: a source that writes as fast as it may, a sink
//! that counts.
//!
//! [`contest`](crate::contest) starts them beside ours. No program to install: two threads and two sockets,
//! made on the hosts. Buffers are the system's, as a user would leave them. Invariant: the flow ends, and its
//! threads with it, when it is dropped.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::Context;
use rustix::net::sockopt::set_tcp_congestion;
use tidewire_sim::pair::End;

use crate::hosts::Hosts;

/// Bytes of a call; chosen: several segments, little beside a socket's buffer.
const BLOCK: usize = 64 << 10;
/// The controls that this kernel has loaded.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// A running flow.
#[derive(Debug)]
pub struct TcpFlow {
    received: Arc<AtomicU64>,
    ends: [TcpStream; 2],
    threads: Vec<JoinHandle<()>>,
}

impl TcpFlow {
    /// Starts a flow under the congestion control that the kernel calls `control`.
    ///
    /// # Errors
    /// When the kernel has no such control, or the hosts do not reach each other.
    pub fn start(hosts: &Hosts, control: &str) -> anyhow::Result<Self> {
        let far = hosts.address(End::Far);
        let listener = hosts.inside(End::Far, || TcpListener::bind((far, 0)))??;
        let to = listener.local_addr()?;
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
            // One that is closed already is what is wanted.
            let _ = end.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Puts a connection under the congestion control that the kernel calls `control`.
pub(crate) fn set_control(connection: &TcpStream, control: &str) -> anyhow::Result<()> {
    set_tcp_congestion(connection, control).with_context(|| {
        let available = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
        format!("the kernel has no TCP congestion control `{control}` (loaded: {})", available.trim_end())
    })
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
