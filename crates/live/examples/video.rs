//! Carries a stream of MPEG-TS packets from a sender to a receiver over loopback, in one process, and prints
//! what came of it.
//!
//!     cargo run -p tidewire-live --example video -- [SECONDS]

use std::io::{self, Read};
use std::time::{Duration, Instant};

use anyhow::Context;
use tidewire::{CloseCode, Config, Endpoint, new_secret};
use tidewire_live::{Event, Input, Output, Receiver, Sender, Session, Side, Sink, configure, latency};

/// Bytes of an MPEG-TS packet, and the byte with which it begins (ISO/IEC 13818-1).
const PACKET: usize = 188;
const SYNC: u8 = 0x47;
/// Time between two packets: 1.5 Mbit/s.
const INTERVAL: Duration = Duration::from_millis(1);

/// An encoder: packets at a constant rate, until its time is over.
#[derive(Debug)]
struct Encoder {
    end: Instant,
}

impl Read for Encoder {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.end {
            return Ok(0);
        }
        std::thread::sleep(INTERVAL);
        let length = into.len().min(PACKET);
        into[..length].fill(0xff);
        into[0] = SYNC;
        Ok(length)
    }
}

/// Prints what happened at an end.
fn tell(end: &str, event: &Event) {
    match event {
        Event::Session { peer, latency, .. } => println!("{end}: session with {peer}, latency {latency:?}"),
        Event::Target { bitrate_bps, .. } => println!("{end}: the encoder may have {bitrate_bps} bit/s"),
        Event::Lost { reason, .. } => println!("{end}: {reason}"),
        _ => {}
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let seconds = std::env::args().nth(1).map_or(Ok(3), |text| text.parse()).context("SECONDS is a number")?;
    let config = configure(&Config::default(), false)?;
    let secret = new_secret()?;
    let far = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret.clone(), config.clone())?;
    let near = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret, config.clone())?;

    // The receiver listens, and ends after the first sender that has no more.
    let output = Output::start(vec![Sink::writer(io::sink())])?;
    let receiver = Receiver::new(output, |event| tell("receiver", &event));
    let (playing, address, asked) = (receiver.clone(), far.local_addr(), latency(&config));
    let playing = tokio::spawn(async move { playing.listen(&far, asked, true).await });

    // The sender connects.
    let encoder = Encoder { end: Instant::now() + Duration::from_secs(seconds) };
    let sender = Sender::start(vec![Input::reader("encoder", encoder)], false, |event| tell("sender", &event))?;
    let connection = near.connect(address).await?;
    sender.run(Session::greet(&connection, Side::Sends, asked).await?).await?;
    connection.close(CloseCode::Done, "");
    near.close().await;
    playing.await??;

    let (sent, received) = (sender.counts(), receiver.counts());
    println!("{} datagrams in, {} out, {} missing", sent.packets, received.packets, received.missing);
    anyhow::ensure!(sent.packets > 0 && received.packets + received.missing == sent.packets, "datagrams are lost");
    Ok(())
}
