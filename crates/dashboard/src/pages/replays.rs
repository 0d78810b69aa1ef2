//! Replays for the page of a recording: one runs at a time, a few wait, others are refused.
//!
//! The server starts one for each request and answers with its lines. The thread of a replay is none of the
//! server's, so pages go on meanwhile. Invariant: a replay whose client is gone ends within a part of a
//! second, and a client that stops reading is closed by the [server](super::server), so no replay stays.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::server::Frames;
use crate::what_if::{self, Alternative, News};

/// Most replays that wait for the one that runs. Chosen: the pages of a few people.
const MOST_WAITING: usize = 2;
/// Most lines that wait for a client. Chosen: all rows, and some progress.
const MOST_LINES: usize = 32;
/// Most bytes of a request. Chosen: all choices, several times.
pub const MOST_ASKED: usize = 4 << 10;
/// Least time between two lines of progress. Chosen: smooth for the eye.
const PROGRESS: Duration = Duration::from_millis(200);
/// How often a client is told that it waits. Chosen: well below the ten seconds after which a connection
/// without progress ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why a request starts no replay.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A sentence about what is wrong with it.
    Wrong(String),
    /// Too many replays wait.
    Busy,
}

impl Refusal {
    /// What a client is told that finds too many waiting.
    pub const BUSY: &str = "other replays run and wait; try again when one of them has ended";
}

/// What a page asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Place of the recording whose flow is replayed.
    file: usize,
    /// Place of the recording of the end that received.
    peer: Option<usize>,
    /// Values by the names of their options. A choice that is missing is as recorded.
    choices: BTreeMap<String, String>,
}

/// A line of the answer. Rows are lines too, as `--json` has them.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    /// Other replays come first.
    Waiting,
    /// The share of a run that is done.
    Progress { name: &'a str, share: f64 },
    /// A sentence about the replay.
    Remark { words: &'a str },
    /// All rows as a picture. The last line.
    Picture { svg: &'a str },
    /// Why there are no more rows. The last line.
    Error { message: &'a str },
}

/// The recordings, and the places of replays.
#[derive(Debug)]
pub struct Replays {
    paths: Vec<PathBuf>,
    /// Places of those that run or wait, and the turn of the one that runs.
    places: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

/// What one replay works on.
struct Replay {
    file: PathBuf,
    peer: Option<PathBuf>,
    alternative: Alternative,
}

impl Replays {
    /// Replays of these recordings.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self { paths, places: Arc::new(Semaphore::new(1 + MOST_WAITING)), turn: Arc::new(Semaphore::new(1)) }
    }

    /// Starts what the body of a request asks for. It has to be called on the executor of the server.
    pub fn start(&self, asked: &[u8]) -> Result<Frames, Refusal> {
        let replay = self.replay(asked).map_err(Refusal::Wrong)?;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Refusal::Busy)?;
        let (queue, lines) = channel(MOST_LINES);
        tokio::spawn(wait(Arc::clone(&self.turn), place, replay, queue));
        Ok(Frames::new(lines, Arc::default()))
    }

    fn replay(&self, asked: &[u8]) -> Result<Replay, String> {
        let asked: Asked = serde_json::from_slice(asked).map_err(|error| format!("the request is wrong: {error}"))?;
        let path = |place: usize| {
            let found = self.paths.get(place).cloned();
            found.ok_or_else(|| format!("there is no recording {place}; there are {}", self.paths.len()))
        };
        Ok(Replay {
            file: path(asked.file)?,
            peer: asked.peer.map(path).transpose()?,
            alternative: Alternative::parse(&asked.choices).map_err(|error| error.to_string())?,
        })
    }
}

/// Waits for the turn, as long as the client does, and then works on a thread.
async fn wait(turn: Arc<Semaphore>, place: OwnedSemaphorePermit, replay: Replay, queue: Sender<Bytes>) {
    let turn = turn.acquire_owned();
    tokio::pin!(turn);
    let turn = loop {
        tokio::select! {
            turn = &mut turn => break turn,
            () = queue.closed() => return,
            () = tokio::time::sleep(PATIENCE) => drop(queue.try_send(bytes(&Line::Waiting))),
        }
    };
    let refused = queue.clone();
    let started = std::thread::Builder::new().spawn(move || {
        work(&replay, &queue);
        drop((turn, place));
    });
    if let Err(error) = started {
        let message = &format!("the system refuses a thread: {error}");
        drop(refused.try_send(bytes(&Line::Error { message })));
    }
}

/// Replays and tells the lines. A client that is gone has closed the queue.
fn work(replay: &Replay, queue: &Sender<Bytes>) {
    let mut progress = Instant::now();
    let mut tell = |news: News<'_>| {
        let told = match news {
            News::Progress(name, share) => {
                if progress.elapsed() >= PROGRESS {
                    progress = Instant::now();
                    // The next one comes soon.
                    drop(queue.try_send(bytes(&Line::Progress { name, share })));
                }
                return !queue.is_closed();
            }
            News::Remark(words) | News::Warning(words) => bytes(&Line::Remark { words }),
            News::Row(row) => bytes(&row.event()),
        };
        queue.blocking_send(told).is_ok()
    };
    let ended = what_if::run(&replay.file, replay.peer.as_deref(), &replay.alternative, &mut tell);
    let last = match &ended {
        Ok(None) => return,
        Ok(Some(rows)) => bytes(&Line::Picture { svg: &what_if::picture(rows) }),
        Err(failure) => bytes(&Line::Error { message: &failure.to_string() }),
    };
    drop(queue.blocking_send(last));
}

fn bytes<T: Serialize>(line: &T) -> Bytes {
    // Values of this room have names as keys and no fallible parts, so they always serialize.
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text.into()
}
