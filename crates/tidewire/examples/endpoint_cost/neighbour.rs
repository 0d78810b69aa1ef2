//! What a hostile peer costs: the share of a core that the endpoint takes, and what an honest neighbour of
//! the same shard notices.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidewire::{Config, Connection, Endpoint, RateControl};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::host::secret;
use super::server::{BULK, ECHO, Server, runtime};

/// What the neighbour sends, in bits per second.
const HONEST: u64 = 100_000_000;
/// Time between two pings, and bytes of each.
const BETWEEN: Duration = Duration::from_millis(5);
const PING: usize = 16;
/// Each measurement, after the time in which connections open and find their rate.
const TIME: Duration = Duration::from_secs(2);
const SETTLING: Duration = Duration::from_millis(500);

/// What one measurement found.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Share of a core that the thread of the endpoint takes, kernel time included.
    pub share: f64,
    /// 99th percentile of the neighbour's round trips.
    pub ping: Duration,
    /// Goodput of the neighbour's bulk data in bits per second.
    pub bulk: f64,
}

/// Measures while `hostile` runs beside the neighbour, until its flag is set.
pub fn measure(server: &Server, hostile: impl FnOnce(&AtomicBool) + Send) -> Figures {
    let (stop, pings) = (&AtomicBool::new(false), &Mutex::new(Vec::new()));
    thread::scope(|scope| {
        scope.spawn(|| send_bulk(server.address, stop));
        scope.spawn(|| ping(server.address, pings, stop));
        while server.read() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        scope.spawn(|| hostile(stop));
        thread::sleep(SETTLING);
        pings.lock().expect("no panic").clear();
        let (ran, read, began) = (server.ran(), server.read(), Instant::now());
        thread::sleep(TIME);
        let time = began.elapsed().as_secs_f64();
        let (share, bulk) = ((server.ran() - ran).as_secs_f64() / time, (server.read() - read) as f64 * 8.0 / time);
        let mut round_trips = std::mem::take(&mut *pings.lock().expect("no panic"));
        stop.store(true, Ordering::Relaxed);
        round_trips.sort_unstable();
        // A neighbour that was never answered waited for the whole time.
        let ping = round_trips.get(round_trips.len() * 99 / 100).copied().unwrap_or(TIME);
        Figures { share, ping, bulk }
    })
}

async fn connect(address: SocketAddr) -> (Endpoint, Connection) {
    let config =
        Config::builder().rate_control(RateControl::Fixed { bits_per_second: HONEST }).build().expect("in range");
    let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret(), config).expect("binds");
    let connection = endpoint.connect(address).await.expect("connects");
    (endpoint, connection)
}

fn send_bulk(address: SocketAddr, stop: &AtomicBool) {
    runtime().block_on(async {
        let (_endpoint, connection) = connect(address).await;
        let mut writer = connection.open().await.expect("allowed").split().1;
        let data = vec![BULK; 1 << 16];
        while !stop.load(Ordering::Relaxed) {
            writer.write_all(&data).await.expect("the connection lives");
        }
    });
}

/// Sends pings over a connection of its own, since bulk data of the same connection would wait before them.
fn ping(address: SocketAddr, round_trips: &Mutex<Vec<Duration>>, stop: &AtomicBool) {
    runtime().block_on(async {
        let (_endpoint, connection) = connect(address).await;
        let (mut reader, mut writer) = connection.open().await.expect("allowed").split();
        let mut answer = [0; PING];
        while !stop.load(Ordering::Relaxed) {
            let sent = Instant::now();
            writer.write_all(&[ECHO; PING]).await.expect("the connection lives");
            // An answer that is late beyond the measurement counts as it is.
            if tokio::time::timeout(TIME, reader.read_exact(&mut answer)).await.is_ok() {
                round_trips.lock().expect("no panic").push(sent.elapsed());
            }
            tokio::time::sleep(BETWEEN.saturating_sub(sent.elapsed())).await;
        }
    });
}
