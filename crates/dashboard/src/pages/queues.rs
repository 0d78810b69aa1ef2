//! The queues of the pages of a running job: what pages get when they open, and what they get from then on.
//!
//! The consumer of events publishes the frames of each step, and the server subscribes a page. Each page has
//! a bounded queue. A step that finds it full is dropped for this page and counted; the page is told, and
//! gets the delays anew, because samples have only those of their step. Invariant: publishing never waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Sender, channel};

use super::channel::{self, Dropped, Kind};
use super::gather::Gatherer;
use super::server::Frames;

/// Most pages at a time. Chosen: a few people watch one job.
pub const MOST_PAGES: usize = 8;
/// Most steps that wait for a page. Chosen: three seconds, longer than a browser collects garbage.
pub const MOST_WAITING: usize = 32;
/// Most bytes of samples and notes that are kept for pages that open later. Chosen: an hour of one
/// connection.
const MOST_HISTORY: usize = 24 << 20;

/// The pages of a job.
#[derive(Debug, Default)]
pub struct Queues {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The first frame.
    hello: Vec<u8>,
    /// Samples and notes so far, a step each.
    history: VecDeque<Bytes>,
    history_bytes: usize,
    pages: Vec<Page>,
    is_over: bool,
    /// Each page that still reads holds one.
    presence: Arc<()>,
}

/// The queue of one page, and the number of steps that it missed.
#[derive(Debug)]
struct Page {
    queue: Sender<Bytes>,
    dropped: u64,
    /// Whether steps were dropped that the page does not know of.
    owes: bool,
}

impl Queues {
    /// Queues of no page yet. Each will begin with the frame `hello`.
    pub fn new(hello: Vec<u8>) -> Self {
        Self { state: Mutex::new(State { hello, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a page. Its queue begins with everything so far. `None` if there are too many pages, or the job
    /// is over.
    pub fn open(&self, gatherer: &Gatherer) -> Option<Frames> {
        let mut state = self.state();
        state.pages.retain(|page| !page.queue.is_closed());
        if state.is_over || state.pages.len() >= MOST_PAGES {
            return None;
        }
        let mut first = state.hello.clone();
        gatherer.snapshot(&mut first);
        state.history.iter().for_each(|step| first.extend_from_slice(step));
        // The oldest samples may be forgotten, so their delays are told as a sum.
        gatherer.delays(&mut first);
        // A page that does not read keeps it.
        first.shrink_to_fit();
        let (queue, waiting) = channel(MOST_WAITING);
        // The queue is empty, so it takes this.
        let _ = queue.try_send(first.into());
        state.pages.push(Page { queue, dropped: 0, owes: false });
        Some(Frames::new(waiting, Arc::clone(&state.presence)))
    }

    /// Gives the frames of a step to all pages: `lasting` is kept for pages that open later, `marks` is not.
    /// `gatherer` tells a page that missed steps what it needs.
    pub fn publish(&self, lasting: Vec<u8>, marks: &[u8], gatherer: &Gatherer) {
        let mut state = self.state();
        let step = Bytes::from([&lasting[..], marks].concat());
        state.pages.retain_mut(|page| page.give(&step, gatherer));
        state.keep(lasting.into());
    }

    /// Ends the channel of all pages.
    pub fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        let mut frames = Vec::new();
        channel::frame(Kind::End, &[], &mut frames);
        let frames = Bytes::from(frames);
        for page in std::mem::take(&mut state.pages) {
            // A page whose queue is full sees the end of the channel without these.
            let _ = page.queue.try_send(frames.clone());
        }
    }

    /// Whether a page has not read everything yet.
    pub fn has_readers(&self) -> bool {
        Arc::strong_count(&self.state().presence) > 1
    }
}

impl State {
    fn keep(&mut self, step: Bytes) {
        if step.is_empty() {
            return;
        }
        self.history_bytes += step.len();
        self.history.push_back(step);
        while self.history_bytes > MOST_HISTORY {
            let Some(oldest) = self.history.pop_front() else { return };
            self.history_bytes -= oldest.len();
        }
    }
}

impl Page {
    /// Offers a step. Returns false if the page is gone.
    fn give(&mut self, step: &Bytes, gatherer: &Gatherer) -> bool {
        let offered = if self.owes && self.queue.capacity() > 0 {
            let mut frames = Vec::new();
            channel::json(Kind::Dropped, &Dropped { dropped: self.dropped }, &mut frames);
            frames.extend_from_slice(step);
            // The sample of this step has delays that are also in the sum, so the sum comes last.
            gatherer.delays(&mut frames);
            self.queue.try_send(frames.into())
        } else {
            self.queue.try_send(step.clone())
        };
        match offered {
            Ok(()) => self.owes = false,
            Err(TrySendError::Full(_)) => {
                self.dropped += 1;
                self.owes = true;
            }
            Err(TrySendError::Closed(_)) => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn gatherer() -> Gatherer {
        Gatherer::new(0, String::new(), Duration::ZERO)
    }

    #[test]
    fn a_stalled_page_misses_steps_and_is_told_how_many() {
        let (queues, gatherer) = (Queues::new(b"hello".to_vec()), gatherer());
        let mut stalled = queues.open(&gatherer).unwrap();
        // The first message takes one place of the queue.
        (0..MOST_WAITING + 4).for_each(|_| queues.publish(b"step".to_vec(), b"", &gatherer));
        assert_eq!(&stalled.try_recv().unwrap()[..], b"hello");
        for _ in 1..MOST_WAITING {
            assert_eq!(&stalled.try_recv().unwrap()[..], b"step");
        }
        assert!(stalled.try_recv().is_err());
        queues.publish(b"step".to_vec(), b"marks", &gatherer);
        let told = stalled.try_recv().unwrap();
        assert_eq!((&told[5..18], &told[18..]), (&b"{\"dropped\":5}"[..], &b"stepmarks"[..]));
        queues.publish(b"step".to_vec(), b"", &gatherer);
        assert_eq!(&stalled.try_recv().unwrap()[..], b"step");
    }

    #[test]
    fn a_page_that_opens_later_gets_what_lasts() {
        let (queues, gatherer) = (Queues::new(b"hello".to_vec()), gatherer());
        queues.publish(b"first".to_vec(), b"marks", &gatherer);
        queues.publish(b"second".to_vec(), b"marks", &gatherer);
        let mut late = queues.open(&gatherer).unwrap();
        assert_eq!(&late.try_recv().unwrap()[..], b"hellofirstsecond");
    }

    #[test]
    fn pages_are_bounded_and_those_that_left_make_room() {
        let (queues, gatherer) = (Queues::new(Vec::new()), gatherer());
        let mut pages: Vec<_> = (0..MOST_PAGES).map(|_| queues.open(&gatherer).unwrap()).collect();
        assert!(queues.open(&gatherer).is_none());
        pages.pop();
        assert!(queues.open(&gatherer).is_some());
        queues.end();
        assert!(queues.open(&gatherer).is_none());
        assert!(queues.has_readers());
        pages.clear();
        assert!(!queues.has_readers());
    }

    #[test]
    fn history_is_bounded() {
        let (queues, gatherer) = (Queues::new(Vec::new()), gatherer());
        (0..50).for_each(|_| queues.publish(vec![0; 1 << 20], b"", &gatherer));
        assert_eq!(queues.state().history_bytes, MOST_HISTORY);
    }
}
