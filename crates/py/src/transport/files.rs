//! Files over one stream of a connection: [`send_files`], [`receive_files`], and the [`Tally`] of both.
//!
//! `tidewire.files` wraps them. A transfer hashes and waits for disks, so it is a task of tokio and not
//! polled by the event loop. Invariants: an `await` that is cancelled aborts the task, which leaves a part
//! that the next transfer resumes; no file has a final name before it was verified and flushed.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidewire_transfer::{
    Event, Existing, Limits, Links, Outcome, PathText, ScanError, Scanning, TransferError, receive, scan_with, send,
};
use tokio::task::{JoinError, JoinSet, block_in_place};

use super::bell::Bell;
use super::connection::Connection;
use super::fault;
use super::operation::{Answer, Operation};
use super::runtime::runtime;
use crate::error::{CUT_OFF, DESTINATION, PATHS, TRANSFER, TRANSPORT};

/// Failures, and warnings, that a tally keeps with their words; the others are only counted. Chosen: more
/// than a person reads.
const MOST_KEPT: usize = 1_000;

/// What did not arrive: its path as text, the bytes of the path if they are no text, reason and detail.
type Failure = (String, Option<Vec<u8>>, &'static str, String);
/// What the destination could not do for an entry: its path as text and bytes likewise, and words.
type Warning = (String, Option<Vec<u8>>, String);

/// A folder that receives files, with the limits of all transfers into it.
#[pyclass(frozen, module = "tidewire._native")]
pub struct Destination(Arc<tidewire_transfer::Destination>);

#[pymethods]
impl Destination {
    /// `existing` and `links` are the options of `tidewire receive`.
    #[new]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        max_bytes: Option<u64>,
        max_files: Option<u64>,
        existing: &str,
        links: bool,
    ) -> PyResult<Self> {
        let existing = match existing {
            "update" => Existing::Update,
            "replace" => Existing::Replace,
            "keep" => Existing::Keep,
            "rename" => Existing::Rename,
            other => return Err(unknown("existing", other, "update, replace, keep or rename")),
        };
        let opened = py.detach(|| tidewire_transfer::Destination::open(&folder)).map_err(|error| {
            let advice = match error.kind() {
                ErrorKind::NotFound => "create its parent folder first",
                _ => "name another folder",
            };
            DESTINATION.raise(py, format!("cannot receive into `{}`: {error}; {advice}", folder.display()))
        })?;
        let limits = Limits { bytes: max_bytes, files: max_files };
        Ok(Self(Arc::new(opened.limited(limits).with_existing(existing).with_links(links))))
    }
}

/// The error for an argument that is none of the words that it may be.
fn unknown(argument: &str, word: &str, words: &str) -> PyErr {
    PyValueError::new_err(format!("{argument} is {word:?}; use {words}"))
}

/// What a transfer has done so far.
#[pyclass(frozen, module = "tidewire._native")]
#[derive(Default)]
pub struct Tally(Arc<Counts>);

#[derive(Default)]
struct Counts {
    files: AtomicU32,
    bytes: AtomicU64,
    moved: AtomicU64,
    resumed: AtomicU64,
    kept: AtomicU32,
    /// The first [`MOST_KEPT`] of each.
    failures: Mutex<Vec<Failure>>,
    warnings: Mutex<Vec<Warning>>,
}

#[pymethods]
impl Tally {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Files and bytes in all, bytes moved, bytes that earlier transfers had carried, entries kept.
    fn counts(&self) -> (u32, u64, u64, u64, u32) {
        let counts = &*self.0;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (files, kept) = (counts.files.load(Ordering::Relaxed), counts.kept.load(Ordering::Relaxed));
        (files, read(&counts.bytes), read(&counts.moved), read(&counts.resumed), kept)
    }

