//! What a [`Decoder`] does with a received symbol: check it, reduce it, and make it a row or a decoded
//! symbol.
//!
//! All refusals come first, then the coefficients are reduced, then the payloads. A symbol that contradicts
//! an earlier one is refused if the decoder can see that without a pass over payloads:
//! - A repair is shorter than a source symbol it mixes, whichever of the two comes first. If the source
//!   symbol was itself repaired, its true length is unknown. If the repair became part of other rows, only
//!   their lengths are known.
//! - A source symbol is received again with other contents while it is held, or a repair while its row is
//!   held. The second check compares payloads, but only in this case.
//!
//! Other contradictions between repairs are not detected, nor those with symbols that were released, given up
//! or never held. Bytes that were wrong from the start decode to wrong bytes.

use core::ops::Range;

use super::rows::{Lead, Name, Place};
use super::{Decoder, Reception};
use crate::field::gf256;
use crate::id::span;
use crate::{Code, DecodeError, RepairId, SourceId};

impl Decoder {
    /// Takes a source symbol.
    ///
    /// # Errors
    /// The symbol is empty or longer than a slot, its id is not below [`limit`](Self::limit), it is longer
    /// than a row that mixes it, or it is already held with other contents. Nothing is changed.
    pub fn receive_source(&mut self, id: SourceId, symbol: &[u8]) -> Result<Reception, DecodeError> {
        self.check_symbol(symbol)?;
        self.check_below_limit(id)?;
        self.accept(id.0, symbol, 1, false)
    }

    /// Takes a repair symbol. If nothing in its span is missing, the cost is only a look at the bits of the
    /// span.
    ///
    /// # Errors
    /// The code is for generations only or has no such repair symbol. The span is longer than allowed or
    /// reaches [`limit`](Self::limit). The symbol is empty, longer than a slot, or shorter than a source
    /// symbol it mixes. It needs more rows or columns than the limits allow, or its row is already held with
    /// other contents. Nothing is changed: such a symbol counts as lost.
    pub fn receive_repair(&mut self, code: Code, id: RepairId, symbol: &[u8]) -> Result<Reception, DecodeError> {
        code.check_sliding()?;
        code.check(id)?;
        let span = self.check_span(id.first, id.count.into())?;
        self.check_symbol(symbol)?;
        self.check_below_limit(SourceId(span.end - 1))?;
        if id.count > 1 && self.is_nothing_missing(span) {
            return Ok(Reception::Redundant);
        }
        self.keep_row(id.count.into(), |row| code.row(id).fill(row));
        self.combine(id.first.0, symbol, Some((code, id)))
    }

    /// Takes a recoded symbol: a combination that a relay made of the symbols it held, and its coefficients,
    /// the first of them for `first`. Some of them may be 0, but not all. The decoder uses the rest like a
    /// repair symbol, within the same limits.
    ///
    /// # Errors
    /// The same as for [`receive_repair`](Self::receive_repair), for the span of the coefficients. Also an
    /// error if all coefficients are 0, because such a symbol carries no information.
    pub fn receive_recoded(
        &mut self,
        first: SourceId,
        coefficients: &[u8],
        symbol: &[u8],
    ) -> Result<Reception, DecodeError> {
        self.check_span(first, coefficients.len())?;
        self.check_symbol(symbol)?;
        let (skipped, coefficients) = without_outer_zeros(coefficients).ok_or(DecodeError::AllZero)?;
        let first = first.0 + skipped as u64;
        let span = first..first + coefficients.len() as u64;
        self.check_below_limit(SourceId(span.end - 1))?;
        if coefficients.len() > 1 && self.is_nothing_missing(span) {
            return Ok(Reception::Redundant);
        }
        self.keep_row(coefficients.len(), |row| row.copy_from_slice(coefficients));
        self.combine(first, symbol, None)
    }

    /// Stores the coefficients of the symbol being received, which `fill` writes.
    fn keep_row(&mut self, count: usize, fill: impl FnOnce(&mut [u8])) {
        self.row.clear();
        self.terms.clear();
        self.reserve();
        self.row.resize(count, 0);
        fill(&mut self.row);
    }

