//! The comparison of all profiles: its table shows the data that is kept, and a case computes it again.

use std::fs;
use std::path::Path;

use tidewire_figures::csv;
use tidewire_papers::PAPERS;
use tidewire_papers::row::{How, Row};
use tidewire_proto::profile::Profile;

fn kept() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/compare/data/profiles.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_table_is_that_of_the_kept_data_and_the_page_names_every_profile() {
    let paper = PAPERS.iter().find(|paper| paper.name == "compare").unwrap();
    let table = csv::of_markdown(&paper.table(&kept()).unwrap());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/compare");
    assert_eq!(fs::read_to_string(folder.join("data/table.csv")).unwrap(), table, "run `tidewire-lab papers compare`");
    let page = fs::read_to_string(folder.join("README.md")).unwrap();
    assert!(Profile::NAMED.iter().all(|named| page.contains(&format!("`{}", named.name))), "a profile is missing");
}

#[test]
fn every_profile_is_compared_on_every_link() {
    let (paper, rows) = (PAPERS.iter().find(|paper| paper.name == "compare").unwrap(), kept());
    let cases = (paper.experiments[0].cases)(false);
    let links = cases.len() / (Profile::NAMED.len() + 1);
    assert!(links >= 8 && cases.len().is_multiple_of(links));
    assert_eq!(rows.len(), links * (5 * Profile::NAMED.len() + 1), "run `tidewire-lab papers compare` again");
    assert!(rows.iter().all(|row| row.how == How::Code && row.value > 0.0));
}

/// The last case of a link is TCP alone, which no change of a profile touches.
#[test]
fn a_case_gives_the_row_that_is_kept() {
    let paper = PAPERS.iter().find(|paper| paper.name == "compare").unwrap();
    let cases = (paper.experiments[0].cases)(false);
    let rows = cases[Profile::NAMED.len()]();
    let [row] = &rows[..] else { panic!("{} rows", rows.len()) };
    assert_eq!(row.curve, "without tunnel");
    let kept = kept().into_iter().find(|kept| kept.curve == row.curve && kept.parameter == row.parameter).unwrap();
    assert!((kept.value / row.value - 1.0).abs() < 1e-6, "{kept:?} {row:?}");
}
