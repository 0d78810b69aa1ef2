//! Whether the path carries the packet size that every path must carry: 1,200 bytes of UDP payload, or the
//! lower base of a session over hops.
//!
//! Only the search for the packet size (`mtu`) uses it. A handshake passes on a narrower path, because a
//! HELLO has 300 bytes, and then all full packets vanish. The first packet of the base size that arrives
//! proves the path. If the search fails above the base before that, it probes the base itself: lost so often
//! that shorter packets exclude chance, then a search downwards for the size that the path does carry, so
//! that the user can be told, and the base once more. Invariant: only the fate of sealed packets and a
//! refusal of our own system count, so nobody on the way can forge the finding.

use super::mtu::{LITTLE_LOSS, LOST_IN_A_ROW};

/// Largest loss rate that the number of tries follows: 251 lost probes at 95 %. Beyond it no connection holds
/// long enough to decide. Chosen.
const MOST_LOSS: f64 = 0.95;
/// Shorter packets that must have arrived before a lost probe counts for anything. Chosen.
const LEAST_ARRIVED: u32 = 4;
/// Source symbols leave room for the longer header of a repair, so full packets of data may be this much
/// shorter than the base. Chosen: more than any header of a repair.
const SPARE: u16 = 64;
/// Refusals in a row that our system must mean. Chosen: as many as lost packets at little loss.
const REFUSALS: u32 = LOST_IN_A_ROW;
/// The search below the base ends when the interval is this narrow. It only names a size to the user; 20
/// bytes are the headers of one more tunnel.
const RESOLUTION: u16 = 20;

/// What is known so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowledge {
    /// No packet of the base size arrived yet.
    Unproven,
    /// One arrived.
    Proven,
    /// The base was lost too often. The path carries less than `too_large`.
    Searching { too_large: u16 },
    /// The size below the base is known. The base is tried once more.
    Confirming,
    /// The path does not carry the base.
    Narrow,
}

/// The state of one path, described in the module documentation.
#[derive(Debug)]
pub(super) struct Minimum {
    base: u16,
    known: Knowledge,
    /// The longest packet that arrived.
    carries: u16,
    /// The longest packet that was lost and was no probe.
    longest_lost: u16,
    /// Packets no longer than that: how many arrived, and how many were lost.
    arrived: u32,
    lost: u32,
    /// Probes of the present size that were lost or refused.
    tries: u32,
    /// Packets that our system refused before a search, since a full one arrived.
    refused: u32,
}

impl Minimum {
    /// Nothing is known of a path that must carry `base` bytes.
    pub(super) fn new(base: u16) -> Self {
        Self {
            base,
            known: Knowledge::Unproven,
            carries: 0,
            longest_lost: 0,
            arrived: 0,
            lost: 0,
            tries: 0,
            refused: 0,
        }
    }

    /// Whether full packets may be too long: none of nearly the base size arrived, or one was lost that was
    /// longer than all that arrived.
    pub(super) fn is_doubtful(&self) -> bool {
        let is_full = self.carries.saturating_add(SPARE) >= self.base;
        self.known != Knowledge::Proven && (!is_full || self.longest_lost > self.carries)
    }

    /// The size that the path carries, if that is less than the base.
    pub(super) fn narrow(&self) -> Option<u16> {
        (self.known == Knowledge::Narrow).then_some(self.carries)
    }

    /// Size of the next probe. `failed` says that a longer one was lost too often.
    pub(super) fn poll(&self, failed: bool) -> Option<u16> {
        match self.known {
            Knowledge::Unproven => failed.then_some(self.base),
            Knowledge::Searching { too_large } => Some(self.carries + (too_large - self.carries) / 2),
            Knowledge::Confirming => Some(self.base),
            Knowledge::Proven | Knowledge::Narrow => None,
        }
    }

    /// A packet of `size` bytes arrived, or was lost, that asked for an acknowledgement and was not a probe.
    pub(super) fn on_fate(&mut self, size: u16, lost: bool) {
        if !lost {
            self.arrived += 1;
            self.on_arrived(size);
        } else {
            self.longest_lost = self.longest_lost.max(size);
            self.lost += u32::from(size <= self.carries);
        }
    }

    /// A packet of `size` bytes arrived.
    pub(super) fn on_arrived(&mut self, size: u16) {
        if size >= self.base {
            self.known = Knowledge::Proven;
        }
        if size.saturating_add(SPARE) >= self.base {
            self.refused = 0;
        }
        if size <= self.carries {
            return;
        }
        self.carries = size;
        if let Knowledge::Searching { too_large } = self.known {
            self.narrow_down(too_large);
        }
    }

    /// A probe of `size` bytes, at most the base, was lost.
    pub(super) fn on_probe_lost(&mut self, size: u16) {
        self.tries += 1;
        let enough = match self.known {
            // A mistake here only misleads about the size.
            Knowledge::Searching { .. } => self.enough().div_ceil(2),
            _ => self.enough(),
        };
        if self.arrived >= LEAST_ARRIVED && self.tries >= enough {
            self.on_too_long(size);
        }
    }

    /// Our system refused a packet of `size` bytes, at most the base, as too long. One refusal may be a
    /// mistake, or the moment in which a route changes.
    pub(super) fn on_refused(&mut self, size: u16) {
        let count = match self.known {
            Knowledge::Searching { .. } => return self.on_too_long(size),
            // Only probes of the base count here, and one that arrives ends it.
            Knowledge::Confirming if size >= self.base => &mut self.tries,
            Knowledge::Confirming | Knowledge::Narrow => return,
            Knowledge::Unproven | Knowledge::Proven => &mut self.refused,
        };
        *count += 1;
        if *count >= REFUSALS {
            self.on_too_long(size);
        }
    }