    /// Takes the combination of the symbols from `first` with the coefficients in `row`. `name` is its name
    /// as a repair.
    fn combine(&mut self, first: u64, symbol: &[u8], name: Name) -> Result<Reception, DecodeError> {
        if let [factor] = self.row[..] {
            return self.accept(first, symbol, gf256::inv(factor), true);
        }
        let span = first..first + self.row.len() as u64;
        if self.is_beyond_use(first) {
            self.raise_end(span.end);
            return Ok(Reception::Stale);
        }

        self.check_as_long(first, symbol.len())?;
        // Coefficients first: most redundant symbols, and all refused ones, never touch a payload.
        let Self { decoded, row, rows, terms, .. } = self;
        let missing = decoded.others(span.start.max(self.edge)..span.end.min(self.end));
        let unseen = span.start.max(self.end)..span.end;
        let Some(lead) = rows.reduce(missing.chain(unseen), first, row, terms)? else {
            return self.check_again(first, symbol, name);
        };

        self.raise_end(span.end);
        self.ring.write(lead.id, symbol);
        self.ring.mix_span_into(lead.id, first, &self.row);
        self.settle(lead, name);
        self.finish();
        Ok(Reception::Innovative)
    }

    /// Takes one symbol out of a source symbol or a combination of one; its bytes are those of `symbol` times
    /// `factor`.
    fn accept(&mut self, id: u64, symbol: &[u8], factor: u8, repaired: bool) -> Result<Reception, DecodeError> {
        if self.is_held(id) {
            return if factor == 1 { self.check_same(id, symbol, repaired) } else { Ok(Reception::Redundant) };
        }
        if id < self.edge {
            return Ok(Reception::Stale);
        }
        // A combination may be padded: a relay makes it as long as the longest symbol that it held.
        let padding = if repaired { symbol.iter().rev().take_while(|&&byte| byte == 0).count() } else { 0 };
        self.check_rows_as_long(id, symbol.len() - padding)?;
        self.raise_end(id + 1);
        match self.rows.place(id) {
            Place::Unmentioned => self.write_scaled(id, symbol, factor),
            Place::Free(column) => {
                self.write_scaled(id, symbol, factor);
                let lead = self.rows.load_known(id, column);
                self.eliminate(lead, None);
            }
            Place::Pivot(row) => {
                // The row gets another pivot: without the known symbol it is a candidate like any other.
                let (lead, name) = self.rows.load_row(row);
                if let Some(lead) = lead {
                    self.ring.copy(id, lead.id);
                }
                self.write_scaled(id, symbol, factor);
                if let Some(lead) = lead {
                    self.ring.add_to(id, &[(lead.id, 1)]);
                    self.settle(lead, name);
                }
            }
        }
        self.mark_decoded(id, repaired);
        self.finish();
        Ok(Reception::Innovative)
    }

    fn write_scaled(&mut self, id: u64, symbol: &[u8], factor: u8) {
        self.ring.write(id, symbol);
        if factor != 1 {
            self.ring.scale(id, factor);
        }
    }

    /// Makes the candidate a row or a decoded symbol. Its payload lies in the slot of its lead.
    fn settle(&mut self, lead: Lead, name: Name) {
        let factor = self.rows.normalise(lead);
        self.ring.scale(lead.id, factor);
        self.operations += 1;
        self.eliminate(lead, name);
        if lead.is_alone {
            self.mark_decoded(lead.id, true);
        }
    }

    /// Subtracts the candidate, coefficients and payload, from all rows that mention its lead, and adds it to
    /// the matrix.
    fn eliminate(&mut self, lead: Lead, name: Name) {
        self.rows.settle(lead, name, &mut self.terms, &mut self.solved);
        self.ring.add_to(lead.id, &self.terms);
        self.operations += self.terms.len() as u64;
    }

    /// Whether every id of a span is decoded or was given up.
    fn is_nothing_missing(&self, span: Range<u64>) -> bool {
        span.end <= self.end && self.decoded.first_out(span.start.max(self.edge)..span.end).is_none()
    }

    /// Whether the symbol being received mentions an id whose bytes are gone once the end is raised to the
    /// end of its span.
    fn is_beyond_use(&self, first: u64) -> bool {
        let end = first + self.row.len() as u64;
        let floor = self.floor.max(end.saturating_sub(self.ring.capacity() as u64));
        let below = first..end.min(self.edge);
        // The bits decide for most spans, and for all without zeros.
        !below.is_empty()
            && (below.start < floor || self.decoded.first_out(below.clone()).is_some())
            && below.zip(&self.row).any(|(id, &factor)| factor != 0 && (id < floor || !self.is_held(id)))
    }

