//! Figures of the main job: goodput, queue and overhead of a flow of 48 MB, and the order of policies by
//! in-order delay.

use super::{Cell, median, millis, run_all};

/// Bulk over 60 ms.
fn bulk(policy: &'static str, loss: &'static str, back_loss: &'static str, bytes: u64) -> Cell {
    Cell { policy, loss, back_loss, rtt: "60ms", bytes, load: None }
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn a_48_mb_flow_reaches_its_goodput() {
    let floors = [
        ("0%", "0%", 0.88),
        ("1%", "0%", 0.88),
        ("2%", "0%", 0.88),
        ("5%", "0%", 0.88),
        ("10%", "0%", 0.88),
        ("gilbert:5%,4", "0%", 0.88),
        ("20%", "0%", 0.86),
        ("gilbert:10%,4", "0%", 0.86),
        ("10%", "5%", 0.85),
        ("gilbert:10%,4", "5%", 0.85),
    ];
    let cells: Vec<Cell> = floors.iter().map(|&(loss, back, _)| bulk("adaptive", loss, back, 48_000_000)).collect();
    let mut missed = Vec::new();
    for ((cell, reports), (_, _, floor)) in cells.iter().zip(run_all(&cells)).zip(floors) {
        let share = |bps: f64| bps / cell.capacity();
        let goodput = median(&reports, |r| share(r.goodput_bps));
        let steady = median(&reports, |r| share(r.steady_goodput_bps.unwrap_or(0.0)));
        let dropped = median(&reports, |r| r.forward.queue_dropped as f64 / r.forward.offered as f64);
        let queueing = median(&reports, |r| millis(r.forward.mean_queueing()));
        let sent = median(&reports, |r| r.sent_per_byte());
        let returned = median(&reports, |r| r.returned_per_byte());
        let line = format!(
            "{} back {}: goodput {goodput:.3} (at least {floor}), steady {steady:.3}, dropped {:.2} %, queueing {queueing:.1} ms, \
             sent/app {sent:.3}, returned {returned:.3}",
            cell.loss,
            cell.back_loss,
            dropped * 100.0
        );
        println!("{line}");
        let clean = cell.loss == "0%";
        let good = goodput >= floor && steady >= 0.89 && dropped <= 0.02 && queueing <= 10.0 && returned <= 0.04;
        let coded = reports.iter().all(|r| clean || r.near.packets.repair > 0);
        if !good || !coded || (clean && sent > 1.10) {
            missed.push(line);
        }
    }
    assert!(missed.is_empty(), "missed:\n{}", missed.join("\n"));
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn streaming_is_earlier_than_blocks_and_blocks_than_retransmission() {
    const BLOCKS: [&str; 9] = [
        "block:32,3",
        "block:32,4",
        "block:32,5",
        "block:32,6",
        "block:32,7",
        "block:32,8",
        "block:32,9",
        "block:32,10",
        "block:32,12",
    ];
    let policies: Vec<&str> = ["adaptive", "none"].into_iter().chain(BLOCKS).collect();
    let cells: Vec<Cell> = policies.iter().map(|policy| bulk(policy, "gilbert:10%,4", "0%", 24_000_000)).collect();
    let reports = run_all(&cells);
    let mut rows: Vec<(&str, f64, f64)> = Vec::new();
    for (policy, reports) in policies.iter().zip(&reports) {
        let row = (*policy, median(reports, |r| r.sent_per_byte()), median(reports, |r| millis(r.delay().mean())));
        println!("{}: sent/app {:.3}, mean in-order delay {:.1} ms", row.0, row.1, row.2);
        rows.push(row);
        assert!(*policy == "none" || reports.iter().all(|r| r.near.packets.repair > 500), "{policy} sent no repair");
    }
    let (streaming, retransmission) = (rows[0], rows[1]);
    // The block code gets at least as much overhead: the least that is not below that of the streaming code.
    let above = rows[2..].iter().filter(|row| row.1 >= streaming.1).min_by(|a, b| a.1.total_cmp(&b.1));
    let block = above.expect("a block code with more overhead than the adaptive policy");
    println!("compared: {streaming:?} < {block:?} < {retransmission:?}");
    assert!(streaming.2 < block.2, "streaming {streaming:?}, block {block:?}");
    assert!(block.2 < retransmission.2, "block {block:?}, retransmission {retransmission:?}");
}
