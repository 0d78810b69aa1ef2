//! The exact distribution of the in-order delay.
//!
//! Symbol `j` (1 .. l-1) of a group waits `(s-1) l + l - j` slots if `s - 1` more groups of its busy period
//! follow. Per renewal there are on average `P(S > s)` such groups after the first of their busy period, and
//! all their symbols wait. In the first group, symbol `j` waits if the first loss is at or before it. The
//! ballot theorem gives the probability `P(first loss <= j, S = s) = (j/s) e^s (1-e)^(s(l-1)) C(l s - j - 1,
//! s - 1)` (docs/coding.md section 3). Therefore
//!
//! `P(D = (s-1) l + l - j) = (P(S > s) + P(first loss <= j, S = s)) / ((l-1) E(S+))`.
//!
//! The sum over `j` has a closed form too, so a quantile visits the groups, and the symbols of the last group
//! only. At real `l` that sum is continued analytically, and the distribution within a group is assumed
//! uniform.

use super::{MAX_GROUPS, Streaming};

/// The position of one group in a busy period, and the tail probabilities there.
struct Group {
    /// Number of groups from this one to the end of the busy period, this one included: `s`.
    remaining: u32,
    /// `P(S > remaining)`.
    longer: f64,
    /// Fraction of symbols that wait at least `(remaining - 1) l` slots.
    late: f64,
    /// Fraction of symbols that wait at least `remaining l` slots.
    later: f64,
}

impl Streaming {
    /// `P(D = slots)`; `None` if `l` is not whole, and beyond [`MAX_GROUPS`] groups. O(slots / l), at most 10
    /// ms.
    pub fn delay(&self, slots: u32) -> Option<f64> {
        if self.l.fract() != 0.0 {
            return None;
        }
        let length = self.l as u32;
        if slots == 0 {
            return Some(self.no_delay());
        }
        if slots.is_multiple_of(length) {
            return Some(0.0);
        }
        let remaining = slots / length + 1;
        if remaining > MAX_GROUPS {
            return None;
        }
        let within: f64 = (0..=remaining).map(|s| self.busy(s)).sum();
        let first = self.first_groups(remaining).nth((length - slots % length) as usize - 1)?;
        Some(((1.0 - within).max(0.0) + first) / self.symbols())
    }

    /// `P(D > slots)`, the fraction of source symbols delivered later than that. `None` beyond [`MAX_GROUPS`]
    /// groups. O(slots / l + l), some 60 ns per group. The absolute error is below 1e-13.
    pub fn late(&self, slots: f64) -> Option<f64> {
        if slots.is_nan() {
            return None;
        }
        if slots < 0.0 {
            return Some(1.0);
        }
        let group = self.groups().find(|group| slots < f64::from(group.remaining) * self.l)?;
        let into = slots - f64::from(group.remaining - 1) * self.l;
        if self.l.fract() != 0.0 {
            return Some(group.late + (group.later - group.late) * into / self.l);
        }
        // Symbols that wait longer: those before the `into`-th from the repair.
        let later = (self.l - 1.0 - into.floor()) as usize;
        let sum: f64 = self.first_groups(group.remaining).take(later).map(|first| first + group.longer).sum();
        Some(group.later + sum / self.symbols())
    }

    /// The delay in slots that a fraction `q` of source symbols does not exceed. `None` if `q` is not in `[0,
    /// 1)`, or if the delay is beyond [`MAX_GROUPS`] groups. O(delay / l + l), some 60 ns per group.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        if !(0.0..1.0).contains(&q) {
            return None;
        }
        let allowed = 1.0 - q;
        if 1.0 - self.no_delay() <= allowed {
            return Some(0.0);
        }
        let group = self.groups().find(|group| group.later <= allowed)?;
        let before = f64::from(group.remaining - 1) * self.l;
        if self.l.fract() != 0.0 {
            return Some(before + self.l * (group.late - allowed) / (group.late - group.later));
        }
        // From the longest wait of the group down: stops at the first symbol that would exceed the fraction
        // allowed to be later.
        let mut later = group.later;
        let fitting = self.first_groups(group.remaining).take_while(|first| {
            later += (first + group.longer) / self.symbols();
            later <= allowed
        });
        Some(before + self.l - 1.0 - fitting.count() as f64)
    }

    /// Source symbols per renewal.
    fn symbols(&self) -> f64 {
        (self.l - 1.0) * self.mean_cycle()
    }

    /// The groups in the order of the waits that they cause.
    fn groups(&self) -> impl Iterator<Item = Group> {
        let (mut longer, mut later) = (1.0 - self.busy(0), 1.0 - self.no_delay());
        (1..=MAX_GROUPS).map(move |remaining| {
            let late = later;
            longer = (longer - self.busy(remaining)).max(0.0);
            let here = (self.l - 1.0) * longer + self.all_first_groups(f64::from(remaining));
            later = (late - here / self.symbols()).max(0.0);
            Group { remaining, longer, late, later }
        })
    }

    /// `P(first loss <= j, S = s)` for `j` = 1, 2, ..: each binomial coefficient follows from the previous
    /// one, the first from `C(l s - 1, s - 1) = C(l s, s) / l`.
    fn first_groups(&self, s: u32) -> impl Iterator<Item = f64> {
        let groups = f64::from(s);
        let packets = self.l * groups;
        let mut coefficient = self.balance(groups) / self.l;
        (1..=(self.l - 1.0) as u32).map(f64::from).map(move |j| {
            coefficient *= (packets - j - groups + 1.0) / (packets - j);
            j / groups * coefficient
        })
    }

    /// The sum of [`Self::first_groups`] over a group's symbols: `sum of j C(n - j, k)`, twice, at both ends
    /// of the group.
    fn all_first_groups(&self, s: f64) -> f64 {
        let earlier = self.lone_loss() * self.balance(s - 1.0) * (s - 1.0) * (2.0 * self.l - 1.0) / s;
        (self.l - 1.0) / (s + 1.0) * (self.balance(s) - earlier)
    }
}
