//! A token-bucket policer behind the queue: it drops at once what exceeds a rate and never delays.
//!
//! [`Link`](super::Link) asks it about each datagram when the last byte has left the queue, before loss and
//! blackouts. Invariants: the count of tokens is exact, in units of which each nanosecond brings a whole
//! number; a dropped datagram takes no tokens; over any time the policer passes at most its burst and what
//! its rate carries.

use core::time::Duration;
use std::sync::Arc;

use tidewire_units::Rate;

use super::config::nanos;

/// What a policer does over time. By default it passes everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Police {
    /// In ascending order of time. None means that everything passes.
    steps: Arc<[PoliceStep]>,
}

/// What a policer does from a time on, until the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoliceStep {
    /// Time since the start. What counts for a datagram is the time at which its last byte leaves the queue.
    pub from: Duration,
    /// The bucket, which is full when the step begins; `None` passes everything.
    pub bucket: Option<TokenBucket>,
}

/// The bucket of a policer. A datagram passes if its IP bytes do not exceed the tokens, which it then takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Rate at which tokens come, of IP bytes.
    pub rate: Rate,
    /// Maximum number of tokens, in IP bytes.
    pub burst: u64,
    /// IP bytes that pass free before the bucket is used, counted from the beginning of the step. The
    /// datagram that exceeds them still passes.
    pub after: u64,
}

impl Police {
    /// A policer that changes at each of `steps`. Before the first it passes everything.
    ///
    /// # Errors
    /// Fails if a step does not begin later than the one before, or has a bucket without room.
    pub fn new(steps: impl IntoIterator<Item = PoliceStep>) -> Result<Self, ImpossiblePolice> {
        let steps: Arc<[PoliceStep]> = steps.into_iter().collect();
        if let Some(step) = steps.iter().find(|step| step.bucket.is_some_and(|bucket| bucket.burst == 0)) {
            return Err(ImpossiblePolice::NoRoom { from: step.from });
        }
        match steps.windows(2).find(|pair| pair[1].from <= pair[0].from) {
            Some(pair) => Err(ImpossiblePolice::NotLater { before: pair[0].from, from: pair[1].from }),
            None => Ok(Self { steps }),
        }
    }

    /// The steps in their order.
    pub fn steps(&self) -> &[PoliceStep] {
        &self.steps
    }
}

/// Steps that no policer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpossiblePolice {
    /// The step that begins at `from` has a bucket of 0 bytes.
    #[error("a bucket of 0 bytes from {from:?} on would pass nothing: write for example \"10mbit:50kB\"")]
    NoRoom {
        /// When the step begins.
        from: Duration,
    },
    /// A step does not begin later than the one before.
    #[error(
        "a step from {from:?} on follows one from {before:?} on: each step needs a later time, such as \"5s.. none\""
    )]
    NotLater {
        /// When the step before begins.
        before: Duration,
        /// When the step begins.
        from: Duration,
    },
}

/// A policer in operation.
#[derive(Clone, Debug)]
pub(super) struct Policer {
    police: Police,
    /// Index of the step that begins next.
    next: usize,
    /// The bucket of the present step.
    filling: Option<Filling>,
}

/// The state of a bucket.
#[derive(Clone, Debug)]
struct Filling {
    bucket: TokenBucket,
    /// IP bytes that passed before the bucket was used.
    free: u64,
    /// Tokens at `at`, in parts of a byte: see [`PARTS`].
    tokens: u128,
    at: u64,
}

impl Policer {
    pub(super) fn new(police: &Police) -> Self {
        Self { police: police.clone(), next: 0, filling: None }
    }

    /// Whether a datagram of `ip_bytes` that leaves the queue at `now` passes. Calls are in order of `now`.
    pub(super) fn passes(&mut self, now: u64, ip_bytes: u64) -> bool {
        while let Some(step) = self.police.steps.get(self.next).filter(|step| nanos(step.from) <= now) {
            self.filling = step.bucket.map(|bucket| Filling::new(bucket, nanos(step.from)));
            self.next += 1;
        }
        self.filling.as_mut().is_none_or(|filling| filling.passes(now, ip_bytes))
    }
}

impl Filling {
    fn new(bucket: TokenBucket, at: u64) -> Self {
        Self { bucket, free: 0, tokens: u128::from(bucket.burst) * PARTS, at }
    }

    fn passes(&mut self, now: u64, ip_bytes: u64) -> bool {
        let TokenBucket { rate, burst, after } = self.bucket;
        if self.free < after {
            self.free = self.free.saturating_add(ip_bytes);
            return true;
        }
        let came = u128::from(rate.bits_per_second()) * u128::from(now.saturating_sub(self.at));
        self.tokens = self.tokens.saturating_add(came).min(u128::from(burst) * PARTS);
        self.at = self.at.max(now);
        let left = self.tokens.checked_sub(u128::from(ip_bytes) * PARTS);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}

/// Parts of a byte in which tokens are counted. A nanosecond at 1 bit/s brings one: 8 bits a byte times 10^9
/// nanoseconds a second.
const PARTS: u128 = 8_000_000_000;
