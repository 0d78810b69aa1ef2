//! The dashboard: a page that shows what connections or recordings do (`docs/dashboard.md`).
//!
//! [`Dashboard`] is a consumer that turns events into frames for the pages that are open; [`show`] does the
//! same for recordings. The server has a thread of its own. Invariant: no page, however slow, delays the
//! consumer, and no consumer delays a connection.

mod channel;
mod files;
mod gather;
mod marks;
mod meter;
mod queues;
mod recorded;
mod replays;
mod server;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::channel::{Hello, Kind};
use self::gather::Gatherer;
use self::queues::Queues;
use self::recorded::Recorded;
pub use self::recorded::{Recording, RecordingError};
use self::server::{Frames, Port, Serving, Source};
use crate::consumer::{Batch, Consumer, ConsumerError};

/// How long the end of a job waits for its pages to read the last frames. Chosen: a page that is not stalled
/// reads them within a few milliseconds, and nobody waits for one that is.
const FAREWELL: Duration = Duration::from_millis(500);

/// Why there is no page.
#[derive(Debug)]
#[non_exhaustive]
pub enum PageError {
    /// The port is taken, or the system refuses it.
    Port {
        /// The address that was asked for.
        address: SocketAddr,
        /// Why it cannot be had.
        error: io::Error,
    },
    /// The system has no randomness or no more threads.
    System(io::Error),
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port { address, error } => {
                write!(f, "cannot show a dashboard at {address}: {error}; choose another port, or 0 for any")
            }
            Self::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PageError {}

/// The page of recordings. It is served until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the page"]
pub struct Shown {
    url: String,
    _serving: Serving,
}

impl Shown {
    /// The address of the page. Whoever knows it can watch.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Takes the port `address` and shows recordings there, one beside the other. Each page reads the files anew,
/// and can replay them.
///
/// # Errors
/// See [`PageError`].
pub fn show(address: SocketAddr, recordings: Vec<Recording>) -> Result<Shown, PageError> {
    let port = Port::take(address)?;
    let url = port.url();
    Ok(Shown { url, _serving: port.serve(Arc::new(Recorded::new(recordings)))? })
}

/// Gives the newest summary as JSON, if there is one since the last call.
type Summaries = dyn FnMut() -> Option<String> + Send;

/// What the consumer and the server share. Who locks both takes the gatherer first.
#[derive(Debug)]
struct Running {
    gatherer: Mutex<Gatherer>,
    queues: Queues,
}

impl Running {
    fn gatherer(&self) -> MutexGuard<'_, Gatherer> {
        self.gatherer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Running {
    fn open(&self) -> Option<Frames> {
        self.queues.open(&self.gatherer())
    }
}

/// The consumer that shows connections in a browser; see [`Dashboard::open`].
pub struct Dashboard {
    running: Arc<Running>,
    url: String,
    summaries: Box<Summaries>,
    /// Frames since the last step.
    lasting: Vec<u8>,
    now: Duration,
    serving: Option<Serving>,
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard").field("running", &self.running).finish_non_exhaustive()
    }
}

impl Dashboard {
    /// Takes the port `address` and serves a page with the title `title` there, until the consumer has ended.
    /// The page shows a summary of the job whenever `summaries` gives one, as JSON.
    ///
    /// # Errors
    /// See [`PageError`].
    pub fn open(
        address: SocketAddr,
        title: &str,
        summaries: impl FnMut() -> Option<String> + Send + 'static,
    ) -> Result<Self, PageError> {
        let port = Port::take(address)?;
        let url = port.url();
        let mut hello = Vec::new();
        channel::json(Kind::Hello, &Hello { title, live: true, recordings: &[], profiles: &[] }, &mut hello);
        let gatherer = Mutex::new(Gatherer::new(0, String::new(), Duration::ZERO));
        let running = Arc::new(Running { gatherer, queues: Queues::new(hello) });
        let serving = Some(port.serve(Arc::<Running>::clone(&running))?);
        let (summaries, lasting, now) = (Box::new(summaries), Vec::new(), Duration::ZERO);
        Ok(Self { running, url, summaries, lasting, now, serving })
    }

    /// The address of the page. Whoever knows it can watch.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Publishes a step, and the summary of a connection or of the job if there is a new one.
    fn publish(&mut self, gatherer: &Gatherer, marks: &[u8]) {
        if let Some(summary) = (self.summaries)() {
            channel::frame(Kind::Summary, summary.as_bytes(), &mut self.lasting);
        }
        self.running.queues.publish(std::mem::take(&mut self.lasting), marks, gatherer);
    }
}

impl Consumer for Dashboard {
    fn name(&self) -> &'static str {
        "the dashboard"
    }

    fn take(&mut self, batch: &Batch, _missed: u64) -> Result<(), ConsumerError> {
        self.now = batch.now;
        let running = Arc::clone(&self.running);
        let mut gatherer = running.gatherer();
        batch.events.iter().for_each(|observed| gatherer.take(observed, &mut self.lasting));
        let mut marks = Vec::new();
        if gatherer.step(batch.now, &mut self.lasting, &mut marks) {
            self.publish(&gatherer, &marks);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), ConsumerError> {
        let running = Arc::clone(&self.running);
        let mut gatherer = running.gatherer();
        let mut marks = Vec::new();
        gatherer.finish(self.now, &mut self.lasting, &mut marks);
        self.publish(&gatherer, &marks);
        drop(gatherer);
        running.queues.end();
        let until = Instant::now() + FAREWELL;
        while running.queues.has_readers() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(self.serving.take());
        Ok(())
    }
}
