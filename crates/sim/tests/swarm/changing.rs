//! A policy whose generations change their size: each has a random number of symbols, and one repair for each
//! eight of them.
//!
//! The answer `resend` sends again what is lost beyond the repairs. The third generator draws this policy.

use std::collections::VecDeque;

use tidewire_codec::{Code, SourceId, SplitMix64};
use tidewire_proto::profile::{Layout, Profile, STREAM};
use tidewire_proto::redundancy::{
    Answer, Closed, CodingContext, GenerationRow, Proactive, ProactivePolicy, Redundancy, Repair,
};
use tidewire_proto::{Custom, Time};

use super::case::Draw;

/// Longest generation: with its repairs there is still a Cauchy code for it.
const LONGEST: u64 = 200;
/// Source symbols per repair.
const SHARE: u16 = 8;

/// Generations of changing size, drawn from `seed`.
pub fn profile(seed: f64) -> Profile {
    let custom = Custom { name: "changing", build, parameter: seed };
    let redundancy = Redundancy { proactive: Proactive::Custom(custom), answer: Answer::Resend };
    Profile { code: Code::Cauchy, layout: Layout::Generations, redundancy, ..STREAM }
}

fn build(seed: f64) -> Box<dyn ProactivePolicy> {
    Box::new(Changing::new(seed as u64))
}

#[derive(Debug)]
struct Changing {
    draw: Draw,
    size: u64,
    filling: SourceId,
    /// Closed generations with outstanding repairs, and the number already sent.
    owed: VecDeque<(Closed, u16)>,
    news: Option<Closed>,
}

impl Changing {
    fn new(seed: u64) -> Self {
        let mut draw = Draw(SplitMix64::new(seed));
        let size = 1 + draw.below(LONGEST);
        Self { draw, size, filling: SourceId(0), owed: VecDeque::new(), news: None }
    }

    fn close(&mut self, sent: SourceId, code: Code) {
        let count = (sent.0 - self.filling.0) as u16;
        let repairs = count.div_ceil(SHARE);
        let closed = Closed { first: self.filling, count, code, repairs };
        self.owed.push_back((closed, 0));
        (self.filling, self.news, self.size) = (sent, Some(closed), 1 + self.draw.below(LONGEST));
    }
}

impl ProactivePolicy for Changing {
    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        if cx.sent.0 - self.filling.0 >= self.size.min(cx.limits.max_span.into()) {
            self.close(cx.sent, cx.limits.code);
        }
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if self.poll_timeout(cx).is_some_and(|at| at <= cx.now) {
            self.close(cx.sent, cx.limits.code);
        }
        while let Some((Closed { first, count, code, repairs }, sent)) = self.owed.front_mut() {
            if *sent < *repairs && first.plus(u64::from(*count)) > cx.base {
                let row = GenerationRow { code: *code, key: *sent };
                *sent += 1;
                return Some(Repair::Coded { first: *first, count: *count, row: Some(row), on_feedback: false });
            }
            self.owed.pop_front();
        }
        None
    }

    fn poll_closed(&mut self) -> Option<Closed> {
        self.news.take()
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        (self.filling < cx.sent && !cx.flow.backlog).then(|| cx.flow.last + cx.path.rtt / 4)
    }
}
