//! The sending half of the relayed lane: rows, and how many packets each generation still needs.
//!
//! At an end the rows are its symbols, at a relay the innovative rows of the hop before. Each packet carries
//! a random combination of all rows of one generation. Invariants: a generation is kept until the receiver
//! has completed it; `in_flight` counts the packets of a generation whose fate is not known; there are at
//! most `capacity` generations.

use std::collections::VecDeque;

use tidewire_codec::{Reception, Recoder};

use super::{FIRST_ROOM, MOST_WAITING, RELAYED_SYMBOL, Relaying};
use crate::wire::{Frame, Full, MAX_GENERATION, Ranks, Recoded, Writer};

/// Largest loss rate that the default redundancy follows: two packets for each row. Chosen.
const MOST_LOSS: f64 = 0.5;

/// The sending half; see the module.
#[derive(Debug)]
pub(crate) struct Sender {
    relaying: Relaying,
    /// Symbols of each generation: ours at an end, those of the hop before at a relay.
    length: Option<u8>,
    /// Number of relays that our frames say they passed.
    relays: u8,
    /// Number of the first of `kept`. The receiver has completed all generations below.
    base: u64,
    kept: VecDeque<Kept>,
    /// Part of a proactive packet that the rows so far are worth.
    carry: f64,
    spare: Vec<Recoder>,
    /// The receiver accepts generations below this one.
    limit: u64,
    /// Packet that brought the newest RANKS.
    newest: Option<u64>,
    /// Number of the next symbol of an end.
    next: u64,
    /// Number of combinations drawn.
    drawn: u64,
    sent: u64,
}

/// One generation.
#[derive(Debug, Default)]
struct Kept {
    /// `None` until the first row comes.
    rows: Option<Recoder>,
    /// Proactive packets that may still be sent, beyond one for each row.
    surplus: u32,
    in_flight: u32,
    /// The rank that the receiver reported.
    reported: u16,
}

impl Kept {
    fn rank(&self) -> u16 {
        self.rows.as_ref().map_or(0, Recoder::rank)
    }

    /// Number of packets that must be sent now: one for each row that neither arrived nor is on the way.
    fn needs(&self) -> u64 {
        u64::from(self.rank().saturating_sub(self.reported)).saturating_sub(self.in_flight.into())
    }

    /// Whether a packet beyond the needed ones may be sent.
    fn is_generous(&self) -> bool {
        self.surplus > 0 && self.rank() > self.reported
    }
}

impl Sender {
    pub(crate) fn new(relaying: Relaying, seed: u64) -> Self {
        Self {
            relaying,
            length: None,
            relays: 0,
            base: 0,
            kept: VecDeque::new(),
            carry: 0.0,
            spare: Vec::new(),
            limit: FIRST_ROOM,
            newest: None,
            next: 0,
            drawn: seed,
            sent: 0,
        }
    }

    /// RECODED frames sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// The first generation that the receiver has not completed.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Whether an end may put in a symbol now.
    pub(crate) fn has_room(&self) -> bool {
        let generation = self.next / u64::from(self.relaying.length);
        generation < self.base + self.relaying.generations && self.waiting() < MOST_WAITING
    }

    /// Number of rows that wait for a packet.
    fn waiting(&self) -> u64 {
        self.kept.iter().map(Kept::needs).sum()
    }

    /// Takes the next symbol of an end. `loss` is the loss rate of the hop.
    pub(crate) fn push(&mut self, symbol: &[u8], loss: f64) -> bool {
        let length = self.relaying.length;
        let (generation, index) = (self.next / u64::from(length), self.next % u64::from(length));
        let mut vector = [0; MAX_GENERATION as usize];
        vector[index as usize] = 1;
        let vector = &vector[..=index as usize];
        let taken = self.take(Recoded { relays: 0, generation, length, vector, symbol }, loss);
        self.next += u64::from(taken);
        taken
    }

    /// Takes a row of the hop before, at a relay.
    pub(crate) fn forward(&mut self, row: Recoded<'_>, loss: f64) -> bool {
        self.relays = self.relays.max(row.relays.saturating_add(1));
        self.take(row, loss)
    }

    /// Keeps a row if it is innovative.
    fn take(&mut self, row: Recoded<'_>, loss: f64) -> bool {
        let Recoded { generation, length, vector, symbol, .. } = row;
        let (Some(index), Some(first)) = (generation.checked_sub(self.base), row.first()) else { return false };
        if index >= self.relaying.generations || *self.length.get_or_insert(length) != length {
            return false;
        }
        let index = index as usize;
        if index >= self.kept.len() {
            self.kept.resize_with(index + 1, Kept::default);
        }
        let kept = &mut self.kept[index];
        let spare = &mut self.spare;
        let rows = kept.rows.get_or_insert_with(|| {
            let mut rows = spare.pop().unwrap_or_else(|| Recoder::new(RELAYED_SYMBOL, length.into()));
            let begun = rows.begin(first, length.into());
            debug_assert!(begun.is_ok(), "a recoder of this length: {begun:?}");
            rows
        });
        let taken = rows.receive_recoded(first, vector, symbol) == Ok(Reception::Innovative);
        if taken {
            let loss = loss.clamp(0.0, MOST_LOSS);
            self.carry += self.relaying.redundancy.map_or(loss / (1.0 - loss), |redundancy| redundancy - 1.0);
            if self.carry >= 1.0 {
                self.carry -= 1.0;
                kept.surplus += 1;
            }
        }
        taken
    }

