//! The special properties of the code over GF(2^16): its lengths, its format, and how rarely its repair
//! symbols are dependent.

use crate::setup::activate_kernel;
use tidewire_codec::{Code, DecodePlan, Generation, GenerationError, SourceId};

/// Over q - 1 = 65,535 non-zero values, a 2 x 2 matrix is singular with probability 1/65,535 exactly. Of
/// 200,000 draws that is 3, and more than 15 with probability 10^-6. Over GF(2^8) it would be 784.
#[test]
fn repair_symbols_over_gf65536_are_hardly_ever_dependent() {
    let mut plan = DecodePlan::nothing_lost(Generation::new(Code::Rlc16, 1).unwrap());
    let dependent = (0..200_000u64).filter(|draw| {
        let generation = Generation::new(Code::Rlc16, 4).unwrap().at(SourceId(draw * 4)).unwrap();
        let key = (draw % 1_000) as u16 * 2;
        plan.renew(generation, &[1, 2], &[key, key + 1]).is_err()
    });
    let dependent = dependent.count();
    assert!(dependent <= 15, "{dependent}");
}

#[test]
fn symbols_over_gf65536_have_an_even_length() {
    activate_kernel();
    let generation = Generation::new(Code::Rlc16, 3).unwrap();
    let sources = [vec![1; 7], vec![2; 6], vec![3; 1]];
    let mut outs = [vec![9; 7], vec![9; 7]];
    assert_eq!(generation.encode(&sources, 0, &mut outs), Err(GenerationError::OddLen { len: 7 }));
    assert_eq!(outs, [[9; 7]; 2]);
    let mut repairs = [[0; 8]; 2];
    assert_eq!(generation.encode(&sources, 0, &mut repairs), Ok(()));
    let plan = generation.plan(&[0, 2], &[0, 1]).unwrap();
    assert_eq!(plan.decode(&sources, &repairs, &mut [[0; 7]; 2]), Err(GenerationError::OddLen { len: 7 }));
    assert_eq!(plan.decode(&sources, &[[0; 0]; 2], &mut [[0; 0]; 2]), Err(GenerationError::EmptySymbol));
    let mut decoded = [[9; 8]; 2];
    assert_eq!(plan.decode(&sources, &repairs, &mut decoded), Ok(()));
    assert_eq!(decoded, [[1, 1, 1, 1, 1, 1, 1, 0], [3, 0, 0, 0, 0, 0, 0, 0]]);
}

/// The wire format of `Rlc16`: other implementations must compute these bytes. They were computed separately,
/// by shift and add.
#[test]
fn a_repair_symbol_over_gf65536_is_pinned() {
    let generation = Generation::new(Code::Rlc16, 3).unwrap().at(SourceId(5)).unwrap();
    let mut repair = [[0; 6]];
    generation.encode(&[&b"tide"[..], b"comes", b"in"], 7, &mut repair).unwrap();
    assert_eq!(repair, [[142, 136, 35, 234, 91, 39]]);
}
