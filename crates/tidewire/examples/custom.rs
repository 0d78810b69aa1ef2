//! A redundancy policy and a rate controller written outside of Tidewire, on a connection over loopback.
//!
//! Run it with `cargo run --release -p tidewire --example custom`.

use std::error::Error;

use tidewire::rate::{AckSample, Budget, RateController};
use tidewire::redundancy::{Answer, CodingContext, Proactive, ProactivePolicy, Redundancy, Repair};
use tidewire::{Config, Custom, Endpoint, RateControl, SourceId, new_secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Sends each source symbol a second time, after this many later symbols (as RFC 2198 does for speech).
#[derive(Debug)]
struct Copies {
    distance: u64,
    next: u64,
}

impl ProactivePolicy for Copies {
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let newest = cx.sent.0.checked_sub(self.distance)?;
        // A symbol that the peer has needs no copy.
        self.next = self.next.max(cx.base.0);
        let due = (self.next < newest).then_some(SourceId(self.next))?;
        self.next += 1;
        Some(Repair::Resend(due))
    }
}

/// Keeps a fixed window of this many packets, so it is only for a path without other traffic.
#[derive(Debug)]
struct Window(u64);

impl RateController for Window {
    fn on_ack(&mut self, _ack: &AckSample) {}

    fn budget(&self) -> Budget {
        Budget { window: self.0 * 1_500, pacing: 1 << 30 }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let copies = Custom {
        name: "copies",
        build: |n| Box::new(Copies { distance: n as u64, next: 0 }) as Box<dyn ProactivePolicy>,
        parameter: 4.0,
    };
    let window = Custom {
        name: "window",
        build: |packets| Box::new(Window(packets as u64)) as Box<dyn RateController>,
        parameter: 64.0,
    };
    let config = Config::builder()
        .redundancy(Redundancy { proactive: Proactive::Custom(copies), answer: Answer::Deficit })
        .rate_control(RateControl::Custom(window))
        .build()?;
    let secret = new_secret()?;
    let loopback = "127.0.0.1:0".parse()?;
    let server = Endpoint::bind(loopback, secret.clone(), Config::default())?;
    let client = Endpoint::bind(loopback, secret, config)?;
    let (theirs, ours) = tokio::join!(server.accept(), client.connect(server.local_addr()));
    let (theirs, ours) = (theirs?, ours?);
    let write = async {
        let mut stream = ours.open().await?;
        stream.write_all(&[7; 1_000_000]).await?;
        stream.shutdown().await?;
        Ok::<_, Box<dyn Error>>(())
    };
    // The reader runs beside the writer, because the writer waits for it when the stream's window is full.
    let read = async {
        let mut received = Vec::new();
        let mut stream = theirs.accept().await?;
        stream.read_to_end(&mut received).await?;
        Ok(received)
    };
    let ((), received) = tokio::try_join!(write, read)?;
    println!("{} bytes received; {:?}", received.len(), ours.stats().packets);
    Ok(())
}
