//! Recordings as the source of pages: each page has a thread that reads the files anew, as fast as the page
//! takes the frames.
//!
//! [`super::show`] serves it. A page that stops reading stops its thread, because the queue between both is
//! bounded, and the server closes connections on which nothing moves. A file that is damaged is shown up to
//! the damage.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tidewire::Profile;
use tidewire_recording::{Item, ReadError, Reader};
use tokio::sync::mpsc::{Sender, channel};

use super::channel::{self, Hello, Kind};
use super::gather::Gatherer;
use super::queues::MOST_PAGES;
use super::replays::Replays;
use super::server::{Frames, Source};
use crate::consumer::Observed;

/// Most pieces that wait for a page.
const MOST_WAITING: usize = 8;
/// Bytes of a piece. Chosen: the page draws after each.
const PIECE: usize = 256 << 10;
/// Most threads that read for pages. A page may be gone before its thread notices, at its next piece. Chosen:
/// one more for each page.
const MOST_THREADS: usize = 2 * MOST_PAGES;
/// How long a mark waits for its fate. Chosen: a packet whose fate takes longer is told twice.
const HOLD: Duration = Duration::from_secs(3);

/// A recording in a file, which can be read again and again.
#[derive(Clone, Debug)]
pub struct Recording {
    path: PathBuf,
    /// The path as text, for people.
    name: String,
}

/// Why there are no events of a recording, or no more of them.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be opened.
    Open(PathBuf, io::Error),
    /// The file is no recording.
    Show(PathBuf, ReadError),
    /// The recording is damaged from some place on.
    Damaged(PathBuf, ReadError),
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, error) => write!(f, "cannot open {}: {error}", path.display()),
            Self::Show(path, error) => write!(f, "cannot show {}: {error}", path.display()),
            Self::Damaged(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for RecordingError {}

impl Recording {
    /// The recording in a file, which is opened once to see that it is one.
    ///
    /// # Errors
    /// See [`RecordingError`].
    pub fn find(path: impl Into<PathBuf>) -> Result<Self, RecordingError> {
        let path = path.into();
        let recording = Self { name: path.display().to_string(), path };
        recording.open()?;
        Ok(recording)
    }

    fn open(&self) -> Result<Reader<BufReader<File>>, RecordingError> {
        let file = File::open(&self.path).map_err(|error| RecordingError::Open(self.path.clone(), error))?;
        Reader::open(BufReader::new(file)).map_err(|error| RecordingError::Show(self.path.clone(), error))
    }

    /// Passes the events to `each`, in their order, until it returns false. The file is read block by block,
    /// so memory does not grow with it.
    fn read(&self, mut each: impl FnMut(&Observed) -> bool) -> Result<(), RecordingError> {
        let mut reader = self.open()?;
        let mut goes_on = true;
        while goes_on {
            let mut take = |item: &Item| {
                if let (true, Item::Event(entry)) = (goes_on, item) {
                    goes_on = each(entry);
                }
            };
            match reader.next_items(&mut take) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err(RecordingError::Damaged(self.path.clone(), error)),
            }
        }
        Ok(())
    }
}

/// The recordings of a page, and their replays.
#[derive(Debug)]
pub struct Recorded {
    recordings: Arc<[Recording]>,
    replays: Replays,
    presence: Arc<()>,
    /// Each thread that reads for a page holds one.
    reading: Arc<()>,
}

impl Recorded {
    /// Shows `recordings` one beside the other.
    pub fn new(recordings: Vec<Recording>) -> Self {
        let replays = Replays::new(recordings.iter().map(|recording| recording.path.clone()).collect());
        Self { recordings: recordings.into(), replays, presence: Arc::default(), reading: Arc::default() }
    }
}

impl Source for Recorded {
    fn open(&self) -> Option<Frames> {
        if Arc::strong_count(&self.presence) > MOST_PAGES || Arc::strong_count(&self.reading) > MOST_THREADS {
            return None;
        }
        let (queue, waiting) = channel(MOST_WAITING);
        let (recordings, reading) = (Arc::clone(&self.recordings), Arc::clone(&self.reading));
        // A page that is gone has dropped its end of the queue, and the thread ends.
        let show = move || {
            drop(tell(&recordings, &mut Teller { queue, frames: Vec::new() }));
            drop(reading);
        };
        std::thread::Builder::new().spawn(show).ok()?;
        Some(Frames::new(waiting, Arc::clone(&self.presence)))
    }

    fn replays(&self) -> Option<&Replays> {
        Some(&self.replays)
    }
}

/// The page is gone.
#[derive(Debug)]
struct Gone;

/// What waits for a page.
struct Teller {
    queue: Sender<Bytes>,
    frames: Vec<u8>,
}

impl Teller {
    /// Hands on the frames, if there are many of them or `all` are wanted.
    fn flush(&mut self, all: bool) -> Result<(), Gone> {
        if all || self.frames.len() >= PIECE {
            self.queue.blocking_send(std::mem::take(&mut self.frames).into()).map_err(|_| Gone)?;
        }
        Ok(())
    }
}

