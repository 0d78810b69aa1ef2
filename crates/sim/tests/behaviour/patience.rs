//! How many FEEDBACKs a slow flow gets, and what does not wait for them.

use core::time::Duration;

use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

use super::{link, whole};

/// Interval of the records, 1 Mbit/s, longer than half a round trip.
const INTERVAL: Duration = Duration::from_micros(9_600);

/// Records over 100 Mbit/s and 10 ms for a minute: FEEDBACKs for each of the packets with a record, and IP
/// bytes sent for each byte.
fn records(loss: &str) -> (f64, f64) {
    let settings =
        [(Direction::Both, "rate", "100mbit"), (Direction::Both, "rtt", "10ms"), (Direction::Forward, "loss", loss)];
    let rate = (1_200.0 / INTERVAL.as_secs_f64()) as u64;
    let flow = Flow { record: 1_200, ..Flow::paced(End::Near, 60 * rate, rate) };
    let report = Trial::new(link(&settings), vec![flow], 1).run();
    whole(&report);
    let (near, far) = (&report.near, &report.far);
    let share = far.packets.sent as f64 / near.packets.source as f64;
    let sent = near.bytes.wire_sent as f64 / report.bytes as f64;
    println!("loss {loss}: {share:.3} FEEDBACKs a record, {sent:.3} bytes sent for one; {:?}", near.packets);
    (share, sent)
}

/// Nothing else is sent for what is only answered late.
#[test]
fn a_slow_flow_gets_one_feedback_for_two_packets_where_nothing_is_lost() {
    let (share, sent) = records("0%");
    // The first 64 packets are answered one by one, since nothing is known of the path then.
    assert!(share <= 0.525 && sent <= 1.08, "{share}, {sent}");
}

#[test]
fn a_slow_flow_gets_one_for_each_where_packets_are_lost() {
    let (share, _) = records("2%");
    assert!(share > 1.0, "{share}");
}

/// A window of few packets is not kept waiting where the path is the limit.
#[test]
fn bulk_over_a_slow_short_path_gets_one_for_each() {
    let settings = [(Direction::Both, "rate", "1mbit"), (Direction::Both, "rtt", "10ms")];
    let report = Trial::new(link(&settings), vec![Flow::bulk(End::Near, 2_000_000)], 1).run();
    whole(&report);
    let share = report.far.packets.sent as f64 / report.near.packets.source as f64;
    println!("{share:.3} FEEDBACKs a symbol, {:.0} bit/s", report.goodput_bps);
    assert!(share > 0.9, "{share}");
}
