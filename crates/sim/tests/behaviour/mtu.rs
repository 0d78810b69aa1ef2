//! The packet size is found by probing, and nothing larger than passes is relied on.

use tidewire_sim::settings::Direction;

use super::{bulk, whole};

/// The largest UDP payload that was found over a link with this IP limit.
fn found(mtu: &str) -> u16 {
    let report = bulk(8_000_000, &[(Direction::Both, "mtu", mtu)]).run().unwrap();
    whole(&report);
    assert!(report.forward.too_long < 40, "{:?}", report.forward);
    report.near.datagram_size
}

#[test]
fn a_limit_of_1300_is_found_within_the_resolution() {
    let size = found("1300B");
    assert!(size > 1_252 && size <= 1_272, "{size}");
}

#[test]
fn an_ethernet_frame_is_filled() {
    assert_eq!(found("1500B"), 1_472);
}

#[test]
fn the_least_path_is_enough() {
    assert_eq!(found("1228B"), 1_200);
}
