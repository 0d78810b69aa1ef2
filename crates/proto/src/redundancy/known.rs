//! What a receiver knows of one block, computed from the packets that it acknowledged.
//!
//! The policies `icm` and `rcdp` ask it whether the receiver can decode a block. `icm` also asks which source
//! symbols the receiver lacks. It decodes symbols of one byte, all zero, since only the coefficients matter.
//! Invariant: it knows at most what the receiver knows.

use std::collections::VecDeque;

use tidewire_codec::{Elimination, Generation, PeelingDecoder, Rank, SourceId};

use crate::redundancy::{Closed, Report};

/// The packets of a block that arrived, and what they determine.
#[derive(Debug)]
pub(super) struct Known {
    closed: Closed,
    elimination: Elimination,
    /// Whether each source symbol arrived.
    sources: Vec<bool>,
    arrived: u16,
    /// Keys of the repairs that arrived.
    keys: Vec<u16>,
    /// Made when it is first needed: most blocks of a clean path never need it.
    decoder: Option<Coefficients>,
}

/// A decoder of coefficients.
#[derive(Clone, Debug)]
enum Coefficients {
    Sparse(Box<PeelingDecoder>),
    Dense(Box<Rank>),
}

impl Coefficients {
    fn new(closed: &Closed, elimination: Elimination) -> Option<Self> {
        let generation = Generation::new(closed.code, closed.count).ok()?.at(closed.first).ok()?;
        if closed.code.is_sparse() {
            let decoder = PeelingDecoder::new(generation, 1, elimination).ok()?;
            return Some(Self::Sparse(Box::new(decoder)));
        }
        let mut rank = Rank::new(generation);
        rank.end(closed.count).ok()?;
        Some(Self::Dense(Box::new(rank)))
    }

    /// Names and lengths are those of the block's own packets, so no symbol is refused.
    fn add_source(&mut self, place: u16) -> bool {
        match self {
            Self::Sparse(decoder) => decoder.add_source(place, &[0]).unwrap_or(false),
            Self::Dense(rank) => rank.add_source(place).unwrap_or(false),
        }
    }

    fn add_repair(&mut self, count: u16, key: u16) {
        match self {
            Self::Sparse(decoder) => drop(decoder.add_repair(key, &[0])),
            Self::Dense(rank) => drop(rank.add_repair(count, key)),
        }
    }

    fn is_decoded(&self) -> bool {
        match self {
            Self::Sparse(decoder) => decoder.is_recovered(),
            Self::Dense(rank) => rank.is_recovered(),
        }
    }

    /// Whether the symbol became known through repairs. Rows of a dense code give all symbols or none.
    fn has_peeled(&self, place: u16) -> bool {
        match self {
            Self::Sparse(decoder) => decoder.symbol(place).is_some(),
            Self::Dense(_) => false,
        }
    }
}

impl Known {
    pub(super) fn new(closed: &Closed, elimination: Elimination) -> Self {
        let sources = vec![false; closed.count.into()];
        Self { closed: *closed, elimination, sources, arrived: 0, keys: Vec::new(), decoder: None }
    }

    pub(super) fn add_source(&mut self, place: u16) {
        let Some(source) = self.sources.get_mut(usize::from(place)) else { return };
        if core::mem::replace(source, true) {
            return;
        }
        self.arrived += 1;
        if let Some(decoder) = &mut self.decoder {
            decoder.add_source(place);
        }
    }

    pub(super) fn add_repair(&mut self, key: u16) {
        if self.keys.contains(&key) {
            return;
        }
        self.keys.push(key);
        if let Some(decoder) = &mut self.decoder {
            decoder.add_repair(self.closed.count, key);
        }
    }

    /// Adds the symbols of the block that the peer reported as decoded.
    pub(super) fn add_reported(&mut self, report: &Report) {
        let Closed { first, count, .. } = self.closed;
        (0..count)
            .filter(|&place| report.is_decoded(first.plus(place.into())))
            .for_each(|place| self.add_source(place));
    }

    /// Packets that arrived: source symbols and repairs.
    pub(super) fn packets(&self) -> u64 {
        u64::from(self.arrived) + self.keys.len() as u64
    }

    /// Whether the source symbol arrived or was revealed by repairs.
    pub(super) fn is_known(&self, place: u16) -> bool {
        let arrived = self.sources.get(usize::from(place)).is_none_or(|arrived| *arrived);
        arrived || self.decoder.as_ref().is_some_and(|decoder| decoder.has_peeled(place))
    }

    /// Source symbols that arrived or that repairs revealed.
    pub(super) fn recovered(&mut self) -> u16 {
        // A code whose source symbols are sent reveals others only when nearly all arrived.
        if self.closed.code.is_systematic() && self.decoder.is_none() {
            return self.arrived;
        }
        let arrived = self.arrived;
        match self.decoder() {
            Some(Coefficients::Sparse(decoder)) => decoder.known(),
            _ => arrived,
        }
    }

