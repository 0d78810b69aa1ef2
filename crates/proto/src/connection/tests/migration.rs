//! Addresses, ids and keys that change, against a hostile peer.

use super::*;
use crate::path::{IP_UDP_HEADER, MAX_IDS};
use crate::wire::Datagram;

/// The packets sent, decrypted, in sending order: destination, id, frames.
type Heard = Vec<(SocketAddr, ConnectionId, Vec<String>)>;

fn port(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn elsewhere() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(192, 0, 2, 7), 7_700))
}

impl Peer {
    /// Takes all packets that may be sent now.
    fn hear_all(&mut self, us: &mut Connection) -> Heard {
        us.handle_timeout(self.now);
        let (mut buffer, mut heard) = ([0; DATAGRAM], Vec::new());
        while let Some(transmit) = us.poll_transmit(self.now, 1, &mut buffer) {
            let Ok(Datagram::Short { destination }) = Datagram::parse(&buffer[..transmit.len]) else { panic!("short") };
            let opened = self.opening.open(0, &mut buffer[..transmit.len]).expect("authentic");
            let frames = Frames::new(&buffer[opened.payload]).map(|frame| match frame.expect("well formed") {
                Frame::PathChallenge(token) => format!("challenge {token:?}"),
                Frame::PathResponse(token) => format!("echo {token:?}"),
                Frame::NewCid { sequence, retire, id, .. } => format!("id {sequence} {retire} {id}"),
                Frame::Source { .. } => "source".to_owned(),
                Frame::Feedback(_) => "feedback".to_owned(),
                other => format!("{other:?}"),
            });
            heard.push((transmit.destination, destination, frames.collect()));
        }
        let timer = us.poll_timeout();
        assert!(timer.is_none_or(|(at, _)| at > self.now), "{timer:?} is not after {:?}", self.now);
        heard
    }

    /// Answers the challenge that was sent to `to`, from `from`.
    fn answer(&mut self, us: &mut Connection, heard: &Heard, to: SocketAddr, from: SocketAddr) {
        let token = challenge(heard, to).expect("a challenge");
        self.from = from;
        self.say(us, &[Frame::PathResponse(token)]);
    }
}

/// The challenge that was sent to an address.
fn challenge(heard: &Heard, to: SocketAddr) -> Option<[u8; 8]> {
    let frames = heard.iter().filter(|(destination, ..)| *destination == to).flat_map(|(.., frames)| frames);
    let numbers = frames.filter_map(|frame| frame.strip_prefix("challenge [")?.strip_suffix(']')).next()?;
    let bytes: Vec<u8> = numbers.split(", ").map(|byte| byte.parse().expect("a byte")).collect();
    bytes.try_into().ok()
}

/// UDP payload bytes sent to an address within `time`, while there is data to send.
fn sent_to(peer: &mut Peer, us: &mut Connection, address: SocketAddr, time: Duration) -> usize {
    let (mut buffer, mut bytes, end) = ([0; DATAGRAM], 0, peer.now + time);
    while peer.now < end {
        us.handle_timeout(peer.now);
        while let Some(transmit) = us.poll_transmit(peer.now, 1, &mut buffer) {
            bytes += if transmit.destination == address { transmit.len } else { 0 };
        }
        peer.wait(Duration::from_millis(1));
    }
    bytes
}

#[test]
fn a_peer_at_another_port_is_followed_once_it_answered_from_there() {
    let (mut us, mut peer) = connected(Config::default());
    peer.hear(&mut us);
    peer.from = port(9);
    peer.say(&mut us, &[Frame::Ping]);
    let heard = peer.hear_all(&mut us);
    assert!(challenge(&heard, port(9)).is_some(), "{heard:?}");
    assert!(challenge(&heard, address()).is_some(), "the address in use is asked too: {heard:?}");
    assert_eq!(us.remote(), address());
    let window = us.stats().rate.window;
    peer.answer(&mut us, &heard, port(9), port(9));
    assert_eq!((us.remote(), us.stats().moves, us.stats().rate.window), (port(9), 1, window));
    assert!(peer.hear_all(&mut us).iter().all(|(to, ..)| *to == port(9)));
}

