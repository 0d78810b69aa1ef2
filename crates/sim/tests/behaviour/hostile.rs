//! Datagrams that the peer did not send: garbage, changed bits, copies, another order.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use tidewire_codec::SplitMix64;
use tidewire_proto::Time;
use tidewire_proto::connection::Received;
use tidewire_sim::pair::End;
use tidewire_sim::settings::Direction;

use super::{bulk, whole};

#[test]
fn garbage_is_counted_and_changes_nothing() {
    let trial = bulk(4_000_000, &[]);
    let clean = trial.run();
    let mut run = trial.start();
    let from = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 7_700));
    let (mut random, mut thrown) = (SplitMix64::new(1), 0);
    for millis in 0..1_000 {
        let at = Time::from_millis(100 + millis);
        run.until(at);
        let at = run.pair.local(End::Far);
        for _ in 0..100 {
            let mut datagram = vec![0; random.below(1_500) as usize];
            random.fill(&mut datagram);
            run.pair.endpoint(End::Far).handle_datagram(Received {
                at,
                from,
                to: None,
                ecn: None,
                datagram: &mut datagram,
            });
            thrown += 1;
        }
    }
    run.until(Time::from_millis(60_000));
    let report = run.report();
    whole(&report);
    let far = report.endpoints[End::Far as usize];
    assert_eq!(thrown, 100_000);
    assert_eq!(far.malformed + far.unknown + far.strangers - clean.endpoints[1].strangers, thrown, "{far:?}");
    // The datagrams are the same as without, at the same times.
    assert_eq!((report.counted.fingerprint, report.seconds), (clean.counted.fingerprint, clean.seconds));
}

#[test]
fn changed_bits_cost_only_the_datagram() {
    let mut run = bulk(100_000_000, &[(Direction::Both, "corrupt", "100%")]).start();
    run.until(Time::from_millis(5_000));
    assert_eq!(run.report().bytes, 0, "nothing authentic gets through");
    let trial = bulk(24_000_000, &[(Direction::Both, "corrupt", "20%")]);
    let report = trial.run();
    whole(&report);
    let dropped = report.far.packets.dropped + report.endpoints[1].unknown + report.endpoints[1].malformed;
    assert!(report.forward.corrupted > 4_000, "{report:?}");
    // A changed bit in the destination id makes an unknown datagram, and one in the first byte another kind.
    // A few of those count as strangers or arrive before the connection.
    assert!(dropped + report.endpoints[1].strangers >= report.forward.corrupted * 99 / 100, "{report:?}");
}

#[test]
fn copies_and_another_order_change_no_byte() {
    let settings = [
        (Direction::Both, "duplicate", "100%"),
        (Direction::Both, "reorder", "30%,20ms"),
        (Direction::Both, "jitter", "10ms"),
    ];
    let report = bulk(12_000_000, &settings).run();
    whole(&report);
    assert!(report.forward.duplicated > 8_000 && report.forward.reordered > 2_000, "{:?}", report.forward);
    assert!(report.far.packets.dropped >= report.forward.duplicated * 99 / 100, "copies are dropped by number");
}

#[test]
fn ten_copies_of_every_datagram_are_taken_once() {
    let mut run = bulk(2_000_000, &[]).start();
    run.pair.copies(10);
    run.until(Time::ZERO + Duration::from_secs(60));
    let report = run.report();
    whole(&report);
    assert!(report.far.packets.dropped >= 9 * report.far.packets.received, "{:?}", report.far.packets);
}
