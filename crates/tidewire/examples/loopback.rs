//! Sends bytes over one connection on loopback and prints the rate and the CPU time.
//!
//! `cargo run --release -p tidewire --example loopback -- [MEGABYTES] [MEGABITS_PER_SECOND]`

use std::error::Error;
use std::time::Instant;

use tidewire::{CloseCode, Config, Endpoint, new_secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let bytes = arguments.next().map_or(Ok(200), |text| text.parse::<u64>())? * 1_000_000;
    let megabits = arguments.next().map(|text| text.parse::<u64>()).transpose()?;
    let config = Config::builder().max_rate(megabits.map(|megabits| megabits * 1_000_000)).build()?;

    let secret = new_secret()?;
    let server = Endpoint::bind("127.0.0.1:0".parse()?, secret.clone(), config.clone())?;
    let address = server.local_addr();
    let receiver = tokio::spawn(async move {
        let connection = server.accept().await.ok()?;
        let mut stream = connection.accept().await.ok()?;
        let (mut buffer, mut received) = (vec![0; 1 << 16], 0);
        while let Ok(n @ 1..) = stream.read(&mut buffer).await {
            received += n as u64;
        }
        stream.write_u64(received).await.ok()?;
        connection.closed().await;
        Some(connection.stats())
    });

    let client = Endpoint::bind("127.0.0.1:0".parse()?, secret, config)?;
    let connection = client.connect(address).await?;
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
    let seconds = start.elapsed().as_secs_f64();
    connection.close(CloseCode::Done, "");
    let sent = connection.stats();
    let received = receiver.await?.ok_or("the receiver found no connection")?;
    println!("{:.0} Mbit/s, {seconds:.2} s", bytes as f64 * 8e-6 / seconds);
    println!("sent {:?}, round trip {:?} and {:?}", sent.packets, sent.rtt.least, sent.rtt.mean);
    let delay = &received.delay;
    println!("delay mean {:?}, p99 {:?}, max {:?}", delay.mean(), delay.quantile(0.99), delay.max());
    Ok(())
}
