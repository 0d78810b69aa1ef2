//! A corner of the grid, small enough for every day: where ours stands to a few families of policies. The
//! whole of it: docs/envelope.md.
//!
//! The snapshot is there to be read when it changes; `INSTA_UPDATE=always` writes it anew.

use tidewire_sim::grid::{Effort, Family, Part, core, json, judge, markdown};

#[test]
fn a_corner_of_the_grid() {
    let heavy = core().into_iter().filter(|cell| cell.loss == 0.10 && cell.rtt_ms == 60);
    // Application-limited where losses are independent, saturated where they come in bursts.
    let cells: Vec<_> = heavy.filter(|cell| cell.load.is_some() == (cell.burst == 1.0)).collect();
    let families = [Family::Arq, Family::Block(32), Family::Closed, Family::AcRlnc];
    let rows = judge(&cells, &families, Effort { seeds: 1, seconds: 3 }, |_| {});
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert!(families.iter().all(|family| row.points.iter().any(|point| point.family == *family)), "{}", row.cell);
        assert_eq!(json(std::slice::from_ref(row)).lines().count(), 1 + row.points.len());
        // Coding pays in every one of these cells: what is sent again comes a round trip later.
        let arq = row.points[0].measured.steady.mean_ms;
        assert!(row.ours.steady.mean_ms < arq, "{}: {} ms, ARQ {arq} ms", row.cell, row.ours.steady.mean_ms);
    }
    insta::assert_snapshot!(markdown(&rows, Part::Steady));
}
