//! Suite `shards`: many connections to one listener over loopback, with one socket and with two, in turns.
//!
//! Clients and listener have a runtime each, with a thread per core, as a server has. Each client has its own
//! socket, so that the kernel spreads the connections. Both ends share the cores, so a second socket can only
//! use what one task leaves idle.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidewire::{CloseCode, Config, Endpoint, Secret, new_secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::tidewire::read_whole;
use super::{Pattern, Work};
use crate::report::{Cell, Report, Table};
use crate::timing::Times;

/// Sockets of the listener. The others are compared with the first.
const SHARDS: [usize; 2] = [1, 2];
const CONNECTIONS: u64 = 8;
/// Threads of each runtime.
const THREADS: usize = 2;

/// Runs the suite.
pub fn run(work: Work, report: &mut Report) {
    let mut taken = [const { (Vec::new(), Vec::new()) }; SHARDS.len()];
    for round in 0..work.rounds {
        for turn in 0..SHARDS.len() {
            let at = (turn + round) % SHARDS.len();
            eprintln!("shards: round {} of {}, {} sockets", round + 1, work.rounds, SHARDS[at]);
            let before = process_time();
            let wall = transfer(SHARDS[at], work.bytes / CONNECTIONS).expect("all has come");
            taken[at].0.push(wall.as_secs_f64());
            taken[at].1.push((process_time() - before).as_secs_f64());
        }
    }
    let gigabytes = (work.bytes / CONNECTIONS * CONNECTIONS) as f64 * 1e-9;
    let times = |rounds: &Vec<f64>| Times { rounds: rounds.clone() };
    let (walls, cpus) = (taken.each_ref().map(|(wall, _)| times(wall)), taken.each_ref().map(|(_, cpu)| times(cpu)));
    let rows = SHARDS.iter().enumerate().map(|(row, shards)| {
        let rate = walls[row].map(|seconds| 8.0 * gigabytes / seconds);
        let faster = walls[row].with(&walls[0], |seconds, reference| reference / seconds);
        let dearer = cpus[row].with(&cpus[0], |seconds, reference| seconds / reference);
        let cpu = Cell::with_ratio(cpus[row].map(|seconds| seconds / gigabytes), dearer);
        (
            format!("{shards} {}", if *shards == 1 { "socket" } else { "sockets" }),
            vec![Some(Cell::with_ratio(rate, faster)), Some(cpu)],
        )
    });
    report.tables.push(Table {
        id: "shards",
        title: "Many connections to one listener",
        note: format!(
            "{CONNECTIONS} connections over loopback, {} MB together, clients and listener with {THREADS} threads each. In brackets over the first row.",
            work.bytes / 1_000_000
        ),
        columns: ["listener", "Gbit/s together", "both ends, CPU s/GB"].map(String::from).into(),
        rows: rows.collect(),
    });
}

/// CPU time that this process has used.
fn process_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()
}

/// Transfers that many bytes on each connection. Returns the time after all were connected.
fn transfer(shards: usize, bytes: u64) -> io::Result<Duration> {
    let (near, far, secret) = (runtime()?, runtime()?, new_secret()?);
    let shards = NonZeroUsize::new(shards).unwrap_or(NonZeroUsize::MIN);
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = {
        let _entered = far.enter();
        Endpoint::bind_sharded(address, secret.clone(), Config::default(), shards)?
    };
    let remote = listener.local_addr();
    let accepting = far.spawn(accept(Arc::new(listener), bytes));
    let wall = near.block_on(send(remote, secret, bytes))?;
    far.block_on(accepting).map_err(io::Error::other)??;
    Ok(wall)
}

/// Accepts all connections and reads a stream of each to its end.
async fn accept(listener: Arc<Endpoint>, bytes: u64) -> io::Result<()> {
    let mut readers = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let connection = listener.accept().await.map_err(io::Error::other)?;
        readers.spawn(read_whole(connection, bytes));
    }
    readers.join_all().await.into_iter().collect()
}

async fn send(remote: SocketAddr, secret: Secret, bytes: u64) -> io::Result<Duration> {
    let mut connected = Vec::new();
    for _ in 0..CONNECTIONS {
        let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret.clone(), Config::default())?;
        connected.push((endpoint.connect(remote).await.map_err(io::Error::other)?, endpoint));
    }
    let (start, mut writers) = (Instant::now(), JoinSet::new());
    for (connection, endpoint) in connected {
        writers.spawn(async move {
            let mut stream = connection.open().await?;
            let (pattern, mut place) = (Pattern::new(), 0);
            while place < bytes {
                let piece = pattern.at(place, (bytes - place).min(Pattern::BLOCK as u64) as usize);
                stream.write_all(piece).await?;
                place += piece.len() as u64;
            }
            stream.shutdown().await?;
            assert_eq!(stream.read_u64().await?, bytes);
            Ok::<_, io::Error>((connection, endpoint))
        });
    }
    let ended: io::Result<Vec<_>> = writers.join_all().await.into_iter().collect();
    let wall = start.elapsed();
    for (connection, endpoint) in ended? {
        connection.close(CloseCode::Done, "");
        endpoint.close().await;
    }
    Ok(wall)
}
