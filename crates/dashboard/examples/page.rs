//! Serves the dashboard of a connection: a program that sends 8 Mbit/s to itself over loopback.
//!
//!     cargo run -p tidewire-dashboard --example page -- [SECONDS]

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidewire::{CloseCode, Config, Endpoint, new_secret};
use tidewire_dashboard::{Dashboard, FanOut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, interval};

/// Bytes that are written each time, and the time between.
const BLOCK: usize = 20_000;
const INTERVAL: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let seconds = std::env::args().nth(1).map_or(Ok(60), |text| text.parse()).context("SECONDS is a number")?;

    // The page shows the connections of every endpoint whose configuration has this trace.
    let page = Dashboard::open(([127, 0, 0, 1], 0).into(), "example", || None)?;
    println!("dashboard: {}", page.url());
    let (fan_out, _watching) = FanOut::start(vec![Box::new(page)], |name, why| eprintln!("{name} ends here: {why}"))?;
    let config = Config::default().with_trace(Arc::new(fan_out));

    let secret = new_secret()?;
    let listener = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret.clone(), Config::default())?;
    let sender = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret, config)?;
    let address = listener.local_addr();
    tokio::spawn(async move {
        let connection = listener.accept().await?;
        let (mut stream, mut buffer) = (connection.accept().await?, vec![0; BLOCK]);
        while stream.read(&mut buffer).await? > 0 {}
        anyhow::Ok(())
    });

    let connection = sender.connect(address).await?;
    let (mut stream, block) = (connection.open().await?, [7; BLOCK]);
    let (end, mut ticks) = (Instant::now() + Duration::from_secs(seconds), interval(INTERVAL));
    while Instant::now() < end {
        ticks.tick().await;
        stream.write_all(&block).await?;
    }
    connection.close(CloseCode::Done, "");
    sender.close().await;
    Ok(())
}
