//! How many FEEDBACKs a slow flow gets, and what does not wait for them.

use core::time::Duration;

use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

use super::{link, whole};

/// Interval of the records, 1 Mbit/s, longer than half a round trip.
const INTERVAL: Duration = Duration::from_micros(9_600);

/// Records over 100 Mbit/s and 10 ms for a minute: FEEDBACKs a packet, and IP bytes sent for each byte.
fn records(loss: &str) -> (f64, f64) {
    let settings =
        [(Direction::Both, "rate", "100mbit"), (Direction::Both, "rtt", "10ms"), (Direction::Forward, "loss", loss)];
    let rate = (1_200.0 / INTERVAL.as_secs_f64()) as u64;
    let flow = Flow { record: 1_200, ..Flow::paced(End::Near, 60 * rate, rate) };
    let report = Trial::new(link(&settings), vec![flow], 1).run();
    whole(&report);
    let (near, far) = (&report.near, &report.far);
    let share = far.packets.sent as f64 / near.packets.sent as f64;
    let sent = near.bytes.wire_sent as f64 / report.bytes as f64;
    println!("loss {loss}: {share:.3} FEEDBACKs a packet, {sent:.3} bytes sent for one; {:?}", near.packets);
    (share, sent)
}

/// Nothing else is sent for what is only answered late.
#[test]
fn a_slow_flow_gets_one_feedback_for_two_packets_where_nothing_is_lost() {
    let (share, sent) = records("0%");
    // The first 64 packets are answered one by one, since nothing is known of the path then.
    assert!(share <= 0.515 && sent <= 1.08, "{share}, {sent}");
}

#[test]
fn a_slow_flow_gets_one_for_each_where_packets_are_lost() {
    let (share, _) = records("2%");
    assert!(share > 0.9, "{share}");
}
