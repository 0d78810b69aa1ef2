//! In-order delay of plain retransmission, for comparison with the streaming code.
//!
//! Losses follow a Gilbert channel, as in [`gilbert`](super::gilbert). A lost symbol is sent again `a` slots
//! later, and again whenever that retransmission is lost too, with the probability `e` of any packet. The
//! symbol comes `K a` slots late, with `P(K > k) = e^k`. A symbol waits at most `x` slots if that holds for
//! each symbol before it: a symbol sent `j` slots earlier arrived, or `K a <= j + x`. Therefore
//!
//! `P(D <= x)` is the probability of a path of the channel on which a loss at age `j` is accepted with
//! probability `1 - e^floor((j + x)/a)`.
//!
//! This is a product of 2 x 2 matrices, in which `a` consecutive ones are equal. `tidewire probe` calls it.
//! It is exact if retransmissions are lost independently of each other and of the packets that they repeat;
//! docs/coding.md section 3.

use super::algebra::{Matrix, Number, power, product};
use super::{MAX_BURST, OutOfModel};

/// Retransmission on one path. Time is in slots. A slot is one source symbol, since there are no repairs.
///
/// ```
/// use tidewire_model::asking::Asking;
/// let plain = Asking::new(0.1, 4.0, 100.0)?; // 10 % lost in bursts of 4, an answer after 100 symbols
/// assert!(plain.quantile(0.5).is_some_and(|slots| slots > 80.0)); // something is nearly always missing
/// # Ok::<(), tidewire_model::OutOfModel>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asking {
    loss: f64,
    /// Probability of a loss after an arrival, and after a loss.
    after: [f64; 2],
    answer: f64,
}

impl Asking {
    /// Model in which a fraction `loss` of the packets is lost, in runs of mean length `burst`, and each is
    /// sent again after `answer` slots. Independent losses have `burst = 1/(1 - loss)`.
    ///
    /// # Errors
    /// [`OutOfModel`] if `loss` is not in `[0, 1)`, or no channel has such bursts.
    pub fn new(loss: f64, burst: f64, answer: f64) -> Result<Self, OutOfModel> {
        if !(0.0..1.0).contains(&loss) {
            return Err(OutOfModel::Loss(loss));
        }
        let after_arrival = loss / (1.0 - loss) / burst;
        if !(1.0..=MAX_BURST).contains(&burst) || after_arrival > 1.0 {
            return Err(OutOfModel::Burst(burst));
        }
        let answer = if answer.is_nan() { 1.0 } else { answer.clamp(1.0, MAX_ANSWER) };
        Ok(Self { loss, after: [after_arrival, 1.0 - 1.0 / burst], answer })
    }

    /// `P(D > slots)`, the fraction of source symbols delivered later than that. Takes some microseconds.
    pub fn late(&self, slots: f64) -> f64 {
        if slots.is_nan() || slots < 0.0 {
            return 1.0;
        }
        // Ages from which a loss is accepted with the same probability, the youngest first.
        let first = (slots / self.answer).floor().min(f64::from(i32::MAX)) as u32;
        let mut passes: Matrix<f64> = [[1.0, 0.0], [0.0, 1.0]];
        let mut from = 0.0_f64;
        for answers in first..=first.saturating_add(MAX_ANSWERS) {
            let missing = self.loss.powf(answers.into());
            if missing < NEVER {
                break;
            }
            let to = (f64::from(answers + 1) * self.answer - slots).ceil();
            let step = self.after.map(|lost| [1.0 - lost, lost * (1.0 - missing)]);
            passes = product(&power(&step, (to - from) as u32), &passes);
            from = to;
        }
        // The channel before the oldest of these.
        let start = [1.0 - self.loss, self.loss];
        let in_time: f64 = [0, 1].map(|state: usize| start[state] * (passes[state][0] + passes[state][1])).iter().sum();
        (1.0 - in_time).clamp(0.0, 1.0)
    }

