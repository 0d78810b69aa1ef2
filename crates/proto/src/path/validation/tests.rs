use core::net::Ipv4Addr;

use super::*;

/// Length of a packet to a candidate.
const LEN: usize = 38;

fn at(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

const HOME: u16 = 1;

/// A table that received one packet of 1,000 bytes from port 2.
fn heard() -> (Validation, Time) {
    let (mut table, now) = (Validation::new([5; 32]), Time::from_millis(1_000));
    table.on_packet(now, at(2), at(HOME), 1_000, true);
    (table, now)
}

fn challenge(table: &mut Validation, now: Time) -> (SocketAddr, Token) {
    let errand = table.poll(now, LEN).expect("a challenge is due");
    table.on_sent(errand.address, LEN);
    (errand.address, errand.challenge.expect("a challenge"))
}

#[test]
fn an_answer_from_there_moves_and_gives_the_round_trip() {
    let (mut table, now) = heard();
    let (address, token) = challenge(&mut table, now);
    assert_eq!(address, at(2));
    let later = now + Duration::from_millis(60);
    assert_eq!(table.on_response(later, at(2), [0; 8]), None, "a guess");
    assert_eq!(table.on_response(later, at(HOME), token), None, "from elsewhere");
    let moved = table.on_response(later, at(2), token);
    assert_eq!(moved, Some(Move { address: at(2), rtt: Some(Duration::from_millis(60)) }));
    assert_eq!((table.poll(later, LEN), table.deadline(LEN)), (None, None));
}

#[test]
fn what_came_the_direct_way_since_keeps_the_peer_where_it_is() {
    let (mut table, now) = heard();
    let (_, token) = challenge(&mut table, now);
    table.on_packet(now, at(HOME), at(HOME), 40, true);
    assert_eq!(table.on_response(now, at(2), token), None);
    // Then the highest number comes from there again.
    table.on_packet(now, at(2), at(HOME), 40, true);
    assert!(table.on_response(now, at(2), token).is_some());
}

#[test]
fn an_old_packet_makes_no_candidate() {
    let mut table = Validation::new([5; 32]);
    table.on_packet(Time::ZERO, at(2), at(HOME), 1_000, false);
    assert_eq!((table.poll(Time::ZERO, LEN), table.owes_home()), (None, false));
}

#[test]
fn the_address_in_use_is_challenged_once_for_each_candidate() {
    let (mut table, now) = heard();
    let home = table.take_home().expect("owed");
    assert_ne!(Some(home), table.poll(now, LEN).and_then(|errand| errand.challenge));
    assert_eq!(table.take_home(), None);
    table.on_packet(now, at(2), at(HOME), 40, true);
    assert_eq!(table.take_home(), None);
}

#[test]
fn challenges_keep_their_distance_whatever_the_number_of_candidates() {
    let (mut table, mut now) = heard();
    let end = now + Duration::from_secs(1);
    let mut ports = Vec::new();
    while now < end {
        for port in 2..20 {
            table.on_packet(now, at(port), at(HOME), 1_000, true);
        }
        assert!(table.candidates.len() <= MAX_CANDIDATES);
        while let Some(errand) = table.poll(now, LEN) {
            ports.push(errand.address.port());
        }
        now += Duration::from_millis(1);
    }
    assert_eq!(ports.len(), 10);
}

#[test]
fn candidates_take_turns() {
    let (mut table, mut now) = heard();
    table.on_packet(now, at(3), at(HOME), 1_000, true);
    let ports: Vec<_> = (0..4)
        .map(|_| {
            let (address, _) = challenge(&mut table, now);
            now += CHALLENGE_INTERVAL;
            address.port()
        })
        .collect();
    assert_eq!([ports[0] + ports[1], ports[2], ports[3]], [5, ports[0], ports[1]]);
}

/// The rule of RFC 9000 section 8.1, to the byte: 3 x 30 = 90 bytes allow two packets of 38.
#[test]
fn a_candidate_gets_three_times_what_came_from_it() {
    let (mut table, mut now) = (Validation::new([5; 32]), Time::from_millis(1_000));
    table.on_packet(now, at(2), at(HOME), 30, true);
    let mut packets = 0;
    for _ in 0..10 {
        if table.poll(now, LEN).is_some() {
            table.on_sent(at(2), LEN);
            packets += 1;
        }
        table.on_challenge(at(2), [9; 8]);
        now += CHALLENGE_INTERVAL;
    }
    assert_eq!((packets, table.deadline(LEN)), (2, None));
    table.on_packet(now, at(2), at(HOME), 8, false);
    assert!(table.poll(now, LEN).is_some_and(|errand| errand.echo == Some([9; 8])));
}

#[test]
fn the_silent_are_forgotten() {
    let (mut table, now) = heard();
    let patience = LEAST_TIMEOUT * PATIENCE_TIMEOUTS;
    table.expire(now + patience - Duration::from_nanos(1), Duration::ZERO);
    assert!(table.deadline(LEN).is_some());
    table.expire(now + patience, Duration::ZERO);
    assert_eq!((table.deadline(LEN), table.newest), (None, None));
}
