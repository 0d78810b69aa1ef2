//! How often a random repair is redundant, compared with the mathematics of the code.

use tidewire_codec::{Code, Decoder, Limits, Reception, RepairId, SourceId};

/// Order of the field.
const Q: f64 = 256.0;

/// Expected number of redundant repairs until `m` lost symbols are decoded, coefficients uniform over the 255
/// that are not zero.
///
/// The repairs received say nothing yet about the solutions `a` of `a * x = 0` for each row `x`: with rank
/// `r` there are `q^(m-r)` of them, the zero vector included. A vector `a` with `w` entries that are not zero
/// is a solution for one random row with probability `p(w) = (1 + (-1)^w / (q-1)^(w-1)) / q`: the share of
/// the `(q-1)^w` ways to choose `w` terms from 1..q-1 that sum to zero. So after `k` rows the mean of
/// `q^(m-r) - 1` is the sum over `w` of `C(m,w) (q-1)^w p(w)^k`. The rank lacks 1, if anything, but for a
/// share of about q^-3; then `q^(m-r) - 1 = q - 1`, and P(not decoded after k) is that mean over q - 1. Its
/// sum over `k >= m` is what repairs beyond `m` are expected.
fn expected(m: i32) -> f64 {
    let mut ways = 1.0;
    let mut sum = 0.0;
    for w in 1..=m {
        ways *= f64::from(m - w + 1) / f64::from(w) * (Q - 1.0);
        let p = (1.0 + (-1.0f64).powi(w) / (Q - 1.0).powi(w - 1)) / Q;
        sum += ways * p.powi(m) / (1.0 - p);
    }
    sum / (Q - 1.0)
}

/// Redundant repairs of `trials` windows of 40 symbols that lost `m` each, with random keys.
fn redundant(m: u64, trials: u64) -> u64 {
    let mut decoder = Decoder::new(Limits { slot_len: 1, capacity: 64, max_span: 40, max_rows: 40 });
    let mut random = 0x9E37_79B9u64;
    let mut count = 0;
    for trial in 0..trials {
        let first = 40 * trial;
        // Every (40 / m)-th is lost, all of them within the window.
        for id in (first..first + 40).filter(|id| !((id - first) % (40 / m) == 0 && (id - first) / (40 / m) < m)) {
            decoder.receive_source(SourceId(id), &[1]).unwrap();
        }
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let mut key = (random >> 48) as u16;
        while decoder.edge().0 < first + 40 {
            // Random keys, but none twice: that would be redundant for another reason.
            key = key.wrapping_add(0x9E37);
            let id = RepairId { first: SourceId(first), count: 40, key };
            // The bytes of these symbols do not matter here.
            let reception = decoder.receive_repair(Code::Rlc, id, &[1]).unwrap();
            count += u64::from(reception == Reception::Redundant);
        }
    }
    count
}

#[test]
fn the_closed_form_knows_the_simple_cases() {
    assert_eq!(expected(1), 0.0);
    // The second row is a multiple of the first with probability 1/255, each time anew.
    assert!((expected(2) - 1.0 / 254.0).abs() < 1e-12);
    // Uniform rows with zeros among them: the sum over j of 1/(q^j - 1), all but the first tiny.
    assert!((expected(20) - (1.0 / 255.0 + 1.0 / 65_535.0)).abs() < 1e-6);
}

/// The count is nearly Poisson: repairs beyond the first redundant one are rare.
#[test]
fn random_repairs_are_redundant_as_often_as_theory_says() {
    for (m, trials) in [(1, 20_000), (2, 60_000), (3, 40_000), (5, 30_000), (8, 30_000), (20, 15_000)] {
        let mean = expected(m) * trials as f64;
        let counted = redundant(m as u64, trials) as f64;
        assert!((counted - mean).abs() <= 3.0 * mean.sqrt(), "{m} lost: {counted} redundant, expected {mean:.1}");
    }
}
