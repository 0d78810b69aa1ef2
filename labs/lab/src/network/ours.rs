//! A connection of our library between two nodes, with one stream.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use tidewire::{CloseCode, Config, Connection, Endpoint, Hop, Secret, Stats, new_secret};
use tidewire_sim::load::Flow as Stream;
use tidewire_sim::network::{Content, FlowReport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::content::{Next, Run, Sink, Source};
use super::{Flow, Place, relay};
use crate::nodes::Nodes;

/// Bytes per read.
const BLOCK: usize = 64 << 10;
/// Longest time for a handshake.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How often an end looks whether the run has ended.
const STEP: Duration = Duration::from_millis(20);

/// A running flow. Its threads end with the run.
#[derive(Debug)]
pub(super) struct Ours {
    sink: Arc<Sink>,
    run: Arc<Run>,
    near: JoinHandle<anyhow::Result<Stats>>,
    far: JoinHandle<anyhow::Result<()>>,
}

impl Ours {
    /// Connects, across the relays if there are any. The stream begins `start` after the beginning of the
    /// run.
    pub(super) fn start(
        nodes: &Nodes,
        ([from, to], relays): ([Place; 2], &[Place]),
        [near, far]: &[Config; 2],
        streams: &[Stream],
        limit: Duration,
        seed: u64,
        run: &Arc<Run>,
    ) -> anyhow::Result<Self> {
        let [stream] = streams else { bail!("a connection in the lab has one stream: write more flows") };
        let content = Content::of_stream(stream);
        let secret = Arc::new(new_secret()?);
        let hop = (!relays.is_empty()).then(new_secret).transpose()?;
        let sink = Arc::new(Sink::new(&content, stream.start, seed));
        let source = Source::new(&content, stream.start, seed);
        let (tell, told) = channel();
        let (ready, is_ready) = channel();
        let listen = SocketAddr::from((to.address, 0));
        let spawn_far = {
            let (secret, config, sink, run) = (Arc::clone(&secret), far.clone(), Arc::clone(&sink), Arc::clone(run));
            let secrets = (secret, hop.clone());
            move || std::thread::spawn(move || alone(receive(listen, secrets, config, tell, &sink, &run)))
        };
        // A thread inherits the namespace of the one that makes it.
        let far = nodes.inside(to.node, spawn_far)?;
        let address = told.recv_timeout(PATIENCE).context("the far end does not listen")?;
        let hop = hop.map(|secret| relay::start(nodes, relays, (address, secret), run)).transpose()?;
        let own = SocketAddr::from((from.address, 0));
        let spawn_near = {
            let (config, run) = (near.clone(), Arc::clone(run));
            let ends = (own, address, hop);
            move || std::thread::spawn(move || alone(send(ends, &secret, config, ready, source, limit, &run)))
        };
        let near = nodes.inside(from.node, spawn_near)?;
        if is_ready.recv_timeout(PATIENCE).is_err() {
            run.end();
            match near.join() {
                Ok(Err(error)) => return Err(error.context("our connection across the network")),
                _ => bail!("our connection was not made within {} s", PATIENCE.as_secs()),
            }
        }
        Ok(Self { sink, run: Arc::clone(run), near, far })
    }
}

impl Flow for Ours {
    fn is_over(&self) -> bool {
        self.sink.is_whole()
    }

    fn end(self: Box<Self>) -> anyhow::Result<FlowReport> {
        let mut report = self.sink.report("tidewire", self.run.wait().elapsed());
        let near = self.near.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // The far end is closed by the near one.
        let _ = self.far.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let stats = near?;
        (report.packets, report.repeated) = (stats.packets.sent, stats.packets.repair);
        Ok(report)
    }
}

/// Runs one end or relay on this thread.
pub(super) fn alone<T>(end: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(end)
}

async fn receive(
    listen: SocketAddr,
    (secret, hop): (Arc<Secret>, Option<Secret>),
    config: Config,
    tell: Sender<SocketAddr>,
    sink: &Sink,
    run: &Run,
) -> anyhow::Result<()> {
    let endpoint = match hop {
        Some(hop) => Endpoint::behind(listen, hop, &*secret, &config)?,
        None => Endpoint::bind(listen, &*secret, config)?,
    };
    tell.send(endpoint.local_addr())?;
    let reading = async {
        let connection = endpoint.accept().await.context("the socket failed")?;
        let mut stream = connection.accept().await.context("the connection was lost")?;
        let mut block = vec![0; BLOCK];
        while let length @ 1.. = stream.read(&mut block).await? {
            let zero = run.zero().context("bytes came before the run began")?;
            sink.take(&block[..length], zero.elapsed());
        }
        anyhow::Ok(())
    };
    or_ended(run, reading).await.unwrap_or(Ok(()))?;
    // The near end closes the connection.
    ended(run).await;
    endpoint.close().await;
    Ok(())
}

async fn send(
    (own, far, hop): (SocketAddr, SocketAddr, Option<Hop>),
    secret: &Secret,
    config: Config,
    ready: Sender<()>,
    source: Source,
    limit: Duration,
    run: &Run,
) -> anyhow::Result<Stats> {
    let endpoint = match &hop {
        Some(hop) => Endpoint::via(hop.clone(), secret, &config)?,
        None => Endpoint::bind(own, secret, config)?,
    };
    let connection = match hop {
        Some(_) => endpoint.connect_via(None).await?,
        None => endpoint.connect(far).await?,
    };
    ready.send(())?;
    while run.zero().is_none() && !run.has_ended() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let written = tokio::time::timeout(limit, write(&connection, source, run)).await;
    if let Ok(written) = written {
        written?;
    }
    ended(run).await;
    let stats = connection.stats();
    connection.close(CloseCode::Done, "");
    endpoint.close().await;
    Ok(stats)
}

/// Writes until the content or the run ends.
async fn write(connection: &Connection, mut source: Source, run: &Run) -> anyhow::Result<()> {
    let Some(zero) = run.zero() else { return Ok(()) };
    let mut stream = connection.open().await?;
    loop {
        match source.next(zero.elapsed()) {
            _ if run.has_ended() => return Ok(()),
            Next::Write(bytes) => {
                let Some(written) = or_ended(run, stream.write(bytes)).await else { return Ok(()) };
                source.wrote(written?);
            }
            Next::Wait(time) => tokio::time::sleep(time).await,
            Next::End => {
                stream.shutdown().await?;
                // The stream ends when it is dropped; its bytes are on their way.
                ended(run).await;
                return Ok(());
            }
        }
    }
}

/// The result of `work`; `None` if the run ends before.
async fn or_ended<T>(run: &Run, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    loop {
        match tokio::time::timeout(STEP, work.as_mut()).await {
            Ok(result) => return Some(result),
            Err(_) if run.has_ended() => return None,
            Err(_) => {}
        }
    }
}

/// Waits for the end of the run.
pub(super) async fn ended(run: &Run) {
    while !run.has_ended() {
        tokio::time::sleep(STEP).await;
    }
}