    /// Whether what arrived determines the block.
    pub(super) fn is_decoded(&mut self) -> bool {
        if self.arrived == self.closed.count {
            return true;
        }
        // Fewer packets than symbols determine no block.
        let is_enough = usize::from(self.arrived) + self.keys.len() >= self.closed.count.into();
        is_enough && self.decoder().is_some_and(|decoder| decoder.is_decoded())
    }

    /// Whether every receiver that has these packets has decoded the block if [`Self::is_decoded`].
    pub(super) fn is_certain(&self) -> bool {
        self.arrived == self.closed.count || !self.closed.code.is_sparse() || self.elimination == Elimination::Never
    }

    /// From now on, computes what a receiver knows that only peels.
    pub(super) fn only_peel(&mut self) {
        (self.elimination, self.decoder) = (Elimination::Never, None);
    }

    fn decoder(&mut self) -> Option<&Coefficients> {
        if self.decoder.is_none() {
            let mut decoder = Coefficients::new(&self.closed, self.elimination)?;
            for (place, _) in (0..).zip(&self.sources).filter(|(_, arrived)| **arrived) {
                decoder.add_source(place);
            }
            self.keys.iter().for_each(|&key| decoder.add_repair(self.closed.count, key));
            self.decoder = Some(decoder);
        }
        self.decoder.as_ref()
    }

    /// The source symbols to send again, by their places: the first ones that, with what arrived, determine
    /// the block. A symbol that earlier ones of the list reveal is not in it.
    pub(super) fn lacking(&mut self) -> Vec<u16> {
        let places = 0..self.closed.count;
        let Some(mut decoder) = self.decoder().cloned() else {
            // The code has no repairs for so long a block.
            return places.filter(|&place| !self.sources[usize::from(place)]).collect();
        };
        let mut lacking = Vec::new();
        for place in places {
            if decoder.is_decoded() {
                break;
            }
            if !self.sources[usize::from(place)] && !decoder.has_peeled(place) && decoder.add_source(place) {
                lacking.push(place);
            }
        }
        lacking
    }
}

/// The symbols that are in no closed block yet.
#[derive(Debug, Default)]
pub(super) struct Filling {
    /// The first of them.
    pub first: SourceId,
    /// Whether each symbol from the first up is known to have arrived.
    arrived: VecDeque<bool>,
    /// Number of those that arrived.
    pub count: u16,
}

impl Filling {
    /// Records that a symbol from [`Self::first`] up arrived.
    pub(super) fn add(&mut self, id: SourceId) {
        let index = id.0.saturating_sub(self.first.0) as usize;
        self.arrived.resize(self.arrived.len().max(index + 1), false);
        self.count = self.count.saturating_add(u16::from(!core::mem::replace(&mut self.arrived[index], true)));
    }

    /// Moves the symbols of a block that was closed to what is known of the block.
    pub(super) fn close(&mut self, closed: &Closed, known: &mut Known) {
        let end = closed.first.plus(closed.count.into());
        let of_block = (end.0.saturating_sub(self.first.0) as usize).min(self.arrived.len());
        for (place, _) in (0..).zip(self.arrived.drain(..of_block)).filter(|(_, arrived)| *arrived) {
            known.add_source(place);
            self.count = self.count.saturating_sub(1);
        }
        self.first = end;
    }
}

#[cfg(test)]
mod tests {
    use tidewire_codec::Code;

    use super::*;

    fn known(code: Code, count: u16, elimination: Elimination) -> Known {
        Known::new(&Closed { first: SourceId(7), count, code, repairs: 0 }, elimination)
    }

    #[test]
    fn a_block_too_long_for_its_code_lacks_what_did_not_arrive() {
        let mut known = known(Code::Cauchy, 256, Elimination::WhenStuck);
        (3..256).for_each(|place| known.add_source(place));
        assert!(!known.is_decoded());
        assert_eq!(known.lacking(), [0, 1, 2]);
    }

    #[test]
    fn what_is_sent_again_determines_the_block_and_nothing_less_does() {
        for code in [Code::Rlc, Code::Rlc16, Code::Cauchy, Code::RsFft, Code::RaptorQ, Code::SemiRandomLt { degree: 5 }]
        {
            for elimination in [Elimination::Never, Elimination::WhenStuck] {
                let mut known = known(code, 20, elimination);
                (8..20).for_each(|place| known.add_source(place));
                (0..4).for_each(|key| known.add_repair(key));
                let lacking = known.lacking();
                assert!((4..=8).contains(&lacking.len()), "{code:?} {lacking:?}");
                let (last, first) = lacking.split_last().expect("four at least");
                first.iter().for_each(|&place| known.add_source(place));
                assert!(!known.is_decoded(), "{code:?}");
                known.add_source(*last);
                assert!(known.is_decoded() && known.lacking().is_empty(), "{code:?}");
            }
        }
    }
}