#[test]
fn what_was_in_flight_to_the_old_address_is_sent_again_to_the_new() {
    let (mut us, mut peer) = connected(Config::default());
    peer.hear(&mut us);
    let stream = us.open_stream().expect("allowed");
    us.write(stream, b"to where you were").expect("room");
    peer.wait(Duration::from_millis(20));
    assert!(peer.hear_all(&mut us).iter().any(|(.., frames)| frames[0] == "source"));
    peer.from = port(9);
    peer.say(&mut us, &[Frame::Ping]);
    let heard = peer.hear_all(&mut us);
    let lossless = us.path.losses.estimator.overall();
    peer.answer(&mut us, &heard, port(9), port(9));
    let heard = peer.hear_all(&mut us);
    assert!(heard.iter().any(|(to, _, frames)| *to == port(9) && frames[0] == "source"), "{heard:?}");
    // A move does not count as loss on the path.
    assert_eq!(us.path.losses.estimator.overall(), lossless);
}

/// RFC 9000 section 9.4: another host is a new path, another port is the same path.
#[test]
fn another_host_begins_a_path_anew_and_another_port_does_not() {
    for (to, kept) in [(port(9), true), (elsewhere(), false)] {
        let (mut us, mut peer) = connected(Config::default());
        let newest = *peer.hear(&mut us).last().expect("the first packet");
        peer.wait(Duration::from_millis(80));
        peer.acknowledge(&mut us, &[0..=newest]);
        assert_eq!(us.path.rtt.smoothed(), Duration::from_millis(80));
        peer.from = to;
        peer.say(&mut us, &[Frame::Ping]);
        let heard = peer.hear_all(&mut us);
        peer.wait(Duration::from_millis(30));
        peer.answer(&mut us, &heard, to, to);
        assert_eq!(us.remote(), to);
        assert_eq!(us.path.rtt.smoothed(), Duration::from_millis(if kept { 80 } else { 30 }));
    }
}

/// Spoofed-source migration, as in the threat model. An attacker sends copies of packets from its own
/// address, or claims the address of a victim. That address gets a few small packets, at most three times the
/// bytes received, and the connection stays.
#[test]
fn an_address_that_does_not_answer_gets_three_times_its_bytes_and_no_more() {
    for pings in [1, 3, 40] {
        let (mut us, mut peer) = connected(Config::default());
        peer.hear(&mut us);
        let stream = us.open_stream().expect("allowed");
        us.write(stream, &[1; 2_000]).expect("room");
        peer.from = elsewhere();
        for _ in 0..pings {
            peer.say(&mut us, &[Frame::Ping]);
        }
        let received = pings * (crate::wire::SHORT_HEADER_LEN + TAG_LEN + 1);
        let sent = sent_to(&mut peer, &mut us, elsewhere(), Duration::from_secs(20));
        assert!((1..=3 * received).contains(&sent), "{sent} bytes for {received}");
        // One packet in 100 ms for three timeouts of 1.02 s, then the address is forgotten.
        assert!(sent <= 31 * 38, "{sent} bytes");
        assert_eq!((us.remote(), us.stats().moves), (address(), 0));
    }
}

#[test]
fn a_thief_who_passes_the_challenge_on_wins_nothing_while_the_peer_speaks_for_itself() {
    let (mut us, mut peer) = connected(Config::default());
    peer.hear(&mut us);
    // A copy of the peer's packet arrives before the original.
    peer.from = elsewhere();
    peer.say(&mut us, &[Frame::Ping]);
    let heard = peer.hear_all(&mut us);
    // The peer answers the challenge from its own address, which the thief cannot prevent.
    peer.answer(&mut us, &heard, address(), address());
    assert_eq!(us.remote(), address());
    // The thief forwarded its challenge. The peer answers that too, but from its own address.
    peer.answer(&mut us, &heard, elsewhere(), address());
    assert_eq!((us.remote(), us.stats().moves), (address(), 0));
}

