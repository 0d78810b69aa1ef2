//! The handshake in virtual time over a lossy link: rows H1 to H4 of docs/survival.md, silence, replay.
//! `flood.rs` has H5, `keys.rs` has H6 and H7.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::crypto::{Aead, AwsLc, HeaderKey, PacketKey, Provider, Secret};
use tidewire_proto::handshake::{HandshakeError, Initiator, Parameters, Responder, Session, Terms};
use tidewire_proto::wire::{ConnectionId, HELLO_LEN, REPLY_MAX, SHORT_HEADER_LEN, TAG_LEN, Writer, write_short_header};

const RTT: Duration = Duration::from_millis(50);

/// SplitMix64, which decides the losses of the link.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn lost(&mut self, loss: f64) -> bool {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64 <= loss && loss > 0.0
    }
}

/// Native ciphers that report AES hardware as the test says.
struct Told(bool);

impl Provider for Told {
    fn aes_hardware(&self) -> bool {
        self.0
    }

    fn packet_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn PacketKey> {
        AwsLc.packet_key(aead, key)
    }

    fn header_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn HeaderKey> {
        AwsLc.header_key(aead, key)
    }
}

fn secret() -> Secret {
    Secret::new([0x5a; 32])
}

fn client() -> SocketAddr {
    "192.0.2.1:4000".parse().unwrap()
}

fn seed(n: u64) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&n.to_be_bytes());
    seed
}

fn initiator(n: u64) -> Initiator {
    let parameters = Parameters::default();
    Initiator::new(&secret(), ConnectionId([1; 8]), &parameters, Arc::new(Told(true)), seed(n), Time::ZERO)
}

fn responder(n: u64) -> Responder {
    Responder::new(secret(), Arc::new(Told(true)), seed(!n))
}

fn terms() -> Terms {
    Terms { parameters: Parameters::default(), source: ConnectionId([2; 8]), known: false }
}

fn provider() -> Arc<dyn Provider> {
    Arc::new(Told(true))
}

fn hello_of(initiator: &mut Initiator, now: Time) -> Vec<u8> {
    let mut out = vec![0; HELLO_LEN];
    assert_eq!(initiator.poll_transmit(now, &mut out), Some(HELLO_LEN));
    out
}

fn handle(responder: &mut Responder, now: Time, hello: &[u8]) -> Option<Session> {
    responder.handle_hello(now, client(), hello, &terms()).map(|accepted| accepted.session(&provider()))
}

fn replies(responder: &mut Responder, now: Time) -> Vec<Vec<u8>> {
    let mut replies = Vec::new();
    let mut out = [0; REPLY_MAX];
    while let Some((to, len)) = responder.poll_transmit(now, &mut out) {
        assert_eq!(to, client().into());
        replies.push(out[..len].to_vec());
    }
    replies
}

/// The packets of one run, and the time at which its initiator had a session.
#[derive(Debug)]
struct Run {
    done: Option<Time>,
    sent: [Vec<(Time, usize)>; 2],
}

/// One handshake in virtual time over a link with independent losses.
fn run(n: u64, loss_to_responder: f64, loss_to_initiator: f64) -> Run {
    let mut dice = Dice(n);
    let (mut initiator, mut responder) = (initiator(n), responder(n));
    let mut wire = BinaryHeap::new();
    let mut now = Time::ZERO;
    let mut result = Run { done: None, sent: [Vec::new(), Vec::new()] };
    let mut out = [0; HELLO_LEN];
    let mut order = 0;
    loop {
        while let Some(len) = initiator.poll_transmit(now, &mut out) {
            result.sent[0].push((now, len));
            order += 1;
            if !dice.lost(loss_to_responder) {
                wire.push(Reverse((now + RTT / 2, order, false, out[..len].to_vec())));
            }
        }
        while let Some((_, len)) = responder.poll_transmit(now, &mut out) {
            result.sent[1].push((now, len));
            order += 1;
            if !dice.lost(loss_to_initiator) {
                wire.push(Reverse((now + RTT / 2, order, true, out[..len].to_vec())));
            }
        }
        if initiator.expired(now) {
            return result;
        }
        let arrival = wire.peek().map(|Reverse((at, ..))| *at);
        let timer = [initiator.poll_timeout(), responder.poll_timeout()].into_iter().flatten().min();
        let next = arrival.into_iter().chain(timer).min().expect("a handshake always waits for something");
        assert!(next > now || arrival == Some(next), "a timer that is due and does nothing");
        now = next;
        responder.handle_timeout(now);
        while wire.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Reverse((_, _, to_initiator, datagram)) = wire.pop().unwrap();
            if !to_initiator {
                handle(&mut responder, now, &datagram);
            } else if initiator.handle_reply(&datagram).is_ok() {
                result.done = Some(now);
                return result;
            }
        }
    }
}

