//! The schemes of the streaming-code paper with feedback (retransmission, a block code, the streaming code),
//! and the block code without feedback.
//!
//! The sender is saturated and knows the fate of each packet `round_trip` slots after it was sent. Feedback
//! is not lost. Each scheme runs until the given number of source symbols was sent; symbols not delivered by
//! then are not counted.

use std::collections::VecDeque;

use super::{Delays, ROUNDING};

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// In-order delay of the delivered source symbols.
    pub delays: Delays,
    /// Source symbols per packet.
    pub rate: f64,
}

/// Selective repeat: lost symbols are sent again.
pub fn retransmission(round_trip: usize, symbols: u64, mut lost: impl FnMut() -> bool) -> Outcome {
    let (mut order, mut flying, mut again) = (Order::default(), VecDeque::new(), VecDeque::new());
    while order.sent < symbols {
        if let Some((id, true)) = settled(&mut flying, round_trip) {
            again.push_back(id);
        }
        let id = again.pop_front().unwrap_or_else(|| order.send());
        let lost = lost();
        flying.push_back((id, lost));
        if !lost {
            order.know(id..id + 1);
        }
        order.step();
    }
    order.outcome()
}

/// Generations of `k` source symbols and `r` repairs. When the fates of all packets of a generation are
/// known, its deficit is sent as further repairs, before all else, until it is decoded.
pub fn block(k: u64, r: u64, round_trip: usize, symbols: u64, mut lost: impl FnMut() -> bool) -> Outcome {
    /// Packets sent or to be sent, packets whose fate is known, and packets that arrived, as the sender knows
    /// and in truth.
    #[derive(Clone)]
    struct Generation {
        planned: u64,
        settled: u64,
        known: u64,
        arrived: u64,
    }
    let (mut order, mut flying, mut again) = (Order::default(), VecDeque::new(), VecDeque::new());
    let mut generations = vec![];
    let mut place = 0;
    while order.sent < symbols {
        if let Some((index, lost)) = settled(&mut flying, round_trip) {
            let generation: &mut Generation = &mut generations[index];
            generation.settled += 1;
            generation.known += u64::from(!lost);
            if generation.settled == generation.planned && generation.known < k {
                let lacking = k - generation.known;
                generation.planned += lacking;
                again.extend((0..lacking).map(|_| index));
            }
        }
        let (index, source) = match again.pop_front() {
            Some(index) => (index, None),
            None => {
                if place == 0 {
                    generations.push(Generation { planned: k + r, settled: 0, known: 0, arrived: 0 });
                }
                let source = (place < k).then(|| order.send());
                place = (place + 1) % (k + r);
                (generations.len() - 1, source)
            }
        };
        let lost = lost();
        flying.push_back((index, lost));
        if !lost {
            source.into_iter().for_each(|id| order.know(id..id + 1));
            generations[index].arrived += 1;
            if generations[index].arrived == k {
                order.know(index as u64 * k..(index as u64 + 1) * k);
            }
        }
        order.step();
    }
    order.outcome()
}

/// One repair in `spacing` packets over all symbols that are not decoded, and as many more as the known
/// deficit exceeds the repairs in flight.
pub fn streaming(spacing: f64, round_trip: usize, symbols: u64, mut lost: impl FnMut() -> bool) -> Outcome {
    let (mut order, mut flying) = (Order::default(), VecDeque::new());
    let (mut due, mut deficit, mut known_deficit, mut under_way) = (0.0, 0u64, 0u64, 0u64);
    while order.sent < symbols {
        match settled(&mut flying, round_trip) {
            Some((true, lost)) => {
                under_way -= 1;
                known_deficit -= u64::from(!lost && known_deficit > 0);
            }
            Some((false, lost)) => known_deficit += u64::from(lost),
            None => {}
        }
        let proactive = due + ROUNDING >= 1.0;
        let repair = proactive || known_deficit > under_way;
        let lost = lost();
        if repair {
            under_way += 1;
            due -= if known_deficit > under_way - 1 { 0.0 } else { 1.0 };
            deficit -= u64::from(!lost && deficit > 0);
        } else {
            due += 1.0 / (spacing - 1.0);
            let id = order.send();
            deficit += u64::from(lost);
            if !lost {
                order.know(id..id + 1);
            }
        }
        flying.push_back((repair, lost));
        if deficit == 0 {
            order.know(0..order.sent);
        }
        order.step();
    }
    order.outcome()
}

