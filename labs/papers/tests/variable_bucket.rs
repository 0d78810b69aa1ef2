//! What the experiments of `variable-bucket` show, each by some of its cases.

use std::collections::BTreeMap;

use tidewire_papers::row::{How, Row};
use tidewire_papers::{Experiment, PAPERS};

fn experiment(name: &str) -> Experiment {
    let paper = PAPERS.iter().find(|paper| paper.name == "variable-bucket").unwrap();
    *paper.experiments.iter().find(|experiment| experiment.name == name).unwrap()
}

/// The rows of the cases whose first curve ends so, by curve. Cases of the headline stand in pairs, without
/// and with CoDel.
fn headline(place: &str, load: &str, system: &str, codel: bool) -> BTreeMap<String, Row> {
    let systems = ["TCP", "variable", "fixed 2", "fixed 4", "fixed 15"];
    let number = |all: &[&str], one: &str| all.iter().position(|name| *name == one).unwrap();
    let case = number(&["line", "20 nodes", "20 nodes alone"], place) * 30
        + number(&["VBR", "on-off", "trace"], load) * 10
        + number(&systems, system) * 2
        + usize::from(codel);
    let rows = (experiment("headline").cases)(false)[case]();
    let end = format!(", {system}, {load}, {place}");
    rows.into_iter().map(|row| (row.curve.strip_suffix(&end).unwrap().to_owned(), row)).collect()
}

#[test]
fn the_variable_bucket_never_has_a_zero_payload_packet_and_the_fixed_ones_have() {
    for load in ["VBR", "trace"] {
        let zeros = |system| headline("line", load, system, false)["zero-payload packets"].value;
        assert_eq!((zeros("TCP"), zeros("variable")), (0.0, 0.0), "{load}");
        assert!(zeros("fixed 2") > 0.0 && zeros("fixed 4") > zeros("fixed 2"), "{load}");
    }
}

#[test]
fn the_example_has_1488_bytes_left_and_one_zero_payload_packet() {
    let rows = (experiment("example").cases)(false)[0]();
    let of = |curve: &str, how| rows.iter().find(|row| row.curve == curve && row.how == how).unwrap().value;
    assert_eq!((of("bytes left", How::Model), of("bytes left", How::Printed)), (1_488.0, 1_584.0));
    assert_eq!(of("zero-payload packets of two buckets of two", How::Model), 1.0);
}

#[test]
fn a_large_bucket_times_out_only_where_buckets_are_confirmed() {
    let all = (experiment("cap").cases)(false);
    let timeouts = |case: usize| {
        let rows = all[case]();
        let of = |name: &str| rows.iter().find(|row| row.curve.starts_with(name)).unwrap().value;
        assert_eq!(of("lost packets"), 0.0);
        of("timeouts")
    };
    // Caps of 8 and 64 with degrees, then with buckets.
    assert_eq!((timeouts(3), timeouts(11), timeouts(15)), (0.0, 0.0, 0.0));
    assert!(timeouts(23) > 0.0);
}
