//! What `benchmarks/compare.py` compares Python with: the same work through the Rust libraries.
//!
//! `rust_side codec` prints the time of one call in nanoseconds, for each kind of work; `rust_side transport
//! MEGABYTES` the rate of one stream over loopback in writes of 1 MiB. Both as one JSON object. The numbers
//! of the work (symbols, losses, sizes) are those of `compare.py`.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use tidewire::{CloseCode, Config, Endpoint, new_secret};
use tidewire_codec::{Code, Generation};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The figure that is asked for: 64 symbols of 1,280 bytes.
const COUNT: usize = 64;
const LEN: usize = 1_280;
/// Calls are repeated for this long, and the least mean of ten such times counts.
const SPAN: Duration = Duration::from_millis(20);
const WRITE: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["codec"] => codec(),
        ["transport", megabytes] => transport(megabytes.parse::<u64>()? << 20),
        _ => Err("write codec, or transport MEGABYTES".into()),
    }
}

fn codec() -> Result<(), Box<dyn Error>> {
    let sources: Vec<[u8; LEN]> = (0..COUNT).map(|n| std::array::from_fn(|at| (n * 31 + at * 7) as u8)).collect();
    let block = Generation::new(Code::Rlc, COUNT as u16)?;
    let mut figures = Vec::new();
    for count in [4_usize, 16] {
        let mut repairs = vec![[0; LEN]; count];
        let time = least(|| block.encode(black_box(&sources), 0, black_box(&mut repairs)).expect("the numbers fit"));
        figures.push(format!("\"encode {count}\": {time}"));
        let lost: Vec<u16> = (0..count as u16).map(|index| index * 4).collect();
        let keys: Vec<u16> = (0..count as u16).collect();
        let plan = block.plan(&lost, &keys)?;
        let mut decoded = vec![[0; LEN]; count];
        let time = least(|| {
            plan.decode(black_box(&sources), black_box(&repairs), black_box(&mut decoded)).expect("the numbers fit");
        });
        figures.push(format!("\"decode {count}\": {time}"));
    }
    println!("{{{}}}", figures.join(", "));
    Ok(())
}

/// Nanoseconds of one call.
fn least(mut call: impl FnMut()) -> u128 {
    let mean = |_| {
        let (start, mut calls) = (Instant::now(), 0);
        while start.elapsed() < SPAN {
            (0..16).for_each(|_| call());
            calls += 16;
        }
        start.elapsed().as_nanos() / calls
    };
    (0..10).map(mean).min().unwrap_or_default()
}

#[tokio::main]
async fn transport(bytes: u64) -> Result<(), Box<dyn Error>> {
    let secret = new_secret()?;
    let server = Endpoint::bind("127.0.0.1:0".parse()?, secret.clone(), Config::default())?;
    let address = server.local_addr();
    let receiver = tokio::spawn(async move {
        let connection = server.accept().await.ok()?;
        let mut stream = connection.accept().await.ok()?;
        let (mut buffer, mut received) = (vec![0; WRITE], 0);
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            received += read as u64;
        }
        stream.write_u64(received).await.ok()?;
        connection.closed().await;
        Some(())
    });
    let client = Endpoint::bind("127.0.0.1:0".parse()?, secret, Config::default())?;
    let connection = client.connect(address).await?;
    let mut stream = connection.open().await?;
    let (start, buffer) = (Instant::now(), vec![7; WRITE]);
    for _ in 0..bytes / WRITE as u64 {
        stream.write_all(&buffer).await?;
    }
    stream.shutdown().await?;
    assert_eq!(stream.read_u64().await?, bytes);
    let seconds = start.elapsed().as_secs_f64();
    connection.close(CloseCode::Done, "");
    receiver.await?.ok_or("the receiver found no connection")?;
    println!("{{\"megabits\": {:.0}}}", bytes as f64 * 8e-6 / seconds);
    Ok(())
}