/// Generations of `k` and `r` without feedback. A generation that is not decoded at its end is given up.
/// Returns the delays of delivered symbols, and the fraction that is not delivered.
pub fn block_open(k: u64, r: u64, generations: u64, mut lost: impl FnMut() -> bool) -> (Delays, f64) {
    let (mut delays, mut missing) = (Delays::default(), 0);
    for _ in 0..generations {
        let fates: Vec<bool> = (0..k + r).map(|_| lost()).collect();
        let first_loss = fates.iter().position(|&lost| lost).unwrap_or(fates.len()) as u64;
        let mut arrivals = (0..k + r).filter(|&slot| !fates[slot as usize]);
        let decoded = arrivals.nth(k as usize - 1);
        for slot in 0..k {
            match decoded {
                _ if slot < first_loss => delays.record(0),
                Some(decoded) => delays.record(decoded.max(slot) - slot),
                None if fates[slot as usize] => missing += 1,
                None => delays.record(k + r - 1 - slot),
            }
        }
    }
    (delays, missing as f64 / (generations * k) as f64)
}

/// The oldest packet and whether it was lost, once its fate is known.
fn settled<T>(flying: &mut VecDeque<(T, bool)>, round_trip: usize) -> Option<(T, bool)> {
    if flying.len() >= round_trip { flying.pop_front() } else { None }
}

/// The receiver's queue of undelivered symbols, in order, and the clock.
#[derive(Default)]
struct Order {
    slot: u64,
    sent: u64,
    /// The first undelivered symbol; for each symbol from it on, when it was sent and whether it is known.
    edge: u64,
    waiting: VecDeque<(u64, bool)>,
    delays: Delays,
}

impl Order {
    /// Sends the next source symbol.
    fn send(&mut self) -> u64 {
        self.waiting.push_back((self.slot, false));
        self.sent += 1;
        self.sent - 1
    }

    fn know(&mut self, ids: core::ops::Range<u64>) {
        for id in ids.start.max(self.edge)..ids.end {
            self.waiting[(id - self.edge) as usize].1 = true;
        }
    }

    /// Delivers all it can and ends the slot.
    fn step(&mut self) {
        while let Some(&(at, true)) = self.waiting.front() {
            self.waiting.pop_front();
            self.edge += 1;
            self.delays.record(self.slot - at);
        }
        self.slot += 1;
    }

    fn outcome(self) -> Outcome {
        Outcome { rate: self.sent as f64 / self.slot as f64, delays: self.delays }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loses the packets of these slots.
    fn fates<const N: usize>(lost: [u64; N]) -> impl FnMut() -> bool {
        let mut slots = 0..;
        move || slots.next().is_some_and(|slot| lost.contains(&slot))
    }

    fn counts(delays: &Delays) -> Vec<(u64, u64)> {
        delays.counts().collect()
    }

    #[test]
    fn a_loss_costs_a_round_trip_by_retransmission() {
        // Symbol 1 goes out in slot 1, again in slot 1 + 5; 2 to 5 wait for it.
        let outcome = retransmission(5, 9, fates([1]));
        assert_eq!(counts(&outcome.delays), [(0, 4), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]);
        assert_eq!(outcome.rate, 0.9);
    }

    #[test]
    fn a_generation_is_decoded_by_its_repair_or_after_a_round_trip() {
        // k = 2, r = 1: symbol 0 is decoded by the repair in slot 2. The second generation loses two packets
        // of three, which is known three slots after its end; two symbols of the third wait for it.
        let outcome = block(2, 1, 3, 20, fates([0, 3, 5]));
        let delays = counts(&outcome.delays);
        assert_eq!(delays, [(0, 14), (1, 2), (2, 2), (4, 1), (5, 1)]);
        let (delays, missing) = block_open(2, 1, 2, fates([0, 3, 5]));
        assert_eq!((counts(&delays), missing), (vec![(1, 2), (2, 1)], 0.25));
    }

    #[test]
    fn without_round_trip_the_streaming_code_waits_for_one_packet() {
        // The repair follows the loss at once: one slot.
        let outcome = streaming(1e6, 0, 1_000, fates([10, 500]));
        assert_eq!(counts(&outcome.delays), [(0, 998), (1, 2)]);
        // Far away, repairs come as in the open loop.
        let far = streaming(5.0, 1 << 30, 20_000, fates([10, 500, 501]));
        assert_eq!(counts(&far.delays), counts(&super::super::open_loop(5.0, 20_000, fates([10, 500, 501]))));
    }
}