#[test]
fn a_stolen_connection_comes_home_with_the_next_packet_that_takes_the_direct_way() {
    let (mut us, mut peer) = connected(Config::default());
    peer.hear(&mut us);
    // A thief in the middle: all packets go through its address.
    peer.from = elsewhere();
    peer.say(&mut us, &[Frame::Ping]);
    let heard = peer.hear_all(&mut us);
    peer.answer(&mut us, &heard, elsewhere(), elsewhere());
    assert_eq!(us.remote(), elsewhere());
    peer.from = address();
    peer.wait(Duration::from_millis(100));
    peer.say(&mut us, &[Frame::Ping]);
    let heard = peer.hear_all(&mut us);
    peer.answer(&mut us, &heard, address(), address());
    assert_eq!(us.remote(), address());
}

#[test]
fn a_replayed_or_forged_packet_from_elsewhere_is_not_answered() {
    let (mut us, mut peer) = connected(Config::default());
    peer.hear(&mut us);
    let mut datagram = [0; 100];
    let mut w = Writer::new(&mut datagram);
    write_short_header(&mut w, peer.us, peer.next, 0).expect("room");
    Frame::Ping.emit(&mut w).expect("room");
    let len = w.len() + TAG_LEN;
    peer.sealing.seal(0, peer.next, &mut datagram[..len]).expect("sealed");
    for (from, forged) in [(elsewhere(), true), (address(), false), (elsewhere(), false)] {
        let mut copy = datagram;
        copy[20] ^= u8::from(forged);
        us.handle_datagram(Received { at: peer.now, from, to: None, ecn: None, datagram: &mut copy[..len] });
        peer.wait(Duration::from_millis(30));
        assert!(peer.hear_all(&mut us).iter().all(|(to, ..)| *to == address()));
    }
}

#[test]
fn a_challenge_is_echoed_to_where_it_came_from() {
    let (mut us, mut peer) = connected(Config::default());
    peer.hear(&mut us);
    for from in [address(), port(9)] {
        peer.from = from;
        peer.say(&mut us, &[Frame::PathChallenge([4; 8])]);
        let heard = peer.hear_all(&mut us);
        let echoes = heard.iter().filter(|(.., frames)| frames.contains(&format!("echo {:?}", [4; 8])));
        assert_eq!(echoes.map(|(to, ..)| *to).collect::<Vec<_>>(), [from]);
    }
}

/// Ids of both sides: the peer uses a new id of ours, so we use a new id of the peer.
#[test]
fn who_changes_its_name_is_called_by_another_and_the_old_names_are_forgotten() {
    let (mut us, mut peer) = connected(Config::default());
    let ours: Vec<ConnectionId> = (10..13).map(|n| ConnectionId([n; 8])).collect();
    ours.iter().for_each(|&id| us.give_id(id));
    assert!(!us.wants_id());
    let heard = peer.hear_all(&mut us);
    let told: Vec<_> = heard.iter().flat_map(|(.., frames)| frames).filter(|frame| frame.starts_with("id")).collect();
    assert_eq!(told, [&format!("id 1 0 {}", ours[0]), &format!("id 2 0 {}", ours[1]), &format!("id 3 0 {}", ours[2])]);
    let theirs = ConnectionId([9; 8]);
    peer.say(&mut us, &[Frame::NewCid { sequence: 1, retire: 0, path: 0, id: theirs }]);

    (peer.us, peer.from) = (ours[0], elsewhere());
    peer.say(&mut us, &[Frame::Ping]);
    let heard = peer.hear_all(&mut us);
    assert!(heard.iter().all(|&(_, to, _)| to == theirs), "{heard:?}");
    assert!(us.wants_id());
    assert_eq!(us.poll_gone_id(), None, "packets to it may be on their way");
    peer.wait(Duration::from_secs(30));
    us.handle_timeout(peer.now);
    assert_eq!(us.poll_gone_id(), Some(ConnectionId([1; 8])));
    assert_eq!(us.local_ids().collect::<Vec<_>>(), ours);
}

