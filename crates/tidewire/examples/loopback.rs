//! Sends bytes over one connection on loopback, and prints the rate and the CPU time of each end.
//!
//! `cargo run --release -p tidewire --example loopback -- [MEGABYTES] [MEGABITS_PER_SECOND] [DATAGRAM_BYTES]`
//!
//! Each end has one thread, named `sender` and `receiver`, so that a profile can be split by end:
//! `perf record -g COMMAND`, then `perf report --comm sender`.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tidewire::{CloseCode, Config, Endpoint, Secret, Stats, new_secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime;

/// What an end of the transfer reports.
struct Report {
    /// From the first byte until the receiver has confirmed the last.
    wall: Duration,
    /// CPU time of the thread.
    cpu: Duration,
    stats: Stats,
}

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let bytes = arguments.next().map_or(Ok(200), |text| text.parse::<u64>())? * 1_000_000;
    let megabits = arguments.next().map(|text| text.parse::<u64>()).transpose()?;
    let mut config = Config::builder().max_rate(megabits.filter(|&m| m > 0).map(|megabits| megabits * 1_000_000));
    if let Some(datagram) = arguments.next() {
        config = config.max_datagram(datagram.parse()?);
    }
    let config = config.build()?;

    let (tells, told) = channel();
    let receiver = thread::Builder::new().name("receiver".into());
    let far = config.clone();
    let receiver = receiver.spawn(move || block_on(receive(far, tells)))?;
    let sender = thread::Builder::new().name("sender".into()).spawn(move || block_on(send(config, bytes, told)))?;
    let sender = sender.join().map_err(|_| "the sender panicked")??;
    let receiver = receiver.join().map_err(|_| "the receiver panicked")??;

    let seconds = sender.wall.as_secs_f64();
    println!("{:.0} Mbit/s, {seconds:.2} s", bytes as f64 * 8e-6 / seconds);
    let per_gigabyte = |cpu: Duration| cpu.as_secs_f64() * 1e9 / bytes as f64;
    println!("CPU s/GB: sender {:.3}, receiver {:.3}", per_gigabyte(sender.cpu), per_gigabyte(receiver.cpu));
    println!("sent {:?}", sender.stats.packets);
    println!("round trip: least {:?}, mean {:?}", sender.stats.rtt.least, sender.stats.rtt.mean);
    let delay = &receiver.stats.delay;
    println!("delay: mean {:?}, p99 {:?}, max {:?}", delay.mean(), delay.quantile(0.99), delay.max());
    Ok(())
}

fn block_on<R>(end: impl Future<Output = Result<R, Failed>>) -> Result<R, Failed> {
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(end)
}

async fn receive(config: Config, tells: Sender<(SocketAddr, Secret)>) -> Result<Report, Failed> {
    let secret = new_secret()?;
    let endpoint = Endpoint::bind("127.0.0.1:0".parse()?, secret.clone(), config)?;
    tells.send((endpoint.local_addr(), secret))?;
    let connection = endpoint.accept().await?;
    let mut stream = connection.accept().await?;
    let (start, mut buffer, mut received) = (Instant::now(), vec![0; 1 << 16], 0);
    while let n @ 1.. = stream.read(&mut buffer).await? {
        received += n as u64;
    }
    stream.write_u64(received).await?;
    let wall = start.elapsed();
    connection.closed().await;
    Ok(Report { wall, cpu: thread_time()?, stats: connection.stats() })
}

async fn send(config: Config, bytes: u64, told: Receiver<(SocketAddr, Secret)>) -> Result<Report, Failed> {
    let (remote, secret) = told.recv()?;
    let endpoint = Endpoint::bind("127.0.0.1:0".parse()?, secret, config)?;
    let connection = endpoint.connect(remote).await?;
    let mut stream = connection.open().await?;
    let (start, buffer) = (Instant::now(), vec![7; 1 << 16]);
    let mut left = bytes;
    while left > 0 {
        let n = left.min(buffer.len() as u64) as usize;
        stream.write_all(&buffer[..n]).await?;
        left -= n as u64;
    }
    stream.shutdown().await?;
    assert_eq!(stream.read_u64().await?, bytes);
    let wall = start.elapsed();
    connection.close(CloseCode::Done, "");
    let stats = connection.stats();
    endpoint.close().await;
    Ok(Report { wall, cpu: thread_time()?, stats })
}

fn thread_time() -> Result<Duration, Failed> {
    Ok(nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}