fn percentile(times: &[Time], p: f64) -> Duration {
    times[((times.len() - 1) as f64 * p).ceil() as usize].since(Time::ZERO)
}

/// All runs of one cell, sorted. A failed run counts as infinitely late.
fn cell(runs: u64, loss: f64) -> Vec<Time> {
    let runs = if tidewire_testing::few_seeds() { runs / 10 } else { runs };
    let mut times: Vec<_> = (0..runs).map(|n| run(n, loss, loss).done.unwrap_or(Time::NEVER)).collect();
    times.sort_unstable();
    assert_ne!(times.last(), Some(&Time::NEVER), "a handshake failed within 30 s at {loss}");
    println!(
        "loss {loss}: p50 {:?} p99 {:?} p99.9 {:?} worst {:?}",
        percentile(&times, 0.5),
        percentile(&times, 0.99),
        percentile(&times, 0.999),
        percentile(&times, 1.0)
    );
    times
}

#[test]
fn h1_at_30_percent() {
    let times = cell(20_000, 0.3);
    assert!(percentile(&times, 0.5) <= RTT * 6 / 5);
    assert!(percentile(&times, 0.99) <= RTT + Duration::from_millis(750));
    if times.len() == 20_000 {
        assert!(percentile(&times, 0.999) <= RTT + Duration::from_secs(2));
    }
}

#[test]
fn h1_at_50_percent() {
    let times = cell(20_000, 0.5);
    assert!(percentile(&times, 0.99) <= RTT + Duration::from_secs(3));
}

#[test]
fn h2_one_round_trip_without_loss() {
    assert_eq!(run(1, 0.0, 0.0).done, Some(Time::ZERO + RTT));
}

#[test]
fn h4_few_datagrams_in_the_first_second() {
    for n in 0..50 {
        let run = run(n, 0.0, 1.0);
        assert_eq!(run.done, None);
        for sent in run.sent {
            let first: Vec<_> = sent.iter().filter(|(at, _)| *at < Time::from_millis(1_000)).collect();
            assert!(first.len() <= 8, "{first:?}");
            assert!(first.iter().map(|(_, len)| len).sum::<usize>() <= 2_400, "{first:?}");
        }
    }
}

#[test]
fn expires_exactly_at_its_deadline() {
    let run = run(3, 1.0, 1.0);
    let times: Vec<_> = run.sent[0].iter().map(|(at, _)| *at).collect();
    assert!(times.iter().all(|at| *at < Time::from_millis(30_000)));
    for pair in times.chunks_exact(2) {
        assert_eq!(pair[1].since(pair[0]), Duration::from_millis(10));
    }
    let mut wait = 250.0;
    for pair in times.chunks_exact(2).collect::<Vec<_>>().windows(2) {
        let jitter = pair[1][0].since(pair[0][0]).as_secs_f64() * 1e3 / wait;
        assert!((0.749..=1.251).contains(&jitter), "{jitter} after {wait} ms");
        wait = f64::min(wait * 1.5, 2_000.0);
    }
    let initiator = initiator(3).give_up_after(Duration::from_secs(2));
    assert!(!initiator.expired(Time(1_999_999_999)));
    assert!(initiator.expired(Time(2_000_000_000)));
}

/// A datagram sealed by one side opens on the other, in both directions.
fn talk(a: &mut Session, b: &mut Session) {
    assert_eq!((a.local, a.remote, a.aead), (b.remote, b.local, b.aead));
    for _ in 0..2 {
        let mut packet = vec![1; SHORT_HEADER_LEN + 100 + TAG_LEN];
        let number = a.sealing.next_packet_number();
        write_short_header(&mut Writer::new(&mut packet), a.remote, number, 9).unwrap();
        a.sealing.seal(0, number, &mut packet).unwrap();
        let opened = b.opening.open(0, &mut packet).unwrap();
        assert_eq!(packet[opened.payload], [1; 100]);
        std::mem::swap(a, b);
    }
}