    /// What did not arrive.
    fn failures(&self) -> Vec<Failure> {
        self.0.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the destination could not do for entries that arrived.
    fn warnings(&self) -> Vec<Warning> {
        self.0.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Counts {
    fn take(&self, event: &Event<'_>) {
        match event {
            Event::Total { files, bytes } => {
                self.files.store(*files, Ordering::Relaxed);
                self.bytes.store(*bytes, Ordering::Relaxed);
            }
            Event::Bytes(bytes) => drop(self.moved.fetch_add(*bytes, Ordering::Relaxed)),
            Event::Resumed { offset, .. } => drop(self.resumed.fetch_add(*offset, Ordering::Relaxed)),
            Event::Changed { withdrawn, .. } => drop(self.resumed.fetch_sub(*withdrawn, Ordering::Relaxed)),
            Event::Compared(_) => {}
            Event::Kept { path, warning, .. } => {
                self.kept.fetch_add(1, Ordering::Relaxed);
                if let Some(warning) = warning {
                    let (text, bytes) = parts(path);
                    push(&self.warnings, (text, bytes, (*warning).to_owned()));
                }
            }
            Event::Failed(failure) => {
                let (text, bytes) = parts(&failure.path);
                push(&self.failures, (text, bytes, failure.reason.name(), failure.detail.clone()));
            }
        }
    }
}

/// The text of a path, and its bytes if they are no text.
fn parts(path: &PathText) -> (String, Option<Vec<u8>>) {
    (path.to_string(), path.bytes().map(<[u8]>::to_vec))
}

/// Keeps `one` if fewer than [`MOST_KEPT`] are kept.
fn push<T>(kept: &Mutex<Vec<T>>, one: T) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() < MOST_KEPT {
        kept.push(one);
    }
}

/// Why a transfer has no outcome.
enum Failed {
    Scan(ScanError),
    Lost(tidewire::ConnectionLost),
    Transfer(TransferError),
    Task(JoinError),
}

/// What is sent: the paths, and the options `--links` and `--growing` of `tidewire send`.
#[derive(FromPyObject)]
pub struct Named(Vec<PathBuf>, String, bool);

/// Sends files and folders over a new stream.
#[pyfunction]
pub fn send_files(
    py: Python<'_>,
    connection: &Connection,
    named: Named,
    tally: &Tally,
    bell: &Bell,
    token: u64,
) -> PyResult<Operation> {
    let Named(paths, links, growing) = named;
    let links = match links.as_str() {
        "skip" => Links::Skip,
        "keep" => Links::Keep,
        "follow" => Links::Follow,
        other => return Err(unknown("links", other, "skip, keep or follow")),
    };
    let (connection, counts) = (connection.get(py)?, Arc::clone(&tally.0));
    operation(py, bell, token, async move {
        let found = block_in_place(|| scan_with(&paths, Scanning { links, growing })).map_err(Failed::Scan)?;
        if found.is_empty() {
            found.failures.iter().for_each(|failure| counts.take(&Event::Failed(failure)));
            let failed = found.failures.len().try_into().unwrap_or(u32::MAX);
            return Ok(Outcome { failed, ..Outcome::default() });
        }
        let stream = connection.open().await.map_err(Failed::Lost)?;
        send(stream, &found, &|event| counts.take(&event)).await.map_err(Failed::Transfer)
    })
}

/// Receives what the peer sends over its next stream.
#[pyfunction]
pub fn receive_files(
    py: Python<'_>,
    connection: &Connection,
    destination: &Destination,
    tally: &Tally,
    bell: &Bell,
    token: u64,
) -> PyResult<Operation> {
    let (connection, counts, destination) = (connection.get(py)?, Arc::clone(&tally.0), Arc::clone(&destination.0));
    operation(py, bell, token, async move {
        let stream = connection.accept().await.map_err(Failed::Lost)?;
        let peer = connection.peer_key();
        let watch = |event: Event<'_>| counts.take(&event);
        receive(stream, &destination, peer.as_ref(), &watch).await.map_err(Failed::Transfer)
    })
}

/// An operation that waits for a task with this transfer, and aborts it when it is given up.
fn operation(
    py: Python<'_>,
    bell: &Bell,
    token: u64,
    transfer: impl Future<Output = Result<Outcome, Failed>> + Send + 'static,
) -> PyResult<Operation> {
    let mut tasks = JoinSet::new();
    tasks.spawn_on(transfer, runtime(py)?.handle());
    Ok(Operation::new(bell, token, async move {
        // There is one task, so there is one end.
        let ended = match tasks.join_next().await {
            Some(ended) => ended.map_err(Failed::Task).flatten(),
            None => Ok(Outcome::default()),
        };
        let answer: Answer = match ended {
            Ok(Outcome { kept, bytes, resumed, failed, mismatch }) => {
                Box::new(move |py| Ok((kept, bytes, resumed, failed, mismatch).into_pyobject(py)?.into_any().unbind()))
            }
            Err(failed) => Box::new(move |py| Err(raise(py, &failed))),
        };
        answer
    }))
}

fn raise(py: Python<'_>, failed: &Failed) -> PyErr {
    match failed {
        Failed::Scan(error) => PATHS.raise(py, error),
        Failed::Lost(lost) => fault::lost(py, lost),
        Failed::Transfer(error) if error.is_cut_off() => {
            CUT_OFF.raise(py, format!("{error}; transfer the same paths again to resume it"))
        }
        Failed::Transfer(error) => TRANSFER.raise(py, error),
        Failed::Task(error) => TRANSPORT.raise(py, format!("the transfer ended unexpectedly: {error}")),
    }
}
