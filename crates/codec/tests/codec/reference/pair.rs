//! The real decoder beside the naive one: both take every step of an honest sender and must agree after it.
//!
//! Shared by the property tests of `decoder.rs` and the fuzz target `decoder`.

use std::collections::BTreeSet;

use tidewire_codec::field::gf256;
use tidewire_codec::{Code, Decoded, Decoder, Encoder, Limits, Reception, RepairId, SourceId};

use super::Reference;

/// Number of ids: a few words of the decoder's sets, and few enough for the naive elimination.
pub const IDS: usize = 72;
const SLOT: usize = 128;
const LIMITS: Limits = Limits { slot_len: SLOT, capacity: IDS, max_span: IDS as u16, max_rows: IDS };

/// A step of the test. All ids are below [`IDS`].
#[derive(Clone, Debug)]
pub enum Step {
    Source(usize),
    Repair(Code, RepairId),
    /// First id and coefficients, not all of them 0.
    Recoded(usize, Vec<u8>),
    Skip(usize),
    Grow(usize),
}

/// An encoder with all symbols in it: odd bytes of odd lengths.
fn sender() -> Encoder {
    let mut encoder = Encoder::new(SLOT, IDS);
    for id in 0..IDS {
        let len = 1 + id * 37 % SLOT;
        let symbol: Vec<u8> = (0..len).map(|i| (i * 31 + id * 101 + 7) as u8 | 1).collect();
        encoder.push(&symbol).unwrap();
    }
    encoder
}

/// Coefficients from `first` on, among all ids.
fn wide(first: usize, coefficients: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut row = vec![0; first];
    row.extend(coefficients);
    row.resize(IDS, 0);
    row
}

/// Both decoders with one honest sender, and the reports of the real one.
pub struct Pair {
    encoder: Encoder,
    pub decoder: Decoder,
    reference: Reference,
    end: usize,
    pub reported: BTreeSet<u64>,
    /// A skip lost more rows than necessary, because of the bound on row operations. Since then the reference
    /// knows more.
    is_behind: bool,
}

impl Pair {
    pub fn new() -> Self {
        let (decoder, reference) = (Decoder::new(LIMITS), Reference::new(IDS));
        Self { encoder: sender(), decoder, reference, end: 0, reported: BTreeSet::new(), is_behind: false }
    }

    /// Performs a step with both, and compares them.
    pub fn take(&mut self, step: &Step) {
        if self.is_behind {
            return;
        }
        let (before, rows) = (self.decoder.row_operations(), self.decoder.rows() as u64);
        match *step {
            Step::Skip(id) => {
                self.is_behind = self.decoder.skip_before(SourceId(id as u64)) > 0;
                self.reference.skip_before(id);
                self.end = self.end.max(id);
            }
            Step::Grow(capacity) => {
                let before = self.decoder.capacity();
                self.decoder.grow(capacity);
                assert_eq!(self.decoder.capacity(), before.max(capacity.next_power_of_two()));
            }
            Step::Source(id) => {
                let symbol = self.encoder.symbol(SourceId(id as u64)).unwrap();
                let reception = self.decoder.receive_source(SourceId(id as u64), symbol).unwrap();
                let row = (0..IDS).map(|column| u8::from(column == id)).collect();
                let expected = self.reference.receive(row);
                assert_eq!(reception == Reception::Innovative, expected, "{step:?}: {reception:?}");
                self.end = self.end.max(id + 1);
            }
            Step::Repair(code, id) => {
                let mut symbol = [0; SLOT];
                let len = self.encoder.write_repair(code, id, &mut symbol).unwrap();
                let reception = self.decoder.receive_repair(code, id, &symbol[..len]).unwrap();
                let expected = self.reference.receive(wide(id.first.0 as usize, code.row(id)));
                assert_eq!(reception == Reception::Innovative, expected, "{step:?}: {reception:?}");
                self.end = self.end.max(id.first.0 as usize + usize::from(id.count));
            }
            Step::Recoded(first, ref coefficients) => {
                let symbol = self.mixed(first, coefficients);
                let reception = self.decoder.receive_recoded(SourceId(first as u64), coefficients, &symbol).unwrap();
                let expected = self.reference.receive(wide(first, coefficients.iter().copied()));
                assert_eq!(reception == Reception::Innovative, expected, "{step:?}: {reception:?}");
                let last = coefficients.iter().rposition(|&factor| factor != 0).unwrap();
                self.end = self.end.max(first + last + 1);
            }
        }
        while let Some(Decoded { id, .. }) = self.decoder.poll_decoded() {
            assert!(self.reported.insert(id.0), "{id} was told twice");
        }
        let most = if matches!(step, Step::Skip(_)) { IDS as u64 } else { rows + 1 };
        assert!(self.decoder.row_operations() - before <= most, "{step:?} with {rows} rows");
        if !self.is_behind {
            self.agree();
        }
    }

    /// The symbol that a relay would send. It is as long as the longest symbol it mixes, or longer, because
    /// the relay may have held longer ones that cancel out. Half of all lengths of coding vectors stand for
    /// that case.
    fn mixed(&self, first: usize, coefficients: &[u8]) -> Vec<u8> {
        let mut mixed = Vec::new();
        for (id, &factor) in (first as u64..).zip(coefficients).filter(|&(_, &factor)| factor != 0) {
            let symbol = self.encoder.symbol(SourceId(id)).unwrap();
            mixed.resize(mixed.len().max(symbol.len()), 0);
            mixed.iter_mut().zip(symbol).for_each(|(sum, &byte)| *sum ^= gf256::mul(factor, byte));
        }
        if coefficients.len().is_multiple_of(2) {
            mixed.resize(SLOT, 0);
        }
        mixed
    }

    fn agree(&self) {
        let mut missing = Vec::new();
        for id in 0..IDS {
            let (source, is_decoded) = (SourceId(id as u64), self.reference.is_decoded(id));
            let is_given_up = self.reference.is_given_up(id);
            assert_eq!(self.decoder.is_decoded(source), is_decoded || is_given_up, "{id}");
            assert_eq!(self.reported.contains(&source.0), is_decoded, "{id} decoded and told");
            let truth = self.encoder.symbol(source).unwrap();
            match self.decoder.symbol(source) {
                None => assert!(!is_decoded, "{id} is lost again"),
                Some(symbol) => {
                    assert!(is_decoded, "{id} out of nothing");
                    assert!(symbol.starts_with(truth), "bytes of {id}");
                    assert!(symbol[truth.len()..].iter().all(|&byte| byte == 0), "padding of {id}");
                }
            }
            if id < self.end && !is_decoded && !is_given_up {
                missing.push(source);
            }
        }
        let end = SourceId(self.end as u64);
        assert_eq!(self.decoder.end(), end);
        assert_eq!(self.decoder.edge(), *missing.first().unwrap_or(&end));
        assert_eq!(self.decoder.rows(), self.reference.unsolved());
        assert_eq!(self.decoder.rank_deficit(), (missing.len() - self.reference.unsolved()) as u64);
        assert_eq!(self.decoder.undecoded_in(SourceId(0)..SourceId(u64::MAX)), missing.len() as u64);
        let runs = self.decoder.undecoded().flat_map(|run| (run.start.0..run.end.0).map(SourceId));
        assert!(runs.eq(missing.iter().copied()));
    }
}