#[test]
fn sessions_agree_for_every_pair_of_machines() {
    for (ours, theirs) in [(true, true), (true, false), (false, true), (false, false)] {
        let mine = Parameters { max_span: 77, streams: 5, ..Parameters::default() };
        let yours = Parameters { max_symbol: 9_000, idle_timeout_ms: 0, ..Parameters::default() };
        let local = ConnectionId([1; 8]);
        let mut initiator = Initiator::new(&secret(), local, &mine, Arc::new(Told(ours)), seed(1), Time::ZERO);
        let mut responder = Responder::new(secret(), Arc::new(Told(theirs)), seed(2));
        let hello = hello_of(&mut initiator, Time::ZERO);
        let accepted = responder.handle_hello(Time::ZERO, client(), &hello, &Terms { parameters: yours, ..terms() });
        let mut theirs_session = accepted.unwrap().session(&provider());
        let reply = replies(&mut responder, Time::ZERO).remove(0);
        assert!(reply.len() <= REPLY_MAX);
        let mut session = initiator.handle_reply(&reply).unwrap();
        let expected = if ours && theirs { Aead::Aes256Gcm } else { Aead::ChaCha20Poly1305 };
        assert_eq!(session.aead, expected);
        assert_eq!((session.peer, theirs_session.peer), (yours, mine));
        talk(&mut session, &mut theirs_session);
        assert_eq!(initiator.handle_reply(&reply).err(), Some(HandshakeError::Finished));
        assert_eq!(initiator.poll_timeout(), None);
    }
}

#[test]
fn a_forged_reply_does_not_kill_the_handshake() {
    let (mut initiator, mut responder) = (initiator(1), responder(1));
    let hello = hello_of(&mut initiator, Time::ZERO);
    let mut theirs = handle(&mut responder, Time::ZERO, &hello).unwrap();
    let reply = replies(&mut responder, Time::ZERO).remove(0);
    for bit in 0..reply.len() * 8 {
        let mut forged = reply.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let error = initiator.handle_reply(&forged).unwrap_err();
        assert!(matches!(error, HandshakeError::Mac | HandshakeError::NotForUs), "bit {bit}: {error}");
    }
    for len in 0..reply.len() {
        initiator.handle_reply(&reply[..len]).unwrap_err();
    }
    // A valid REPLY to another HELLO of the same secret passes the MAC check, but its Noise message does not
    // open.
    let mut other = self::initiator(2);
    let other_hello = hello_of(&mut other, Time::ZERO);
    handle(&mut responder, Time::ZERO, &other_hello).unwrap();
    let crossed = replies(&mut responder, Time::ZERO).remove(0);
    assert_eq!(initiator.handle_reply(&crossed).err(), Some(HandshakeError::Noise));
    let mut session = initiator.handle_reply(&reply).unwrap();
    talk(&mut session, &mut theirs);
}

#[test]
fn strangers_get_silence_and_cost_no_noise() {
    let mut responder = responder(1);
    let hello = hello_of(&mut initiator(1), Time::ZERO);
    let mut datagrams: Vec<Vec<u8>> = (0..hello.len()).map(|len| hello[..len].to_vec()).collect();
    datagrams.push([&hello[..], &[0]].concat());
    // Every bit except those of mac2, which is ignored while there is no load.
    datagrams.extend((0..(HELLO_LEN - 16) * 8).map(|bit| {
        let mut forged = hello.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        forged
    }));
    let mut dice = Dice(7);
    datagrams.extend((0..2_000).map(|n| (0..n % 400).map(|_| dice.roll() as u8).collect()));
    let parameters = Parameters::default();
    let wrong = Secret::new([0x5b; 32]);
    let mut stranger =
        Initiator::new(&wrong, ConnectionId([1; 8]), &parameters, Arc::new(Told(true)), seed(9), Time::ZERO);
    datagrams.push(hello_of(&mut stranger, Time::ZERO));
    for datagram in &datagrams {
        assert!(handle(&mut responder, Time::ZERO, datagram).is_none());
        assert!(replies(&mut responder, Time::from_millis(20)).is_empty());
    }
    let stats = *responder.stats();
    assert_eq!(stats.received, datagrams.len() as u64);
    assert_eq!(stats.malformed + stats.strangers, stats.received);
    assert!(stats.strangers > 2_000 && stats.malformed > 2_000, "{stats:?}");
    assert_eq!((stats.noise, stats.accepted, stats.replies), (0, 0, 0));
    assert_eq!((responder.half_open(), responder.poll_timeout()), (0, None));
}

