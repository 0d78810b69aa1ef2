//! A part of the grid that is small enough to run every day: ours against a few families of policies. The
//! whole grid is in docs/envelope.md.
//!
//! The snapshot shows what a change does. `INSTA_UPDATE=always` writes it anew.

use tidewire_sim::grid::{Effort, Family, Part, core, json, judge, markdown};

#[test]
fn a_corner_of_the_grid() {
    let heavy = core().into_iter().filter(|cell| cell.loss == 0.10 && cell.rtt_ms == 60);
    // Application-limited with independent losses, and saturated with bursts.
    let cells: Vec<_> = heavy.filter(|cell| cell.load.is_some() == (cell.burst == 1.0)).collect();
    let families = [Family::Arq, Family::Block(32), Family::Closed, Family::AcRlnc];
    let rows = judge(&cells, &families, Effort { seeds: 1, seconds: 3 }, |_| {});
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert!(families.iter().all(|family| row.points.iter().any(|point| point.family == *family)), "{}", row.cell);
        assert_eq!(json(std::slice::from_ref(row)).lines().count(), 1 + row.points.len());
        // Coding helps in every one of these cells, because a retransmission arrives a round trip later.
        let arq = row.points[0].measured.steady.mean_ms;
        assert!(row.ours.steady.mean_ms < arq, "{}: {} ms, ARQ {arq} ms", row.cell, row.ours.steady.mean_ms);
    }
    insta::assert_snapshot!(markdown(&rows, Part::Steady));
}
