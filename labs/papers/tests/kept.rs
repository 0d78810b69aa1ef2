//! Recomputes the kept data of `papers/` from the cases of its experiments, each called alone and in any
//! order.
//!
//! `cargo test` runs it. Only figures that are formulas are compared. Those of the protocol change with the
//! protocol.

use std::fs;
use std::path::Path;

use tidewire_papers::{Experiment, PAPERS, row};

fn experiment(paper: &str, name: &str) -> Experiment {
    let paper = PAPERS.iter().find(|known| known.name == paper).unwrap();
    *paper.experiments.iter().find(|known| known.name == name).unwrap()
}

#[test]
fn cases_that_are_called_alone_and_backwards_give_the_rows_that_are_kept() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/streaming-code-5g/data");
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kept");
    for (name, count) in [("figure-5", 5), ("table-1", 2)] {
        let cases = (experiment("streaming-code-5g", name).cases)(false);
        assert_eq!(cases.len(), count);
        let mut parts: Vec<_> = cases.iter().rev().map(|case| case()).collect();
        parts.reverse();
        row::write(&made, name, &parts.concat()).unwrap();
        let file = format!("{name}.csv");
        let [made, kept] = [&made, &kept].map(|folder| fs::read_to_string(folder.join(&file)).unwrap());
        assert!(made == kept, "{file}: regenerate it, or say why it differs");
    }
}

#[test]
fn a_full_experiment_has_the_same_cases() {
    for paper in &PAPERS {
        for experiment in paper.experiments {
            let [usual, full] = [false, true].map(|full| (experiment.cases)(full).len());
            assert!(usual == full && usual > 0, "{}", experiment.name);
        }
    }
}