    /// A packet of `size` bytes, at most the base, is too long for the path.
    fn on_too_long(&mut self, size: u16) {
        match self.known {
            Knowledge::Unproven => self.narrow_down(size),
            Knowledge::Proven => {
                // What arrived was sent before the path narrowed.
                self.carries = 0;
                self.narrow_down(size);
            }
            Knowledge::Searching { too_large } if size < too_large => self.narrow_down(size),
            Knowledge::Searching { .. } => {}
            Knowledge::Confirming if size >= self.base => self.known = Knowledge::Narrow,
            Knowledge::Confirming | Knowledge::Narrow => {}
        }
    }

    fn narrow_down(&mut self, too_large: u16) {
        (self.tries, self.refused) = (0, 0);
        self.carries = self.carries.min(too_large - 1);
        self.known = if too_large - self.carries <= RESOLUTION {
            Knowledge::Confirming
        } else {
            Knowledge::Searching { too_large }
        };
    }

    /// Number of probes in a row that chance does not lose, at the loss of shorter packets. It makes a
    /// mistake as rare at any loss as [`LOST_IN_A_ROW`] losses are at [`LITTLE_LOSS`].
    fn enough(&self) -> u32 {
        let loss = f64::from(self.lost + 1) / f64::from(self.lost + self.arrived + 2);
        let loss = loss.clamp(LITTLE_LOSS, MOST_LOSS);
        (f64::from(LOST_IN_A_ROW) * LITTLE_LOSS.ln() / loss.ln()).ceil() as u32
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    use super::*;

    const BASE: u16 = 1_200;

    /// Whether the next packet is lost: so many of a hundred are.
    fn dice(seed: u64, percent: u64) -> impl FnMut() -> bool {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        move || random.next_u64() % 100 < percent
    }

    /// Probes a path that carries `truth` bytes and loses a share of all packets. A short packet follows each
    /// probe. Returns the size that was found, and the number of probes.
    fn probe(truth: u16, mut is_lost: impl FnMut() -> bool) -> (Option<u16>, u32) {
        let mut minimum = Minimum::new(BASE);
        for probes in 0..10_000 {
            let Some(size) = minimum.poll(true) else { return (minimum.narrow(), probes) };
            if size <= truth && !is_lost() {
                minimum.on_arrived(size)
            } else {
                minimum.on_probe_lost(size)
            }
            minimum.on_fate(60, is_lost());
        }
        panic!("it never ends: {minimum:?}");
    }

    #[test]
    fn a_narrow_path_is_found_with_its_size() {
        for truth in 100..BASE {
            let (found, probes) = probe(truth, || false);
            let found = found.unwrap_or_else(|| panic!("{truth} was not found"));
            assert!(found <= truth && truth - found <= RESOLUTION, "{truth}: {found}");
            assert!(probes <= 60, "{truth}: {probes} probes");
        }
    }

    #[test]
    fn a_path_that_carries_the_base_is_proven_by_one_packet() {
        assert_eq!(probe(BASE, || false), (None, 1));
        let mut minimum = Minimum::new(BASE);
        minimum.on_fate(BASE, false);
        assert_eq!((minimum.poll(true), minimum.is_doubtful()), (None, false));
    }

    /// By chance no path is called narrow: 2,000 paths at each loss rate.
    #[test]
    fn loss_alone_never_makes_a_path_narrow() {
        for percent in [10, 30, 50, 80, 90, 95] {
            for seed in 0..2_000_u64 {
                assert_eq!(probe(BASE, dice(seed, percent)).0, None, "{percent} %, seed {seed}");
            }
        }
    }

    #[test]
    fn a_narrow_path_that_loses_much_is_found_all_the_same() {
        for seed in 0..200_u64 {
            let (found, probes) = probe(972, dice(seed, 50));
            assert!(found.is_some_and(|found| found <= 972), "{found:?}");
            assert!(probes <= 200, "{probes}");
        }
    }

    #[test]
    fn what_our_own_system_refuses_for_good_needs_no_loss() {
        let mut minimum = Minimum::new(BASE);
        let mut probes = 0;
        (0..REFUSALS).for_each(|_| minimum.on_refused(1_190));
        while let Some(size) = minimum.poll(false) {
            probes += 1;
            if size <= 972 { minimum.on_arrived(size) } else { minimum.on_refused(size) }
        }
        assert!(minimum.narrow().is_some_and(|size| size <= 972 && size > 940), "{minimum:?}");
        assert!(probes <= 16, "{probes}");
    }

    /// Every seventh call fails, of data and of probes, with the acknowledgements of a window behind.
    #[test]
    fn refusals_now_and_then_never_make_a_path_narrow() {
        for seed in 0..1_000 {
            let (mut minimum, mut is_refused) = (Minimum::new(BASE), dice(seed, 14));
            for _ in 0..200 {
                let sent: Vec<_> = (0..40).map(|_| (minimum.poll(false).unwrap_or(1_190), is_refused())).collect();
                sent.iter().filter(|(_, refused)| *refused).for_each(|(size, _)| minimum.on_refused(*size));
                sent.iter().filter(|(_, refused)| !refused).for_each(|(size, _)| minimum.on_fate(*size, false));
            }
            assert_eq!(minimum.narrow(), None, "seed {seed}");
        }
    }
}