    /// The delay in slots that a fraction `q` of source symbols does not exceed, accurate to a hundredth of a
    /// slot. `None` if `q` is not in `[0, 1 - 1e-9]`, or if the delay is more than 4,096 retransmission
    /// times.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        if !(0.0..=1.0 - 1e-9).contains(&q) {
            return None;
        }
        let allowed = 1.0 - q;
        if self.late(0.0) <= allowed {
            return Some(0.0);
        }
        let (mut low, mut high) = (0.0, self.answer);
        while self.late(high) > allowed {
            (low, high) = (high, 2.0 * high);
            if high > self.answer * f64::from(MAX_ANSWERS) {
                return None;
            }
        }
        while high - low > 0.01 {
            let middle = (low + high) / 2.0;
            if self.late(middle) <= allowed { high = middle } else { low = middle }
        }
        Some(high)
    }
}

impl Number for f64 {}

/// Maximum number of retransmissions per loss considered. With nine in ten lost, one symbol in 10^187 needs
/// more.
const MAX_ANSWERS: u32 = 4_096;
/// Probabilities below this do not change a result.
const NEVER: f64 = 1e-15;
/// Longest retransmission time in symbols: 10 Gbit/s over some seconds.
const MAX_ANSWER: f64 = 1e7;

#[cfg(test)]
mod tests {
    use super::*;

    /// Delays of single symbols on a Gilbert channel. Each lost one is sent again every `answer` slots until
    /// it arrives.
    fn simulated(loss: f64, burst: f64, answer: f64) -> Vec<f64> {
        let mut state = 7_u64;
        let mut random = || {
            // Knuth's generator (MMIX). Its high bits are good enough for an accuracy of one thousandth.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let (mut bad, mut edge) = (false, 0.0_f64);
        let after = [loss / (1.0 - loss) / burst, 1.0 - 1.0 / burst];
        let delays = (0..400_000).map(|n| {
            bad = random() < after[usize::from(bad)];
            let mut arrives = f64::from(n);
            if bad {
                arrives += answer;
                while random() < loss {
                    arrives += answer;
                }
            }
            edge = edge.max(arrives);
            edge - f64::from(n)
        });
        let mut delays: Vec<f64> = delays.collect();
        delays.sort_by(f64::total_cmp);
        delays
    }

    #[test]
    fn agrees_with_symbols_that_are_lost_one_by_one() {
        for (loss, burst, answer) in
            [(0.01, 1.0 / 0.99, 80.0), (0.02, 4.0, 80.0), (0.1, 4.0, 40.0), (0.1, 1.0 / 0.9, 10.0)]
        {
            let (model, delays) = (Asking::new(loss, burst, answer).unwrap(), simulated(loss, burst, answer));
            for q in [0.5, 0.9, 0.95, 0.99] {
                let (got, want) = (model.quantile(q).unwrap(), delays[(q * delays.len() as f64) as usize]);
                assert!((got - want).abs() <= 0.03 * answer + 1.0, "{loss} {burst} {q}: {got}, simulated {want}");
            }
        }
    }

    #[test]
    fn quantile_inverts_the_law() {
        let model = Asking::new(0.1, 4.0, 50.0).unwrap();
        for q in [0.7, 0.9, 0.99, 0.999, 0.999_999] {
            let slots = model.quantile(q).unwrap();
            assert!(model.late(slots) <= 1.0 - q + 1e-12 && model.late(slots - 1.0) >= 1.0 - q, "{q}: {slots}");
        }
        assert_eq!((model.late(-1.0), model.quantile(0.0), model.quantile(1.0)), (1.0, Some(0.0), None));
        let clean = Asking::new(0.0, 1.0, 50.0).unwrap();
        assert_eq!((clean.late(0.0), clean.quantile(0.999)), (0.0, Some(0.0)));
        assert!(Asking::new(1.0, 1.0, 1.0).is_err() && Asking::new(0.1, 0.5, 1.0).is_err());
        // The function ends for any input.
        for (loss, burst, answer) in [(0.999, 1_000.0, 1e300), (0.5, 2.0, f64::NAN), (0.9, 10.0, 1e7)] {
            let model = Asking::new(loss, burst, answer).unwrap();
            assert!((0.0..=1.0).contains(&model.late(3.0)), "{loss} {burst} {answer}");
            let _ = model.quantile(0.99);
        }
    }

    #[test]
    fn one_answer_and_independent_losses_are_a_geometric_law() {
        // Here retransmissions are never lost twice: all of the last `a - x` symbols must have arrived.
        let model = Asking::new(1e-4, 1.0 / (1.0 - 1e-4), 100.0).unwrap();
        assert!((1.0 - model.late(40.0) - (1.0_f64 - 1e-4).powi(60)).abs() < 1e-5);
    }
}