    /// The generation that the next packet serves: the lowest that needs one, else the lowest with surplus.
    pub(crate) fn next(&self) -> Option<u64> {
        let accepted = self.limit.saturating_sub(self.base).min(self.kept.len() as u64) as usize;
        let find = |wants: fn(&Kept) -> bool| self.kept.iter().take(accepted).position(wants);
        let index = find(|kept| kept.needs() > 0).or_else(|| find(Kept::is_generous))?;
        Some(self.base + index as u64)
    }

    /// Whether rows wait for room at the receiver.
    pub(crate) fn is_blocked(&self) -> bool {
        self.base + self.kept.len() as u64 > self.limit
    }

    /// The lowest generation that the receiver lacks rows of, as far as is known.
    pub(crate) fn lacking(&self) -> Option<u64> {
        let index = self.kept.iter().position(|kept| kept.rank() > kept.reported)?;
        Some(self.base + index as u64).filter(|&generation| generation < self.limit)
    }

    fn kept(&mut self, generation: u64) -> Option<&mut Kept> {
        self.kept.get_mut(usize::try_from(generation.checked_sub(self.base)?).ok()?)
    }

    /// Length of the frame of a packet for `generation`, with its type.
    pub(crate) fn frame_len(&self, generation: u64) -> usize {
        let index = generation.saturating_sub(self.base) as usize;
        let len = self.kept.get(index).and_then(|kept| kept.rows.as_ref()).map_or(0, Recoder::recoded_len);
        Recoded::frame_len(generation, self.length.unwrap_or(0).into(), len)
    }

    /// Writes a combination of the rows of `generation`.
    pub(crate) fn write(&mut self, generation: u64, w: &mut Writer<'_>) -> Result<(), Full> {
        let (relays, length) = (self.relays, self.length.unwrap_or(0));
        self.drawn = self.drawn.wrapping_add(1);
        let key = self.drawn;
        let kept = self.kept(generation).ok_or(Full)?;
        let rows = kept.rows.as_ref().ok_or(Full)?;
        let (mut vector, mut symbol) = ([0; MAX_GENERATION as usize], [0; RELAYED_SYMBOL]);
        let vector = vector.get_mut(..length.into()).ok_or(Full)?;
        let len = rows.write_recoded(key, vector, &mut symbol).map_err(|_| Full)?;
        let count = vector.iter().rposition(|&coefficient| coefficient != 0).map_or(0, |last| last + 1);
        let frame = Recoded { relays, generation, length, vector: &vector[..count], symbol: &symbol[..len] };
        Frame::Recoded(frame).emit(w)?;
        if kept.needs() == 0 {
            kept.surplus = kept.surplus.saturating_sub(1);
        }
        kept.in_flight += 1;
        self.sent += 1;
        Ok(())
    }

    /// Called once for each packet for `generation`, when it is known to have arrived or to be lost.
    pub(crate) fn on_settled(&mut self, generation: u64) {
        if let Some(kept) = self.kept(generation) {
            kept.in_flight = kept.in_flight.saturating_sub(1);
        }
    }

    /// Takes RANKS from packet `number`. Returns false if they claim what was never sent.
    pub(crate) fn on_ranks(&mut self, number: u64, ranks: &Ranks<'_>) -> bool {
        let end = self.base + self.kept.len() as u64;
        let Some(limit) = ranks.edge.checked_add(ranks.room) else { return false };
        if ranks.edge > end {
            return false;
        }
        if self.newest.is_some_and(|newest| newest > number) {
            return true;
        }
        self.newest = Some(number);
        let length = u16::from(self.length.unwrap_or(0));
        while self.base < ranks.edge {
            let Some(kept) = self.kept.pop_front() else { break };
            if kept.rank() < length {
                return false;
            }
            self.spare.extend(kept.rows);
            self.base += 1;
        }
        self.limit = self.limit.max(limit);
        for (generation, &rank) in (ranks.edge..).zip(ranks.ranks) {
            let Some(kept) = self.kept(generation) else {
                if generation >= self.base && rank > 0 {
                    return false;
                }
                continue;
            };
            if u16::from(rank) > kept.rank() {
                return false;
            }
            kept.reported = kept.reported.max(rank.into());
        }
        true
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        let each = |rows: &Recoder| rows.memory();
        self.kept.iter().filter_map(|kept| kept.rows.as_ref()).chain(&self.spare).map(each).sum()
    }
}
