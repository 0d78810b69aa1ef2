//! Coding jobs that run outside the connection, and their results.

use super::{CloseCode, Connection, State};
use crate::Time;
use crate::lane::{Decode, Decoded, Encode, Encoded, STREAMS};
use crate::path::Patience;

/// Work on one generation. A job owns references to its symbols and needs nothing else of the connection, so
/// it can run on any thread. A clone shares the symbols.
#[derive(Clone, Debug)]
pub struct Job {
    lane: u32,
    work: Work,
}

#[derive(Clone, Debug)]
enum Work {
    /// For a lane of the peer.
    Decode(Decode),
    /// For a lane of this end.
    Encode(Encode),
}

/// The result of a [`Job`].
#[derive(Debug)]
pub struct JobDone {
    lane: u32,
    result: Done,
}

#[derive(Debug)]
enum Done {
    Decoded(Decoded),
    Encoded(Encoded),
}

impl Job {
    /// Cost of the job: the number of products of a coefficient and a byte.
    pub fn products(&self) -> usize {
        match &self.work {
            Work::Decode(work) => work.products(),
            Work::Encode(work) => work.products(),
        }
    }

    /// Lane and first symbol of the generation. Jobs of the same generation are best run by the same worker.
    pub fn generation(&self) -> (u32, u64) {
        let generation = match &self.work {
            Work::Decode(work) => work.generation,
            Work::Encode(work) => work.generation,
        };
        (self.lane, generation.first().0)
    }

    /// Runs the job.
    pub fn run(self) -> JobDone {
        let result = match self.work {
            Work::Decode(work) => Done::Decoded(work.run()),
            Work::Encode(work) => Done::Encoded(work.run()),
        };
        JobDone { lane: self.lane, result }
    }
}

impl Connection {
    /// The next job with more products than [`crate::config::Config::inline_products`]; always `None` without
    /// workers. Pass its result to [`Self::handle_job`]; results may come in any order.
    pub fn poll_job(&mut self) -> Option<Job> {
        if !matches!(self.state, State::Established { .. }) {
            return None;
        }
        // Decoding comes first, because readers wait for it.
        let decode = |lane, work| Job { lane, work: Work::Decode(work) };
        if let Some(work) = self.receiving.receiver.poll_job() {
            return Some(decode(STREAMS, work));
        }
        let mut inbound = self.receiving.inbound.iter_mut();
        let job = inbound.find_map(|(&lane, inbound)| Some(decode(lane, inbound.receiver.poll_job()?)));
        job.or_else(|| {
            let mut lanes = self.lanes.iter_mut();
            lanes.find_map(|(lane, of)| Some(Job { lane, work: Work::Encode(of.sender.poll_job()?) }))
        })
    }

    /// Whether [`Self::poll_job`] may have a job.
    pub(crate) fn has_job(&self) -> bool {
        self.config.jobs.workers > 0
            && (self.receiving.receiver.has_job()
                || self.receiving.inbound.values().any(|inbound| inbound.receiver.has_job())
                || self.lanes.iter().any(|(_, lane)| lane.sender.has_job()))
            && matches!(self.state, State::Established { .. })
    }

    /// Takes the result of a job. Returns whether it was still needed: a result for a closed connection is
    /// dropped.
    pub fn handle_job(&mut self, now: Time, done: JobDone) -> bool {
        if !matches!(self.state, State::Established { .. }) {
            return false;
        }
        match self.apply_job(now, done) {
            // No further packet may arrive that requests FEEDBACK, and the peer may be waiting for this
            // credit.
            Ok(true) => self.path.feedback.on_eliciting(now, Patience::None),
            Ok(false) => {}
            Err(code) => self.fault(now, code),
        }
        true
    }

    /// Applies the result. Returns whether the peer must be told.
    fn apply_job(&mut self, now: Time, JobDone { lane, result }: JobDone) -> Result<bool, CloseCode> {
        let decoded = match result {
            Done::Decoded(decoded) => decoded,
            Done::Encoded(encoded) => {
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.sender.handle_job(encoded);
                }
                return Ok(false);
            }
        };
        if lane == STREAMS {
            return self.receiving.receiver.handle_job(now, decoded, &mut self.streams);
        }
        let Some(inbound) = self.receiving.inbound.get_mut(&lane) else { return Ok(false) };
        let moved = inbound.receiver.handle_job(now, decoded, &mut inbound.messages)?;
        self.tell_messages(lane);
        Ok(moved)
    }
}
