//! Coding work that leaves the connection, and its results.

use super::{CloseCode, Connection, State};
use crate::Time;
use crate::lane::{Decode, Decoded, STREAMS};

/// Work on one generation. It owns references to the symbols it needs and nothing else of the connection, so
/// that it can run on any thread.
#[derive(Debug)]
pub struct Job {
    lane: u32,
    work: Decode,
}

/// What came of a [`Job`].
#[derive(Debug)]
pub struct JobDone {
    lane: u32,
    result: Decoded,
}

impl Job {
    /// Products of a coefficient and a byte that it takes: what it costs.
    pub fn products(&self) -> usize {
        self.work.products()
    }

    /// Lane and first symbol of its generation: jobs of the same one are best run by the same worker.
    pub fn generation(&self) -> (u32, u64) {
        (self.lane, self.work.generation.first().0)
    }

    /// Does the work.
    pub fn run(self) -> JobDone {
        JobDone { lane: self.lane, result: self.work.run() }
    }
}

impl Connection {
    /// The next piece of coding work that is larger than [`crate::config::Config::inline_products`]; none where there are no
    /// workers. Its result comes back by [`Self::handle_job`], in any order.
    pub fn poll_job(&mut self) -> Option<Job> {
        if !matches!(self.state, State::Established { .. }) {
            return None;
        }
        let streams = self.receiver.poll_job().map(|work| Job { lane: STREAMS, work });
        streams.or_else(|| {
            let mut inbound = self.inbound.iter_mut();
            inbound.find_map(|(&lane, inbound)| Some(Job { lane, work: inbound.receiver.poll_job()? }))
        })
    }

    /// Whether [`Self::poll_job`] may have a job.
    pub(crate) fn has_job(&self) -> bool {
        self.config.workers > 0
            && (self.receiver.has_job() || self.inbound.values().any(|inbound| inbound.receiver.has_job()))
    }

    /// What came of a job. Returns whether it was still wanted: the result of a connection that is over is dropped.
    pub fn handle_job(&mut self, now: Time, done: JobDone) -> bool {
        if !matches!(self.state, State::Established { .. }) {
            return false;
        }
        match self.apply_job(now, done) {
            // No packet may come any more that asks for FEEDBACK, and the peer may wait for the credit.
            Ok(true) => self.path.feedback.on_eliciting(now, true),
            Ok(false) => {}
            Err(code) => self.fault(now, code),
        }
        true
    }

    fn apply_job(&mut self, now: Time, done: JobDone) -> Result<bool, CloseCode> {
        if done.lane == STREAMS {
            return self.receiver.handle_job(now, done.result, &mut self.streams);
        }
        let Some(inbound) = self.inbound.get_mut(&done.lane) else { return Ok(false) };
        let moved = inbound.receiver.handle_job(now, done.result, &mut inbound.messages)?;
        self.tell_messages(done.lane);
        Ok(moved)
    }
}
