//! The dashboard: a page that shows what a job or a recording does (`docs/dashboard.md`).
//!
//! `--dashboard` of every job calls [`watch`], whose consumer turns the events of the job into frames for the
//! pages that are open; [`show`] does the same for recordings. The server has a thread of its own. Invariant:
//! no page, however slow, delays the consumer, and no consumer delays a connection.

mod channel;
mod gate;
mod gather;
mod hub;
mod marks;
mod meter;
mod page;
mod recorded;
mod server;
mod what_if;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use self::channel::{Hello, Kind};
use self::gather::Gatherer;
use self::hub::Hub;
use self::recorded::Recorded;
pub use self::recorded::{Each, Recording};
pub use self::server::Serving;
use self::server::{Frames, Port, Source};
use crate::watch::{Batch, Consumer};
use tidewire_command::exit::Failure;
use tidewire_command::report::Console;

/// How long the end of a job waits for its pages to read the last frames. Chosen: a page that is not stalled
/// reads them within a few milliseconds, and nobody waits for one that is.
const FAREWELL: Duration = Duration::from_millis(500);

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// The page of the job.
    Dashboard {
        /// Its address. Whoever knows it can watch.
        url: &'a str,
    },
}

/// Tells the user where the page is.
fn announce(url: &str, console: &Console) {
    console.event(&Event::Dashboard { url });
    console.say(&format!("dashboard: {url}"));
}

/// Takes the port `address` and shows the job `verb` there.
///
/// # Errors
/// [`tidewire_command::exit::Exit::Usage`] if the port is taken.
pub fn watch(address: SocketAddr, verb: &str, console: &Console) -> Result<Box<dyn Consumer>, Failure> {
    let port = Port::take(address)?;
    let url = port.url();
    let mut hello = Vec::new();
    channel::json(Kind::Hello, &Hello { title: verb, live: true, recordings: &[], profiles: &[] }, &mut hello);
    let gatherer = Mutex::new(Gatherer::new(0, String::new(), Duration::ZERO));
    let live = Arc::new(Live { gatherer, hub: Hub::new(hello) });
    let serving = port.serve(Arc::<Live>::clone(&live))?;
    announce(&url, console);
    let console = console.clone();
    Ok(Box::new(Dashboard { live, console, lasting: Vec::new(), now: Duration::ZERO, serving: Some(serving) }))
}

/// Takes the port `address` and shows recordings there, until the result is dropped.
///
/// # Errors
/// [`tidewire_command::exit::Exit::Usage`] if the port is taken.
pub fn show(address: SocketAddr, recordings: Vec<Box<dyn Recording>>, console: &Console) -> Result<Serving, Failure> {
    let port = Port::take(address)?;
    let url = port.url();
    let serving = port.serve(Arc::new(Recorded::new(recordings)))?;
    announce(&url, console);
    Ok(serving)
}

/// What the consumer and the server share. Who locks both takes the gatherer first.
#[derive(Debug)]
struct Live {
    gatherer: Mutex<Gatherer>,
    hub: Hub,
}

impl Live {
    fn gatherer(&self) -> MutexGuard<'_, Gatherer> {
        self.gatherer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Live {
    fn open(&self) -> Option<Frames> {
        self.hub.open(&self.gatherer())
    }
}

/// The consumer of a job.
#[derive(Debug)]
struct Dashboard {
    live: Arc<Live>,
    /// Has the summary of the job.
    console: Console,
    /// Frames since the last step.
    lasting: Vec<u8>,
    now: Duration,
    serving: Option<Serving>,
}

impl Dashboard {
    /// Publishes a step, and the summary of a connection or of the job if there is a new one.
    fn publish(&mut self, gatherer: &Gatherer, marks: &[u8]) {
        if let Some(summary) = self.console.take_summary() {
            channel::frame(Kind::Summary, summary.as_bytes(), &mut self.lasting);
        }
        self.live.hub.publish(std::mem::take(&mut self.lasting), marks, gatherer);
    }
}

impl Consumer for Dashboard {
    fn name(&self) -> &'static str {
        "the dashboard"
    }

    fn take(&mut self, batch: &Batch, _missed: u64) -> Result<(), String> {
        self.now = batch.now;
        let live = Arc::clone(&self.live);
        let mut gatherer = live.gatherer();
        batch.events.iter().for_each(|observed| gatherer.take(observed, &mut self.lasting));
        let mut marks = Vec::new();
        if gatherer.step(batch.now, &mut self.lasting, &mut marks) {
            self.publish(&gatherer, &marks);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let live = Arc::clone(&self.live);
        let mut gatherer = live.gatherer();
        let mut marks = Vec::new();
        gatherer.finish(self.now, &mut self.lasting, &mut marks);
        self.publish(&gatherer, &marks);
        drop(gatherer);
        live.hub.end();
        let until = Instant::now() + FAREWELL;
        while live.hub.has_readers() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(self.serving.take());
        Ok(())
    }
}