/// Tells a page everything.
fn tell(recordings: &[Recording], to: &mut Teller) -> Result<(), Gone> {
    let names: Vec<&str> = recordings.iter().map(|recording| recording.name.as_str()).collect();
    let profiles: Vec<&str> = Profile::NAMED.iter().map(|named| named.example).collect();
    let hello = Hello { title: &names.join(", "), live: false, recordings: &names, profiles: &profiles };
    channel::json(Kind::Hello, &hello, &mut to.frames);
    let (mut first_id, mut troubles) = (0, Vec::new());
    for recording in recordings {
        let prefix = if recordings.len() > 1 { format!("{}: ", recording.name) } else { String::new() };
        let mut gatherer = Gatherer::new(first_id, prefix, HOLD);
        troubles.extend(tell_events(recording, &mut gatherer, to)?);
        first_id = gatherer.next_id();
    }
    channel::frame(Kind::End, troubles.join("; ").as_bytes(), &mut to.frames);
    to.flush(true)
}

/// Tells a page the events of one recording. Returns why they ended early, if they did.
fn tell_events(recording: &Recording, gatherer: &mut Gatherer, to: &mut Teller) -> Result<Option<String>, Gone> {
    let (mut now, mut marks) = (Duration::ZERO, Vec::new());
    let mut told = Ok(());
    let read = recording.read(|observed| {
        now = now.max(observed.at);
        if gatherer.step(now, &mut to.frames, &mut marks) {
            to.frames.append(&mut marks);
            told = to.flush(false);
        }
        gatherer.take(observed, &mut to.frames);
        told.is_ok()
    });
    told?;
    gatherer.finish(now, &mut to.frames, &mut marks);
    to.frames.append(&mut marks);
    to.flush(false)?;
    Ok(read.err().map(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::TraceEvent;
    use tidewire_proto::endpoint::ConnectionHandle;
    use tidewire_recording::{Header, Writer};

    /// A recording of five losses that lacks its last byte.
    fn damaged(folder: &tempfile::TempDir) -> Recording {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, &Header::new("test", "send", 0), u64::MAX).unwrap();
        for number in 0..5 {
            let event = TraceEvent::PacketLost { number, bytes: 1_200, at_own_rate: false };
            let at = Duration::from_millis(50 * number);
            writer.push(&Observed { at, endpoint: 0, connection: ConnectionHandle(0), event }).unwrap();
        }
        writer.end().unwrap();
        let path = folder.path().join("kept.twr");
        std::fs::write(&path, &file[..file.len() - 1]).unwrap();
        Recording { name: "kept.twr".into(), path }
    }

    #[test]
    fn a_damaged_recording_is_shown_up_to_the_damage() {
        let folder = tempfile::tempdir().unwrap();
        let recording = damaged(&folder);
        let (queue, mut waiting) = channel(MOST_WAITING);
        tell(&[recording.clone(), recording], &mut Teller { queue, frames: Vec::new() }).unwrap();
        let mut text = Vec::new();
        while let Ok(piece) = waiting.try_recv() {
            text.extend_from_slice(&piece);
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains("\"title\":\"kept.twr, kept.twr\",\"live\":false"), "{text}");
        assert_eq!(text.matches("the recording is cut off").count(), 2, "{text}");
        // The steps at 100 and 200 ms, and the last one, of each.
        assert_eq!(text.matches("\"lost\":5").count(), 2, "{text}");
        assert_eq!((text.matches("\"c\":0,").count(), text.matches("\"c\":1,").count()), (3, 3), "{text}");
    }

    #[test]
    fn pages_of_recordings_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let recorded = Recorded::new(vec![damaged(&folder)]);
        let mut pages: Vec<_> = (0..MOST_PAGES).map(|_| recorded.open().unwrap()).collect();
        assert!(recorded.open().is_none());
        pages.pop();
        assert!(recorded.open().is_some());
    }

    /// A reader with the token opens the channel and leaves, again and again. A thread that waits for its
    /// file stands for one that reads a long recording.
    #[cfg(unix)]
    #[test]
    fn threads_of_pages_that_left_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("waits");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let recorded = Recorded::new(vec![Recording { name: "waits".into(), path: path.clone() }]);
        let opened = (0..100).filter(|_| recorded.open().is_some()).count();
        assert_eq!(opened, MOST_THREADS);
        // Opening both ends of the pipe does not wait. The threads can then read, and find the end.
        while Arc::strong_count(&recorded.reading) > 1 {
            drop(File::options().read(true).write(true).open(&path).unwrap());
            std::thread::yield_now();
        }
        assert_eq!((0..100).filter(|_| recorded.open().is_some()).count(), MOST_THREADS);
    }

    #[test]
    fn a_file_that_is_no_recording_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        assert!(matches!(Recording::find(&path), Err(RecordingError::Open(named, _)) if named == path));
        std::fs::write(&path, "text").unwrap();
        assert!(matches!(Recording::find(&path), Err(RecordingError::Show(named, _)) if named == path));
    }
}
