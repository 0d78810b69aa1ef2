//! A flow of the kernel's TCP between two nodes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use tidewire_sim::network::{Content, Control, FlowReport};

use super::content::{Next, Run, Sink, Source, pause};
use super::{Flow, Place};
use crate::nodes::Nodes;
use crate::tcp::set_control;

/// Bytes per read.
const BLOCK: usize = 64 << 10;
/// Time between two looks whether the connection is there. Chosen: below any delay of interest.
const STEP: Duration = Duration::from_millis(1);

/// The far end of a connection.
#[derive(Debug)]
pub(super) enum Far {
    /// Its side has it.
    Connected(TcpStream),
    /// Its side waits for it.
    Listens(TcpListener),
}

/// A running flow. Its threads end with it.
#[derive(Debug)]
pub(super) struct Kernel {
    kind: &'static str,
    node: usize,
    port: u16,
    sink: Arc<Sink>,
    run: Arc<Run>,
    own: TcpStream,
    /// The other end, once its side has it: an ACK that is lost delays it.
    accepted: Arc<OnceLock<TcpStream>>,
    threads: Vec<JoinHandle<()>>,
}

impl Kernel {
    /// Connects. The flow begins `start` after the beginning of the run.
    pub(super) fn start(
        nodes: &Nodes,
        [from, to]: [Place; 2],
        (control, marks): (Control, bool),
        content: &Content,
        start: Duration,
        seed: u64,
        run: &Arc<Run>,
    ) -> anyhow::Result<Self> {
        let (kind, name) = match control {
            Control::NewReno => ("newreno", "reno"),
            Control::Cubic => ("cubic", "cubic"),
            Control::Bbr => ("bbr", "bbr"),
        };
        // These settings count when a connection is made. The flows connect one after the other.
        nodes.set(from.node, "ipv4/tcp_sack", if control == Control::NewReno { "0" } else { "1" })?;
        nodes.set(from.node, "ipv4/tcp_ecn", if marks { "1" } else { "2" })?;
        // A connection that begins with BBR is paced for the rest of its life.
        nodes.set(from.node, "ipv4/tcp_congestion_control", "reno")?;
        let address = (to.address, 0);
        let listener = nodes.inside(to.node, || TcpListener::bind(address))??;
        let target = listener.local_addr()?;
        let source = nodes.inside(from.node, || TcpStream::connect(target))?.context("no TCP across the network")?;
        set_control(&source, name)?;
        let is_paced = !matches!(content, Content::Bulk { .. });
        source.set_nodelay(is_paced)?;
        let far = Far::Listens(listener);
        Self::carry(kind, from.node, (source, far), content, start, seed, run)
    }

    /// Carries a content over a connection whose near end is at `node`.
    pub(super) fn carry(
        kind: &'static str,
        node: usize,
        (source, far): (TcpStream, Far),
        content: &Content,
        start: Duration,
        seed: u64,
        run: &Arc<Run>,
    ) -> anyhow::Result<Self> {
        let (port, own, accepted) = (source.local_addr()?.port(), source.try_clone()?, Arc::<OnceLock<_>>::default());
        let sink = Arc::new(Sink::new(content, start, seed));
        let (feed, sending) = (Source::new(content, start, seed), Arc::clone(run));
        let (taking, reading, other) = (Arc::clone(&sink), Arc::clone(run), Arc::clone(&accepted));
        let threads = vec![
            std::thread::spawn(move || send(source, feed, &sending)),
            std::thread::spawn(move || accept(far, &other, &taking, &reading)),
        ];
        Ok(Self { kind, node, port, sink, run: Arc::clone(run), own, accepted, threads })
    }
}

impl Flow for Kernel {
    fn is_over(&self) -> bool {
        self.sink.is_whole()
    }

    fn end(mut self: Box<Self>) -> anyhow::Result<FlowReport> {
        let report = self.sink.report(self.kind, self.run.wait().elapsed());
        for end in self.accepted.get().into_iter().chain([&self.own]) {
            // It may be closed already.
            let _ = end.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        Ok(report)
    }

    fn socket(&self) -> Option<(usize, u16)> {
        Some((self.node, self.port))
    }
}

/// Writes until the content or the run ends.
fn send(mut socket: TcpStream, mut source: Source, run: &Run) {
    let zero = run.wait();
    while !run.has_ended() {
        match source.next(zero.elapsed()) {
            Next::Write(bytes) => {
                let Ok(written @ 1..) = socket.write(bytes) else { return };
                source.wrote(written);
            }
            Next::Wait(time) => pause(time),
            Next::End => {
                // The other end reads the rest.
                let _ = socket.shutdown(Shutdown::Write);
                return;
            }
        }
    }
}

/// Waits for the connection, and reads from it.
fn accept(far: Far, other: &OnceLock<TcpStream>, sink: &Sink, run: &Run) {
    let socket = match far {
        Far::Connected(socket) => socket,
        Far::Listens(listener) => {
            if listener.set_nonblocking(true).is_err() {
                return;
            }
            loop {
                match listener.accept() {
                    Ok((socket, _)) => break socket,
                    Err(_) if run.has_ended() => return,
                    Err(_) => pause(STEP),
                }
            }
        }
    };
    if let (Ok(()), Ok(own)) = (socket.set_nonblocking(false), socket.try_clone()) {
        let _ = other.set(own);
        receive(socket, sink, run);
    }
}

/// Reads until the flow is ended.
fn receive(mut socket: TcpStream, sink: &Sink, run: &Run) {
    let zero = run.wait();
    let mut block = vec![0; BLOCK];
    while let Ok(length @ 1..) = socket.read(&mut block) {
        // A socket that was shut still gives what comes, for as long as the other end has it.
        if run.has_ended() {
            return;
        }
        sink.take(&block[..length], zero.elapsed());
    }
}
