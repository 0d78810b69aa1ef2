//! The receiving half: counts degrees of freedom, decodes buckets, and acknowledges (Figure 4 of the paper).
//!
//! Invariants: bytes are delivered in order and were compared with those that were sent; a combination that
//! is not innovative changes nothing.

use std::collections::{BTreeMap, VecDeque};

use tidewire_codec::Rank;

use super::{Combination, Confirms, DegreeAck, LENGTH, generation};
use crate::load::fill;

/// Errors that are kept.
const MOST_ERRORS: usize = 8;

/// What a receiver counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecoderStats {
    /// Combinations that raised the rank of their bucket.
    pub innovative: u64,
    /// Combinations that did not.
    pub useless: u64,
    /// Of these, those that TCP's repetitions caused.
    pub useless_repeats: u64,
    /// Zero-payload packets that were decoded.
    pub empty: u64,
    /// Acknowledgements sent.
    pub acks: u64,
}

/// A bucket of which something arrived.
#[derive(Debug)]
struct Open {
    rank: Rank,
    size: u16,
    seeds: Vec<u16>,
    combinations: Vec<Vec<u8>>,
}

impl Open {
    fn is_complete(&self) -> bool {
        self.seeds.len() == usize::from(self.size)
    }

    /// The symbols, once the bucket is complete.
    fn symbols(&self, number: u64) -> Option<Vec<Vec<u8>>> {
        let all: Vec<u16> = (0..self.size).collect();
        let plan = generation(number, self.size)?.plan(&all, &self.seeds).ok()?;
        let len = self.combinations.first()?.len();
        let mut decoded = vec![vec![0; len]; all.len()];
        plan.decode(&vec![[0u8; 0]; all.len()], &self.combinations, &mut decoded).ok()?;
        Some(decoded)
    }
}

/// The receiver; see the module.
#[derive(Debug)]
pub struct Decoder {
    confirms: Confirms,
    seed: u64,
    /// The first bucket that is not complete, and the degrees of those before it.
    next: u64,
    degrees: u64,
    open: BTreeMap<u64, Open>,
    delivered: u64,
    acks: VecDeque<DegreeAck>,
    stats: DecoderStats,
    errors: Vec<String>,
}

impl Decoder {
    /// The receiver of a flow whose bytes `seed` decides.
    pub fn new(confirms: Confirms, seed: u64) -> Self {
        Self {
            confirms,
            seed,
            next: 0,
            degrees: 0,
            open: BTreeMap::new(),
            delivered: 0,
            acks: VecDeque::new(),
            stats: DecoderStats::default(),
            errors: Vec::new(),
        }
    }

    /// The counts.
    pub fn stats(&self) -> DecoderStats {
        self.stats
    }

    /// Bytes delivered in order.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Differences between what was decoded and what was sent; empty if all is well.
    pub fn errors(&self) -> &[String] {
        &self.errors
    }

    /// Takes a combination that arrived.
    pub fn handle(&mut self, combination: Combination) {
        let Combination { bucket, is_repeat, stamp, .. } = combination;
        let is_news = self.take(combination);
        let count = if is_news { &mut self.stats.innovative } else { &mut self.stats.useless };
        *count += 1;
        self.stats.useless_repeats += u64::from(!is_news && is_repeat);
        let before = self.next;
        self.advance();
        let is_confirmed = match self.confirms {
            Confirms::Degrees => is_news,
            // One of a later bucket is a duplicate acknowledgement.
            Confirms::Buckets => is_news && (self.next > before || bucket > self.next),
        };
        if is_confirmed || (is_repeat && !is_news) {
            let partial = self.open.get(&self.next).map_or(0, |open| open.seeds.len() as u64);
            let partial = if self.confirms == Confirms::Degrees { partial } else { 0 };
            self.acks.push_back(DegreeAck { degrees: self.degrees + partial, echo: stamp });
            self.stats.acks += 1;
        }
    }

    /// The next acknowledgement to send. Call until `None`.
    pub fn poll_transmit(&mut self) -> Option<DegreeAck> {
        self.acks.pop_front()
    }

    /// Adds a combination to its bucket. Returns whether it raised the rank.
    fn take(&mut self, combination: Combination) -> bool {
        let Combination { bucket, size, seed, bytes, .. } = combination;
        if bucket < self.next {
            return false;
        }
        let Some(code) = generation(bucket, size) else { return false };
        let new = || Open { rank: Rank::new(code), size, seeds: Vec::new(), combinations: Vec::new() };
        let open = self.open.entry(bucket).or_insert_with(new);
        let is_news = !open.is_complete() && open.rank.add_repair(size, seed) == Ok(true);
        if is_news {
            open.seeds.push(seed);
            open.combinations.push(bytes);
        }
        is_news
    }

    /// Delivers the buckets that are complete.
    fn advance(&mut self) {
        while let Some(first) = self.open.first_entry() {
            if *first.key() != self.next || !first.get().is_complete() {
                return;
            }
            let open = first.remove();
            let Some(symbols) = open.symbols(self.next) else {
                self.complain(format!("bucket {} of full rank cannot be decoded", self.next));
                return;
            };
            symbols.iter().for_each(|symbol| self.deliver(symbol));
            self.degrees += u64::from(open.size);
            self.next += 1;
        }
    }

    fn deliver(&mut self, symbol: &[u8]) {
        let Some((length, rest)) = symbol.split_first_chunk::<LENGTH>() else { return };
        let length = usize::from(u16::from_be_bytes(*length));
        if length == 0 {
            self.stats.empty += 1;
            return;
        }
        let mut wanted = vec![0; length];
        fill(self.seed, 0, self.delivered, &mut wanted);
        if rest.get(..length) != Some(&wanted[..]) {
            self.complain(format!("{length} bytes from {} on are not those that were sent", self.delivered));
        }
        self.delivered += length as u64;
    }

    fn complain(&mut self, error: String) {
        if self.errors.len() < MOST_ERRORS {
            self.errors.push(error);
        }
    }
}
