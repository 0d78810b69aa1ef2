//! The replay window records which packet numbers near the highest one were accepted.
//!
//! [`super::OpeningKey`] checks it before it decrypts, and marks a number after the tag was verified. 65,536
//! numbers are 655 ms at 100,000 packets per second. It is a ring of words (as in RFC 6479). Moving up clears
//! whole words only, so an accepted packet costs O(1) amortized, and 8 KiB of writes at worst.

/// Packet numbers in the window of a connection.
pub(crate) const REPLAY_WIDTH: u64 = 65_536;
/// Words of that window. There is one more than the numbers fill, because the word of the highest number is
/// seldom full.
pub(super) const REPLAY_WORDS: usize = REPLAY_WIDTH as usize / 64 + 1;

/// Why a packet number is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// The number was accepted before.
    Replayed,
    /// The number is too far below the highest for the window to know.
    TooOld,
}

/// A window of `64 * (WORDS - 1)` numbers, the highest accepted one included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplayWindow<const WORDS: usize> {
    /// Bit n % 64 of word (n / 64) % WORDS is set when n was accepted.
    words: [u64; WORDS],
    highest: Option<u64>,
}

impl<const WORDS: usize> ReplayWindow<WORDS> {
    /// Nothing was accepted yet.
    pub(crate) const fn new() -> Self {
        Self { words: [0; WORDS], highest: None }
    }

    /// The highest number accepted.
    pub(crate) const fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// Whether `number` may be accepted. Changes nothing.
    pub(crate) fn check(&self, number: u64) -> Result<(), Stale> {
        match self.highest {
            Some(highest) if number <= highest => {
                if highest - number >= 64 * (WORDS as u64 - 1) {
                    Err(Stale::TooOld)
                } else if self.words[Self::word(number)] & Self::bit(number) != 0 {
                    Err(Stale::Replayed)
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }

    /// Accepts `number`, for which [`ReplayWindow::check`] was just `Ok`.
    pub(crate) fn mark(&mut self, number: u64) {
        debug_assert_eq!(self.check(number), Ok(()));
        let before = self.highest.unwrap_or(0);
        if self.highest.is_none_or(|highest| number > highest) {
            // The new words hold bits of numbers one turn of the ring ago.
            let entered = (number / 64 - before / 64).min(WORDS as u64);
            for step in 0..entered {
                self.words[Self::word(number - step * 64)] = 0;
            }
            self.highest = Some(number);
        }
        self.words[Self::word(number)] |= Self::bit(number);
    }

    const fn word(number: u64) -> usize {
        (number / 64 % WORDS as u64) as usize
    }

    const fn bit(number: u64) -> u64 {
        1 << (number % 64)
    }
}

impl<const WORDS: usize> Default for ReplayWindow<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A reference model that follows the definition of the window.
    #[derive(Clone, Default)]
    struct Model(BTreeSet<u64>);

    impl Model {
        fn check(&self, number: u64, width: u64) -> Result<(), Stale> {
            match self.0.last() {
                Some(highest) if number + width <= *highest => Err(Stale::TooOld),
                _ if self.0.contains(&number) => Err(Stale::Replayed),
                _ => Ok(()),
            }
        }
    }

    /// All sequences of `depth` numbers out of `numbers`, by depth-first search.
    fn exhaust<const WORDS: usize>(window: &ReplayWindow<WORDS>, model: &Model, numbers: &[u64], depth: usize) -> u64 {
        let mut visited = 1;
        if depth == 0 {
            return visited;
        }
        for number in numbers {
            let expected = model.check(*number, 64 * (WORDS as u64 - 1));
            assert_eq!(window.check(*number), expected, "{number} after {:?}", model.0);
            if expected.is_ok() {
                let (mut window, mut model) = (window.clone(), model.clone());
                window.mark(*number);
                model.0.insert(*number);
                visited += exhaust(&window, &model, numbers, depth - 1);
            }
        }
        visited
    }

    #[test]
    fn agrees_with_its_definition_on_all_short_sequences() {
        let edges = [0, 1, 62, 63, 64, 65, 126, 127, 128, 129, 191, 192, 193, 255, 256, 320, 1 << 40];
        assert!(exhaust(&ReplayWindow::<2>::new(), &Model::default(), &edges, 4) > 2_000);
        assert!(exhaust(&ReplayWindow::<3>::new(), &Model::default(), &edges, 4) > 2_000);
        assert!(exhaust(&ReplayWindow::<5>::new(), &Model::default(), &edges, 4) > 2_000);
    }

    #[test]
    fn agrees_with_its_definition_on_every_number_of_two_turns() {
        for start in [0, 5, 63, 64, 100] {
            for jump in 0..300 {
                let mut window = ReplayWindow::<3>::new();
                let mut model = Model::default();
                for number in (start..start + 128).step_by(3).chain([start + jump]) {
                    if model.check(number, 128).is_ok() {
                        window.mark(number);
                        model.0.insert(number);
                    }
                }
                for number in 0..start + 500 {
                    assert_eq!(window.check(number), model.check(number, 128), "{number}, {start} then {jump}");
                }
            }
        }
    }

    #[test]
    fn the_connections_window_is_65536_wide() {
        let mut window = ReplayWindow::<REPLAY_WORDS>::new();
        window.mark(REPLAY_WIDTH + 6);
        assert_eq!(window.check(7), Ok(()));
        assert_eq!(window.check(6), Err(Stale::TooOld));
        window.mark(7);
        assert_eq!(window.check(7), Err(Stale::Replayed));
    }
}
