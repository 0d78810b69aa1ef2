//! Writes the recordings of both ends of a simulated flow: ten minutes of 25 Mbit/s over a link that loses
//! 5 %, in less than a minute. `cargo measure figures recording --only load` opens them.
//!
//!     cargo run --release -p tidewire-recording --example long_recording -- NEAR FAR [SECONDS]

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use tidewire::{Config, Time};
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::trace::{Trace, TraceEvent};
use tidewire_recording::{Entry, Header, Writer};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

/// The flow: the rate for which the goals of a recording are stated, in bytes a second.
const RATE: u64 = 25_000_000 / 8;
/// The link of `cargo measure figures recording --only size`.
const LINK: [(Direction, &str, &str); 3] =
    [(Direction::Both, "rate", "50mbit"), (Direction::Both, "rtt", "40ms"), (Direction::Forward, "loss", "5%")];
/// Length of the flow in seconds, if none is given.
const SECONDS: u64 = 600;

/// Writes each event of one end, until writing fails.
#[derive(Debug)]
struct Recorder(Mutex<Option<Writer<File>>>);

impl Recorder {
    fn create(path: &str) -> anyhow::Result<Arc<Self>> {
        let file = File::create(path).with_context(|| format!("cannot write {path}"))?;
        let writer = Writer::new(file, &Header::new("example", "bench", 0), u64::MAX)?;
        Ok(Arc::new(Self(Mutex::new(Some(writer)))))
    }

    fn end(&self) -> anyhow::Result<()> {
        let writer = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        writer.context("the recording could not be written")?.end()?;
        Ok(())
    }
}

impl Trace for Recorder {
    fn record(&self, now: Time, connection: ConnectionHandle, event: &TraceEvent) {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = now.since(Time::ZERO);
        let entry = Entry { at, endpoint: 0, connection, event: event.clone() };
        if writer.as_mut().is_some_and(|writer| writer.push(&entry).and_then(|()| writer.tick(at)).is_err()) {
            *writer = None;
        }
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (near, far, seconds) = match &arguments[..] {
        [near, far] => (near, far, SECONDS),
        [near, far, seconds] => (near, far, seconds.parse().context("SECONDS is no whole number")?),
        _ => anyhow::bail!("name two files to write: NEAR FAR [SECONDS]"),
    };
    let mut link = DuplexConfig::default();
    for (direction, key, text) in LINK {
        link.set(direction, key, text, Path::new(""))?;
    }
    let recorders = [Recorder::create(near)?, Recorder::create(far)?];
    let mut trial = Trial::new(link, vec![Flow::paced(End::Near, RATE * seconds, RATE)], 1);
    trial.limit = Duration::from_secs(2 * seconds);
    trial.near = Config::default().with_trace(recorders[0].clone());
    trial.far = Config::default().with_trace(recorders[1].clone());
    let report = trial.run();
    recorders.iter().try_for_each(|recorder| recorder.end())?;
    ensure!(report.done, "the flow did not end");
    Ok(())
}
