//! What the experiments of `fairness` show, over fewer seconds than in `papers/fairness/data`.

use std::collections::BTreeMap;

use tidewire_papers::row::Row;
use tidewire_papers::{Experiment, PAPERS};
use tidewire_proto::profile::Profile;

fn experiment(name: &str) -> Experiment {
    let paper = PAPERS.iter().find(|paper| paper.name == "fairness").unwrap();
    *paper.experiments.iter().find(|experiment| experiment.name == name).unwrap()
}

/// The values of some cases, by curve.
fn values(name: &str, cases: &[usize]) -> Vec<BTreeMap<String, Row>> {
    let all = (experiment(name).cases)(false);
    let rows = |&case: &usize| all[case]().into_iter().map(|row| (row.curve.clone(), row)).collect();
    cases.iter().map(rows).collect()
}

#[test]
fn little_redundancy_harms_and_much_starves_nobody() {
    // The paper's system at R of 1, 1.15 and 1.5, and p = 1 %.
    let points = values("four-flows", &[0, 6, 9]);
    let of = |point: &BTreeMap<String, Row>, curve: &str| point[curve].value;
    assert_eq!([0, 1, 2].map(|point| points[point]["coded"].parameter), [1.0, 1.15, 1.5]);
    for point in &points {
        let fair = of(point, "if none is coded");
        assert!(of(point, "without code") > 0.1 * fair, "{point:?}");
        let all = 2.0 * of(point, "coded") + 2.0 * of(point, "without code");
        assert!((all / of(point, "all flows") - 1.0).abs() < 1e-9);
        assert!((0.25..=1.0).contains(&of(point, "J")));
    }
    // Below R = 1/(1 - p) code makes a flow slower than none.
    let (less, more) = (&points[0], &points[1]);
    assert!(of(less, "coded") < 0.8 * of(less, "if none is coded"), "{less:?}");
    assert!(of(more, "coded") > of(more, "without code"), "{more:?}");
}

#[test]
fn where_the_index_does_not_exist_a_row_says_so() {
    // R of 1, where the flows carry less than without code, and of 1.25, where they carry more.
    let points = values("figure-8", &[0, 7]);
    let (worse, better) = (&points[0], &points[1]);
    assert!(!worse.contains_key("J'") && worse["no J': lambda"].value > 1.0, "{worse:?}");
    let (index, lambda) = (better["J'"].value, better["J'"].rate.unwrap());
    assert!((0.5..=1.0).contains(&index) && (0.1..=1.0).contains(&lambda) && better.len() == 2, "{better:?}");
}

#[test]
fn a_code_hides_drops_of_the_queue_from_tcp() {
    let rows: Vec<_> = (experiment("figure-2").cases)(false).iter().map(|case| case()).collect();
    let drops = |of: &[Row]| {
        let drops = of.iter().filter(|row| row.curve.starts_with("drops")).map(|row| row.value);
        drops.clone().fold(0.0, f64::max) - drops.fold(f64::INFINITY, f64::min)
    };
    let [coded, without] = [&rows[0], &rows[1]].map(|rows| drops(rows));
    assert!(without >= 1.0 && coded > 10.0 * without, "{coded} drops, {without} without code");
}

#[test]
fn a_flow_of_ours_beside_newreno_is_nearly_fair() {
    // The default profile at p = 1 %, behind the four points of the tunnel.
    let points = values("cost", &[5]);
    let point = &points[0];
    let of = |curve: &str| point[curve].value;
    assert!((point["J' (stream)"].loss - 0.01).abs() < 1e-9 && of("J' (stream)") >= 0.95, "{point:?}");
    assert!(of("kept (stream)") > 0.6 && of("coded (stream)") > of("without code (stream)"), "{point:?}");
}

#[test]
fn every_profile_and_every_rule_has_its_points() {
    let curves = |name: &str| (experiment(name).cases)(false).len();
    // The tunnel, each profile, and the default with four other controllers; four loss rates.
    assert_eq!(curves("cost"), 4 * (1 + Profile::NAMED.len() + 4));
    assert_eq!(curves("cost-cubic"), curves("cost"));
    // Four rules, without and with a rate control, and the default.
    assert_eq!((curves("rules"), curves("cost-wide")), (4 * 9, 4 * 4));
}

#[test]
fn the_bars_of_figure_7_are_what_the_link_delivers() {
    let rows = (experiment("figure-7").cases)(false)[0]();
    for bar in [1.0, 2.0] {
        let parts = rows.iter().filter(|row| row.parameter == bar);
        let sum: f64 = parts.map(|row| row.value).sum();
        assert!((sum / (50.0 * 0.99) - 1.0).abs() < 1e-9, "{rows:?}");
    }
    let unused = |bar: f64| rows.iter().find(|row| row.curve == "not used" && row.parameter == bar).unwrap().value;
    assert!(unused(1.0) < unused(2.0), "a coded flow uses more of a lossy link: {rows:?}");
}