#[test]
fn a_repeated_hello_gets_the_same_reply_but_not_too_often() {
    let mut responder = responder(1);
    let hello = hello_of(&mut initiator(1), Time::ZERO);
    let ms = Time::from_millis;
    assert!(handle(&mut responder, ms(0), &hello).is_some());
    let first = replies(&mut responder, ms(0));
    assert_eq!(first.len(), 1);
    assert_eq!(responder.poll_timeout(), Some(ms(10)));
    assert_eq!(replies(&mut responder, ms(9)).len(), 0);
    assert!(handle(&mut responder, ms(10), &hello).is_none());
    assert_eq!(replies(&mut responder, ms(10)), [&first[..], &first[..]].concat(), "one second copy, one first");
    assert_eq!(replies(&mut responder, ms(20)), first);
    let mut count = 4;
    for at in 21..1_000 {
        assert!(handle(&mut responder, ms(at), &hello).is_none());
        count += replies(&mut responder, ms(at)).len();
    }
    assert_eq!(count, 8, "in the first second");
    // Later a flood of copies, without a poll in between, waits as four copies.
    for _ in 0..100 {
        assert!(handle(&mut responder, ms(1_000), &hello).is_none());
    }
    assert_eq!(replies(&mut responder, ms(1_100)).len(), 4);
    assert_eq!(responder.half_open(), 1);
    // After 4 s the HELLO is forgotten: the same bytes make a new session with other keys.
    assert_eq!(responder.poll_timeout(), Some(ms(4_000)));
    responder.handle_timeout(ms(3_999));
    assert_eq!(responder.half_open(), 1);
    assert!(handle(&mut responder, ms(4_000), &hello).is_some());
    assert_ne!(replies(&mut responder, ms(4_000)), first);
}

/// Each address gets its own answers, and no more bytes than it sent.
#[test]
fn h3_an_address_gets_no_more_than_it_sent() {
    let mut responder = responder(1);
    let mut out = [0; REPLY_MAX];
    let runs = 128;
    let victim: SocketAddr = "198.51.100.1:1".parse().unwrap();
    let mut got = BTreeMap::new();
    for n in 0..runs {
        let hello = hello_of(&mut initiator(n), Time::ZERO);
        let from = SocketAddr::from(([192, 0, 2, 7], n as u16));
        // Sent again from the victim's address, as in a replay.
        for from in [from, from, victim] {
            responder.handle_hello(Time::ZERO, from, &hello, &terms());
        }
        while let Some((to, len)) = responder.poll_transmit(Time::from_millis(10), &mut out) {
            *got.entry(to.remote).or_insert(0) += len;
        }
    }
    let stats = responder.stats();
    assert_eq!((stats.accepted, stats.repeated, stats.unproven), (runs, 2 * runs, 0));
    assert_eq!(stats.replies, 6 * runs);
    for (to, bytes) in got {
        let sent = if to == victim { runs as usize * HELLO_LEN } else { 2 * HELLO_LEN };
        assert!(bytes <= sent, "{bytes} bytes to {to}, which sent {sent}");
    }
    responder.handle_timeout(Time::from_millis(5_000));
    assert_eq!((responder.half_open(), responder.poll_timeout()), (0, None));
}

/// An attacker copies a client's HELLO, sends it first, and then sends it from many addresses. The client
/// still gets an answer to each of its own copies.
#[test]
fn who_copies_a_hello_and_is_first_does_not_use_up_the_answers() {
    for addresses in [1, 3, 50] {
        let mut responder = responder(1);
        let hello = hello_of(&mut initiator(1), Time::ZERO);
        let attacker = |n: u64| SocketAddr::from(([203, 0, 113, (n % addresses) as u8], 4_000));
        let mut out = [0; REPLY_MAX];
        let mut answers = 0;
        for ms in 0..900 {
            let now = Time::from_millis(ms);
            // Before the client, after it, and so many that no poll comes between.
            for n in 0..20 {
                responder.handle_hello(now, attacker(ms + n), &hello, &terms());
            }
            if [20, 30, 270, 280].contains(&ms) {
                responder.handle_hello(now, client(), &hello, &terms());
                for n in 0..20 {
                    responder.handle_hello(now, attacker(ms + n), &hello, &terms());
                }
            }
            while let Some((to, _)) = responder.poll_transmit(now, &mut out) {
                answers += u32::from(to == client().into());
            }
        }
        assert_eq!(answers, 8, "{addresses} addresses");
        assert_eq!(responder.stats().accepted, 1);
    }
}

/// With more copies than can wait, the client loses at most the second of its REPLYs.
#[test]
fn a_flood_of_copies_takes_the_second_reply_at_most() {
    let mut responder = responder(1);
    let hello = hello_of(&mut initiator(1), Time::ZERO);
    let (mut out, mut answers, mut most) = ([0; REPLY_MAX], 0, 0);
    for ms in 0..20 {
        let now = Time::from_millis(ms);
        for batch in 0..10 {
            for n in 0..100 {
                let from = SocketAddr::from(([203, 0, batch, n], 4_000));
                responder.handle_hello(now, from, &hello, &terms());
            }
            if ms == 15 && batch == 5 {
                responder.handle_hello(now, client(), &hello, &terms());
            }
            let mut waited = 0;
            while let Some((to, _)) = responder.poll_transmit(now, &mut out) {
                answers += u32::from(to == client().into());
                waited += 1;
            }
            most = most.max(waited);
        }
    }
    assert!((1..=2).contains(&answers), "{answers} answers");
    assert!(most <= 2 * 1_024, "{most} copies at once");
}
