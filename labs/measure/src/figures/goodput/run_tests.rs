use super::super::cell::CELLS;
use super::*;
use serde_json::json;

fn lines(started: Instant, events: &[(f64, serde_json::Value)]) -> Vec<Line> {
    events
        .iter()
        .map(|(seconds, event)| Line { at: started + Duration::from_secs_f64(*seconds), event: event.clone() })
        .collect()
}

/// A run of 20 s over the cell of 20 % loss, at exactly 20 Mbit/s after the third second.
fn example(started: Instant) -> Lines {
    let progress = |bytes: u64| json!({"event": "progress", "bytes": bytes});
    let counts = |offered, delivered, dropped, queueing, bytes| {
        json!({"offered": offered, "delivered": delivered, "queue_dropped": dropped, "queueing_ms": queueing,
               "offered_bytes": bytes})
    };
    let sender = [
        (19.9, json!({"event": "file", "ok": true})),
        (
            20.0,
            json!({"event": "summary", "wire_bytes": 60_000_000,
                      "packets": {"sent": 990, "repair": 7, "feedback_repair": 2}}),
        ),
    ];
    let receiver = [
        (2.5, progress(4_000_000)),
        (3.5, progress(6_000_000)),
        (19.5, progress(45_500_000)),
        (19.8, progress(48_000_000)),
        (
            20.0,
            json!({"event": "summary", "delay_ms": {"mean": 5, "p50": 1, "p95": 20, "p99": 50.5},
                      "symbols": {"direct": 800, "repaired": 190, "resent": 10}}),
        ),
    ];
    let link = [
        (1.0, json!({"event": "link_stats", "forward": counts(1, 1, 0, 0.0, 1), "back": counts(0, 0, 0, 0.0, 0)})),
        (
            20.0,
            json!({"event": "link_stats", "forward": counts(1000, 795, 5, 2.5, 1),
                      "back": counts(100, 80, 0, 0.0, 600_000)}),
        ),
    ];
    Lines { sender: lines(started, &sender), receiver: lines(started, &receiver), link: lines(started, &link) }
}

#[test]
fn figures_follow_from_the_lines_and_their_times() {
    let started = Instant::now();
    let cell = CELLS.iter().find(|cell| cell.p == 0.2).unwrap();
    let figures = example(started).figures(cell, started, 48e6).unwrap();
    let close = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-6, "{value}, not {expected}");
    close(figures.goodput, 8.0 * 48e6 / 19.9);
    close(figures.share, figures.goodput / 20e6);
    // 5 MB at 3 s and 45.5 MB at 19.5 s. The event with the last bytes does not count.
    close(figures.steady, 8.0 * 40.5e6 / 16.5 / 20e6);
    close(figures.queue_drops, 0.5);
    close(figures.queueing_ms, 2.5);
    close(figures.sent_per_app, 1.25);
    close(figures.back_per_app, 0.0125);
    assert_eq!(figures.delay_ms, [5.0, 1.0, 20.0, 50.5]);
    assert_eq!((figures.symbols, figures.repairs, figures.unseen), ([800.0, 190.0, 10.0], [7.0, 2.0], 0));
}

#[test]
fn a_line_or_number_that_is_missing_is_an_error() {
    let started = Instant::now();
    let without = |change: &dyn Fn(&mut Lines)| {
        let mut lines = example(started);
        change(&mut lines);
        lines.figures(&CELLS[5], started, 48e6).unwrap_err()
    };
    assert!(without(&|lines| lines.sender.truncate(0)).contains("file"));
    assert!(without(&|lines| lines.link.truncate(0)).contains("link_stats"));
    assert!(without(&|lines| lines.receiver.truncate(1)).contains("summary"));
    assert!(without(&|lines| drop(lines.receiver.drain(1..4))).contains("progress"));
    assert!(without(&|lines| lines.receiver[4].event["delay_ms"]["p99"] = json!(null)).contains("/delay_ms/p99"));
}

#[test]
fn the_file_is_compared_and_its_folder_removed() {
    let folder = Folder::new(1003).unwrap();
    let received = folder.empty().unwrap();
    std::fs::copy(folder.file(), received.join(FILE)).unwrap();
    assert_eq!(folder.compare(&received), Ok(()));
    let mut changed = incompressible(1003);
    changed[1002] ^= 1;
    std::fs::write(received.join(FILE), changed).unwrap();
    assert!(folder.compare(&received).is_err());
    assert_eq!(std::fs::read_dir(folder.empty().unwrap()).unwrap().count(), 0);
    let path = folder.path.clone();
    drop(folder);
    assert!(!path.exists());
}