    /// Checks a symbol that is already held.
    ///
    /// # Errors
    /// The bytes differ. Trailing zeros count as a difference only if the true length of both is known.
    fn check_same(&self, id: u64, symbol: &[u8], repaired: bool) -> Result<Reception, DecodeError> {
        let held = self.ring.symbol(id);
        let is_exact = !repaired && !self.repaired.contains(id);
        if held == symbol {
            return Ok(Reception::Redundant);
        }
        let common = held.len().min(symbol.len());
        let differ = held.iter().zip(symbol).position(|(held, new)| held != new);
        let rest = || held[common..].iter().chain(&symbol[common..]).position(|&byte| is_exact || byte != 0);
        match differ.or_else(|| rest().map(|at| common + at)) {
            Some(at) => Err(DecodeError::SourceChanged { id: SourceId(id), at }),
            None => Ok(Reception::Redundant),
        }
    }

    /// Checks a repair whose coefficients add nothing. If its row is still held, the repair came before, so
    /// its bytes must add nothing either. The check is done in a slot that holds no bytes in use.
    ///
    /// # Errors
    /// The bytes differ from those of the earlier repair.
    fn check_again(&mut self, first: u64, symbol: &[u8], name: Name) -> Result<Reception, DecodeError> {
        let spare = name.and_then(|name| self.rows.spare_slot_beside(name));
        if let (Some(spare), Some((_, id))) = (spare, name) {
            self.ring.write(spare, symbol);
            self.ring.mix_span_into(spare, first, &self.row);
            self.operations += 1;
            if let Some(at) = self.ring.symbol(spare).iter().position(|&byte| byte != 0) {
                return Err(DecodeError::RepairChanged { id, at });
            }
        }
        Ok(Reception::Redundant)
    }

    /// Checks that the symbol being received, of `len` bytes, is as long as every source symbol it mixes.
    /// Repaired source symbols are left out: they are as long as their repair, which may be longer than the
    /// original.
    fn check_as_long(&self, first: u64, len: usize) -> Result<(), DecodeError> {
        let span = first..first + self.row.len() as u64;
        let held = self.decoded.members(span.start.max(self.floor)..span.end.min(self.end));
        let mut mixed = held.filter(|&id| self.row[(id - first) as usize] != 0);
        match mixed.find(|&id| self.ring.len(id) > len && !self.repaired.contains(id)) {
            Some(id) => Err(DecodeError::RepairTooShort { len, source: SourceId(id), source_len: self.ring.len(id) }),
            None => Ok(()),
        }
    }

    /// Checks that every row that mixes symbol `id` is at least `len` bytes long, the length that the symbol
    /// has for certain.
    fn check_rows_as_long(&self, id: u64, len: usize) -> Result<(), DecodeError> {
        let mut limits = self.rows.mentioning(id).map(|pivot| self.ring.len(pivot));
        match limits.find(|&limit| limit < len) {
            Some(limit) => Err(DecodeError::LongerThanRow { id: SourceId(id), len, limit }),
            None => Ok(()),
        }
    }

    fn check_span(&self, first: SourceId, count: usize) -> Result<Range<u64>, DecodeError> {
        let limit = self.max_span;
        match u16::try_from(count) {
            Ok(count) if count <= limit => Ok(span(first, count)?),
            _ => Err(DecodeError::SpanTooLong { count, limit }),
        }
    }

    fn check_symbol(&self, symbol: &[u8]) -> Result<(), DecodeError> {
        let (len, limit) = (symbol.len(), self.ring.slot_len());
        match len {
            0 => Err(DecodeError::EmptySymbol),
            _ if len > limit => Err(DecodeError::SymbolTooLong { len, limit }),
            _ => Ok(()),
        }
    }

    fn check_below_limit(&self, id: SourceId) -> Result<(), DecodeError> {
        let limit = self.limit();
        if id < limit { Ok(()) } else { Err(DecodeError::BeyondLimit { id, limit }) }
    }
}

/// The coefficients from the first to the last that is not 0, and the number of zeros before them. `None` if
/// all are 0.
fn without_outer_zeros(coefficients: &[u8]) -> Option<(usize, &[u8])> {
    let first = coefficients.iter().position(|&factor| factor != 0)?;
    let last = coefficients.iter().rposition(|&factor| factor != 0)?;
    Some((first, &coefficients[first..=last]))
}
