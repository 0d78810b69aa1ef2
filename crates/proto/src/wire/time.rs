//! Times on the wire (docs/wire.md sections 5 and 6): 24 bits that count 16 us of the clock of the end that
//! wrote them.
//!
//! A source symbol says when it was first sent, and FEEDBACK when the newest packet came. The two ends share
//! no clock, so only differences between times of one end mean something. Invariant: a difference below 134 s
//! in either direction is exact, however often the 24 bits wrapped around.

use crate::Time;

/// Unit of times and of the delay of FEEDBACK, in nanoseconds (docs/wire.md section 6).
pub(crate) const TIME_UNIT: u64 = 16_000;
/// Times on the wire are modulo this number of units (docs/wire.md section 6).
pub const TIME_MODULUS: u32 = 1 << 24;

/// The moment in units, modulo [`TIME_MODULUS`].
pub(crate) const fn time_units(at: Time) -> u32 {
    // The modulus divides 2^32, so the cast loses nothing that counts.
    (at.0.wrapping_div(TIME_UNIT) as u32) & (TIME_MODULUS.wrapping_sub(1))
}

/// The signed distance in units from `earlier` to `later`, each modulo [`TIME_MODULUS`].
pub(crate) const fn units_between(earlier: u32, later: u32) -> i32 {
    // Extends the sign of a 24-bit difference.
    (later.wrapping_sub(earlier).wrapping_shl(8) as i32).wrapping_shr(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_exact_across_the_modulus() {
        let units = |micros| time_units(Time::from_micros(micros));
        assert_eq!((units(0), units(15), units(16), units(16 << 24)), (0, 0, 1, 0));
        for from in [0, 5, 1 << 23, TIME_MODULUS - 1] {
            for distance in [0, 1, -1, 70_000, -70_000, (1 << 23) - 1, -(1 << 23)] {
                let to = from.wrapping_add_signed(distance) % TIME_MODULUS;
                assert_eq!(units_between(from, to), distance);
            }
        }
    }
}