#[test]
fn a_lost_new_id_is_told_again() {
    let (mut us, mut peer) = connected(Config::default());
    us.give_id(ConnectionId([10; 8]));
    let told = |heard: &Heard| heard.iter().flat_map(|(.., frames)| frames).any(|frame| frame.starts_with("id 1"));
    assert!(told(&peer.hear_all(&mut us)));
    let number = us.path.flight.next_number();
    // Later packets arrive, but not that one.
    for _ in 0..8 {
        peer.say(&mut us, &[Frame::PathChallenge([4; 8])]);
        assert!(!told(&peer.hear_all(&mut us)));
    }
    let newest = us.path.flight.next_number() - 1;
    peer.wait(Duration::from_millis(50));
    peer.acknowledge(&mut us, &[number..=newest]);
    assert!(told(&peer.hear_all(&mut us)));
}

#[test]
fn a_peer_that_gives_too_many_ids_is_left() {
    let (mut us, mut peer) = connected(Config::default());
    for n in 1..=MAX_IDS as u8 {
        assert_eq!(close_reason(&mut us), None);
        peer.say(&mut us, &[Frame::NewCid { sequence: n.into(), retire: 0, path: 0, id: ConnectionId([n + 10; 8]) }]);
    }
    assert_eq!(close_reason(&mut us), Some(CloseReason::Fault(CloseCode::Protocol)));
}

#[test]
fn a_key_is_renewed_by_age_and_by_a_setting() {
    for (packets, wait) in [(2, Duration::ZERO), (1 << 22, Duration::from_secs(301))] {
        let config = Config::builder()
            .packets_per_key(packets)
            .idle_timeout(Duration::from_secs(600))
            .build()
            .expect("in range");
        let (mut us, mut peer) = connected(config);
        peer.say(&mut us, &[Frame::Ping]);
        peer.wait(Duration::from_millis(50));
        let newest = *peer.hear(&mut us).last().expect("FEEDBACK");
        peer.acknowledge(&mut us, &[newest..=newest]);
        assert_eq!(peer.opening.phase(), 0);
        peer.wait(wait);
        peer.say(&mut us, &[Frame::Ping]);
        peer.wait(Duration::from_millis(50));
        peer.hear(&mut us);
        assert_eq!((peer.opening.phase(), us.stats().key_updates), (1, 1));
    }
}

#[test]
fn an_idle_connection_is_kept_alive_and_only_if_asked() {
    for (interval, at_least) in [(None, 0), (Some(Duration::from_secs(10)), 5)] {
        let (mut us, mut peer) = connected(Config::builder().keep_alive(interval).build().expect("in range"));
        let newest = *peer.hear(&mut us).last().expect("the first packet");
        peer.acknowledge(&mut us, &[0..=newest]);
        let (mut pings, mut bytes) = (0, us.stats().bytes.wire_sent);
        for _ in 0..580 {
            peer.wait(Duration::from_millis(100));
            if let Some(&newest) = peer.hear(&mut us).last() {
                peer.acknowledge(&mut us, &[newest..=newest]);
                pings += 1;
            }
        }
        bytes = us.stats().bytes.wire_sent - bytes;
        // Only MTU probes are sent beside the PINGs.
        assert!((at_least..=at_least + 1).contains(&pings), "{pings} pings");
        assert!(bytes <= (pings * (IP_UDP_HEADER + 40) + 1_500) as u64, "{bytes} bytes");
    }
}
