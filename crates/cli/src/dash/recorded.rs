//! Recordings as the source of pages: each page has a thread that reads the files anew, as fast as the page
//! takes the frames.
//!
//! [`super::show`] serves it. A page that stops reading stops its thread, because the queue between both is
//! bounded, and the server closes connections on which nothing moves. A file that is damaged is shown up to
//! the damage.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tidewire::Profile;
use tokio::sync::mpsc::{Sender, channel};

use super::channel::{self, Hello, Kind};
use super::gather::Gatherer;
use super::hub::MOST_PAGES;
use super::server::{Frames, Source};
use super::what_if::Replays;
use crate::watch::Observed;

/// Most pieces that wait for a page.
const MOST_WAITING: usize = 8;
/// Bytes of a piece. Chosen: the page draws after each.
const PIECE: usize = 256 << 10;
/// How long a mark waits for its fate. Chosen: a packet whose fate takes longer is told twice.
const HOLD: Duration = Duration::from_secs(3);

/// Takes an event, and returns whether to go on.
pub type Each<'a> = dyn FnMut(&Observed) -> bool + 'a;

/// A recording that can be read again and again.
pub trait Recording: fmt::Debug + Send + Sync {
    /// Its name, as the user wrote it.
    fn name(&self) -> &str;

    /// The file, which replays read again.
    fn path(&self) -> &Path;

    /// Passes the events to `each`, in their order, until it returns false.
    ///
    /// # Errors
    /// Why no events came, or no more of them.
    fn read(&self, each: &mut Each<'_>) -> Result<(), String>;
}

#[derive(Debug)]
pub struct Recorded {
    recordings: Arc<[Box<dyn Recording>]>,
    replays: Replays,
    presence: Arc<()>,
}

impl Recorded {
    /// Shows `recordings` one beside the other.
    pub fn new(recordings: Vec<Box<dyn Recording>>) -> Self {
        let replays = Replays::new(recordings.iter().map(|recording| recording.path().to_owned()).collect());
        Self { recordings: recordings.into(), replays, presence: Arc::default() }
    }
}

impl Source for Recorded {
    fn open(&self) -> Option<Frames> {
        if Arc::strong_count(&self.presence) > MOST_PAGES {
            return None;
        }
        let (queue, waiting) = channel(MOST_WAITING);
        let recordings = Arc::clone(&self.recordings);
        // A page that is gone has dropped its end of the queue, and the thread ends.
        std::thread::spawn(move || drop(tell(&recordings, &mut Teller { queue, frames: Vec::new() })));
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
fn tell(recordings: &[Box<dyn Recording>], to: &mut Teller) -> Result<(), Gone> {
    let names: Vec<&str> = recordings.iter().map(|recording| recording.name()).collect();
    let profiles: Vec<&str> = Profile::NAMED.iter().map(|named| named.example).collect();
    let hello = Hello { title: &names.join(", "), live: false, recordings: &names, profiles: &profiles };
    channel::json(Kind::Hello, &hello, &mut to.frames);
    let (mut first_id, mut troubles) = (0, Vec::new());
    for recording in recordings {
        let prefix = if recordings.len() > 1 { format!("{}: ", recording.name()) } else { String::new() };
        let mut gatherer = Gatherer::new(first_id, prefix, HOLD);
        troubles.extend(tell_events(recording.as_ref(), &mut gatherer, to)?);
        first_id = gatherer.next_id();
    }
    channel::frame(Kind::End, troubles.join("; ").as_bytes(), &mut to.frames);
    to.flush(true)
}

/// Tells a page the events of one recording. Returns why they ended early, if they did.
fn tell_events(recording: &dyn Recording, gatherer: &mut Gatherer, to: &mut Teller) -> Result<Option<String>, Gone> {
    let (mut now, mut marks) = (Duration::ZERO, Vec::new());
    let mut told = Ok(());
    let read = recording.read(&mut |observed| {
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
    Ok(read.err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::TraceEvent;
    use tidewire_proto::endpoint::ConnectionHandle;

    #[derive(Debug)]
    struct Damaged;

    impl Recording for Damaged {
        fn name(&self) -> &str {
            "kept.twr"
        }

        fn path(&self) -> &Path {
            Path::new(self.name())
        }

        fn read(&self, each: &mut Each<'_>) -> Result<(), String> {
            for number in 0..5 {
                let event = TraceEvent::PacketLost { number, bytes: 1_200, at_own_rate: false };
                let at = Duration::from_millis(50 * number);
                assert!(each(&Observed { at, endpoint: 0, connection: ConnectionHandle(0), event }));
            }
            Err("damaged at byte 77".to_owned())
        }
    }

    #[test]
    fn a_damaged_recording_is_shown_up_to_the_damage() {
        let (queue, mut waiting) = channel(MOST_WAITING);
        tell(&[Box::new(Damaged), Box::new(Damaged)], &mut Teller { queue, frames: Vec::new() }).unwrap();
        let mut text = Vec::new();
        while let Ok(piece) = waiting.try_recv() {
            text.extend_from_slice(&piece);
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains("\"title\":\"kept.twr, kept.twr\",\"live\":false"), "{text}");
        assert!(text.ends_with("damaged at byte 77; damaged at byte 77"), "{text}");
        // The steps at 100 and 200 ms, and the last one, of each.
        assert_eq!(text.matches("\"lost\":5").count(), 2, "{text}");
        assert_eq!((text.matches("\"c\":0,").count(), text.matches("\"c\":1,").count()), (3, 3), "{text}");
    }

    #[test]
    fn pages_of_recordings_are_bounded() {
        let recorded = Recorded::new(vec![Box::new(Damaged)]);
        let mut pages: Vec<_> = (0..MOST_PAGES).map(|_| recorded.open().unwrap()).collect();
        assert!(recorded.open().is_none());
        pages.pop();
        assert!(recorded.open().is_some());
    }
}
