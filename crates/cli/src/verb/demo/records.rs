//! The first part of `demo`: records of an application that uses half of the link.
//!
//! This is the case that users feel: the link has room, so repair costs nothing, and each record should
//! arrive at once. Invariant: every run offers the same records at the same times.

use tidewire::Config;
use tidewire_command::exit::Failure;
use tidewire_command::report::{self, Console};
use tidewire_figures::chart::svg::Caption;

use super::{Ends, LINK_IN_WORDS, Measured};
use crate::bench::{self, Order, SoFar};
use crate::session::{self, DONE};

/// The part in one line.
pub(super) const IN_WORDS: &str = "an application that uses half of the link: 12 Mbit/s of records of 1200 bytes, 8 s";
/// About half of what the link carries after its losses.
const RATE_BPS: u64 = 12_000_000;
/// One record fills a packet.
const RECORD_BYTES: u32 = 1_200;
/// Chosen: some ten thousand records, so that p99 rests on a hundred.
const SECONDS: f64 = 8.0;

/// What the picture says.
pub(super) fn caption() -> Caption<'static> {
    Caption {
        title: "An application at half of the link",
        conditions: LINK_IN_WORDS,
        what: "records",
        see: "Left is earlier: the repair has arrived before a retransmission could.",
    }
}

/// One run over the link.
pub(super) async fn run(config: Config) -> Result<Measured, Failure> {
    let ends = Ends::start(config.clone()).await?;
    let plan = Order {
        reverse: false,
        seconds: SECONDS,
        rate_bps: Some(RATE_BPS),
        parallel: 1,
        record_bytes: RECORD_BYTES,
        interval_seconds: SECONDS,
        clock: bench::clock_name(),
    };
    // The intervals of `bench` would hide the results of the demo.
    let quiet = Console::new(false, true);
    let receiver = async {
        let connection = ends.accept().await?;
        bench::server::serve(&connection, &SoFar::default()).await?;
        Ok(connection)
    };
    let sender = async {
        let (near, connection) = ends.connect(config, &quiet).await?;
        let summary = bench::client::run(&connection, &plan, &SoFar::default(), &quiet).await?;
        connection.close(DONE, "");
        session::close(&near).await;
        Ok::<_, Failure>(summary)
    };
    let (connection, summary) = tokio::try_join!(receiver, sender)?;
    let curve = report::delays(&connection.stats());
    ends.stop().await?;
    Ok(Measured { summary, curve, hash_ok: None })
}
