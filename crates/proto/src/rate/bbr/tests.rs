//! Tests of the default controller with scripted acknowledgements.

use super::*;
use crate::path::RateSample;

const RTT: Duration = Duration::from_millis(60);

/// One round trip of FEEDBACK reports, a sixteenth of a round trip apart, over a path that carries `rate`
/// bytes per second at this RTT.
fn round(bbr: &mut Bbr, now: &mut Time, packet: &mut u64, rate: u64, rtt: Duration) {
    for _ in 0..16 {
        *now += RTT / 16;
        *packet += 8;
        bbr.on_ack(&AckSample {
            now: *now,
            bytes: 12_000,
            in_flight: bbr.product(),
            newest: *packet,
            left: *now - rtt,
            next: *packet + 128,
            rtt: Some(rtt),
            one_way: None,
            newest_bytes: 0,
            app_limited: false,
            totals: Default::default(),
            smoothed: rtt,
            min_rtt: RTT,
            rate: Some(RateSample { acked: rate, passed: rate, app_limited: false }),
            dispersion: None,
        });
    }
}

#[test]
fn a_look_at_a_lossy_path_believes_what_it_saw_and_nothing_else() {
    let ack = |rtt| AckSample {
        now: Time::from_millis(1_000),
        bytes: 12_000,
        in_flight: 0,
        newest: 8,
        left: Time::from_millis(900),
        next: 16,
        rtt: Some(rtt),
        one_way: None,
        newest_bytes: 0,
        app_limited: false,
        totals: Default::default(),
        smoothed: rtt,
        min_rtt: RTT,
        rate: None,
        dispersion: None,
    };
    let after = |least| {
        let delays = RoundTrips { min: RTT, least, ..RoundTrips::default() };
        let mut bbr = Bbr { phase: Phase::Look, delays, ..Bbr::default() };
        bbr.end_look(&ack(RTT));
        bbr
    };
    assert_eq!((after(Duration::MAX).phase, after(Duration::MAX).delays.longer), (Phase::Cruise, Duration::ZERO));
    assert_eq!(after(RTT).delays.longer, Duration::ZERO);
    let mut bbr = after(3 * RTT);
    assert_eq!((bbr.phase, bbr.delays.longer), (Phase::Cruise, 3 * RTT));
    bbr.on_ack(&ack(3 * RTT));
    assert_eq!((bbr.delays.min, bbr.delays.queue), (3 * RTT, Duration::ZERO));
    bbr.on_ack(&ack(RTT));
    assert_eq!((bbr.delays.longer, bbr.delays.min), (RTT, RTT), "a shorter one was seen");
}

#[test]
fn finds_the_rate_and_stays_at_it() {
    let (mut bbr, mut now, mut packet) = (Bbr::default(), Time::ZERO, 0);
    for _ in 0..12 {
        round(&mut bbr, &mut now, &mut packet, 3_125_000, RTT);
    }
    assert_ne!(bbr.phase, Phase::Startup);
    assert_eq!(bbr.rate(), 3_125_000);
    assert!((2_300_000..=4_000_000).contains(&bbr.budget().pacing), "{:?}", bbr.budget());
}

#[test]
fn a_queue_ends_start_up_before_the_rate_stops_growing() {
    let (mut bbr, mut now, mut packet) = (Bbr::default(), Time::ZERO, 0);
    round(&mut bbr, &mut now, &mut packet, 1_000_000, RTT);
    assert_eq!(bbr.phase, Phase::Startup);
    round(&mut bbr, &mut now, &mut packet, 2_000_000, RTT + Duration::from_millis(6));
    assert_ne!(bbr.phase, Phase::Startup);
}

#[test]
fn congestion_marks_lower_the_rate_once_a_round_trip() {
    let (mut bbr, mut now, mut packet) = (Bbr::default(), Time::ZERO, 0);
    for _ in 0..12 {
        round(&mut bbr, &mut now, &mut packet, 3_125_000, RTT);
    }
    bbr.on_ecn(now, now - RTT);
    round(&mut bbr, &mut now, &mut packet, 2_000_000, RTT);
    // Marks on packets sent before the rate fell belong to the same congestion.
    bbr.on_ecn(now, now - RTT);
    round(&mut bbr, &mut now, &mut packet, 2_000_000, RTT);
    let expected = (3_125_000.0 * MARK_GAIN) as u64;
    assert!(bbr.rate().abs_diff(expected) <= 1, "{}", bbr.rate());
}
