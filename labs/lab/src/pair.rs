//! Two endpoints of our library, one on each host, and one file of zeros from the near to the far one: like
//! the simulator's `Trial`, but over real sockets and in real time.
//!
//! `tidewire-papers` runs experiments with it whose configurations no option of the command has. Each end has
//! its own thread and runtime. Both are in this process, and so is the link between them. Invariant:
//! statistics are returned only if the file arrived completely.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tidewire::{CloseCode, Config, Endpoint, Secret, Stats, new_secret};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::pair::End;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::emulator::Emulator;
use crate::hosts::Hosts;
use tidewire_figures::Distribution;

/// Bytes per call. Chosen: several symbols, little compared to a file.
const BLOCK: usize = 64 << 10;

/// The result of carrying a file.
#[derive(Clone, Debug)]
pub struct Carried {
    /// Statistics of the sender.
    pub near: Stats,
    /// Statistics of the receiver, which measures the delay of source symbols.
    pub far: Stats,
    /// From the first byte written to the last byte read.
    pub time: Duration,
    /// Lateness of the packets that the emulator handed on.
    pub late: Distribution,
    /// Packets that the emulator did not read in time. If there are any, the figures are void.
    pub unread: u64,
}

/// Carries a file of `bytes` bytes over a new link within `limit`.
///
/// # Errors
/// Fails if the hosts cannot be made, or the file does not arrive.
pub fn carry(link: &DuplexConfig, [near, far]: [Config; 2], bytes: u64, limit: Duration) -> anyhow::Result<Carried> {
    let hosts = Hosts::start()?;
    let emulator = Emulator::start(hosts.device(End::Near)?, hosts.device(End::Far)?, link)?;
    let secret = new_secret()?;
    let listen = SocketAddr::from((hosts.address(End::Far), 0));
    let (tell, told) = channel();
    let (near, far) = std::thread::scope(|scope| {
        let (hosts, secret) = (&hosts, &secret);
        let far =
            scope.spawn(move || hosts.inside(End::Far, move || alone(limit, receive(listen, secret, far, tell)))?);
        let near = hosts.inside(End::Near, move || alone(limit, send(told, secret, near, bytes)));
        let far = far.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        anyhow::Ok((near?, far))
    })?;
    // The error of one end is also the reason why the other end fails.
    let ((far, ended, arrived), (near, began)) = match (far, near) {
        (Ok(far), Ok(near)) => (far, near),
        (Err(far), Err(near)) => bail!("the listening end: {far:#}; the other one: {near:#}"),
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    if arrived != bytes {
        bail!("{arrived} of {bytes} bytes arrived");
    }
    let unread = hosts.unread(End::Near)? + hosts.unread(End::Far)?;
    let late = emulator.stop()?.late.distribution();
    Ok(Carried { near, far, time: ended.saturating_duration_since(began), late, unread })
}

/// Runs one end on this thread.
pub(crate) fn alone<T>(limit: Duration, end: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(limit, end).await.with_context(|| format!("not there after {} s", limit.as_secs()))?
    })
}

/// Receives data. Returns the statistics, when the last byte arrived, and the number of bytes.
async fn receive(
    listen: SocketAddr,
    secret: &Secret,
    config: Config,
    tell: Sender<SocketAddr>,
) -> anyhow::Result<(Stats, Instant, u64)> {
    let endpoint = Endpoint::bind(listen, secret, config)?;
    tell.send(endpoint.local_addr())?;
    let connection = endpoint.accept().await.context("the socket failed")?;
    let mut stream = connection.accept().await.context("the connection was lost")?;
    let (mut block, mut arrived) = (vec![0; BLOCK], 0);
    while let length @ 1.. = stream.read(&mut block).await? {
        arrived += length as u64;
    }
    let (stats, ended) = (connection.stats(), Instant::now());
    connection.close(CloseCode::Done, "");
    endpoint.close().await;
    Ok((stats, ended, arrived))
}

/// Sends zeros until the other end has all of them. Returns the statistics, and when it began.
async fn send(
    told: Receiver<SocketAddr>,
    secret: &Secret,
    config: Config,
    bytes: u64,
) -> anyhow::Result<(Stats, Instant)> {
    let far = told.recv().context("the far end does not listen")?;
    let endpoint = Endpoint::bind(SocketAddr::from(([0, 0, 0, 0], 0)), secret, config)?;
    let connection = endpoint.connect(far).await?;
    let mut stream = connection.open().await?;
    let (began, block) = (Instant::now(), vec![0; BLOCK]);
    let mut left = bytes;
    while left > 0 {
        let length = left.min(BLOCK as u64) as usize;
        stream.write_all(&block[..length]).await?;
        left -= length as u64;
    }
    stream.shutdown().await?;
    connection.closed().await;
    Ok((connection.stats(), began))
}
