//! Fresh keys between two endpoints over a link with loss and reordering. A thief has the first keys of both
//! directions and sees every packet.

use std::collections::{BTreeMap, BTreeSet};

use super::super::StreamId;
use super::*;
use crate::crypto::PrivateKey;
use crate::endpoint::{ConnectionHandle, Endpoint, EndpointConfig};
use crate::handshake::{Credentials, KeyCredentials, Renewal};
use crate::wire::Datagram;

/// Random numbers by SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

struct End {
    endpoint: Endpoint,
    address: SocketAddr,
    handle: Option<ConnectionHandle>,
    /// The key with which the thief opens this end's packets.
    stolen: Option<OpeningKey>,
    stream: Option<StreamId>,
    written: u64,
    read: u64,
    /// Number of packets that the thief could open, and that it could not.
    opened: u64,
    safe: u64,
}

impl End {
    fn new(credentials: Credentials, config: Config, nth: u8, seed: u64) -> Self {
        let mut bytes = [nth; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let config = EndpointConfig { credentials, listen: nth == 2, connection: config, provider: Arc::new(AwsLc) };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 7_000 + u16::from(nth)));
        let endpoint = Endpoint::new(config, bytes);
        Self { endpoint, address, handle: None, stolen: None, stream: None, written: 0, read: 0, opened: 0, safe: 0 }
    }

    fn connection(&mut self) -> Option<&mut Connection> {
        self.endpoint.connection_mut(self.handle?)
    }

    /// Lets the thief try a sent packet: it can open all packets before the first exchange and none after it.
    fn spied(&mut self, datagram: &[u8]) {
        let fresh = self.connection().map_or(0, |us| us.stats().fresh_keys);
        let Some(stolen) = self.stolen.as_mut().filter(|_| datagram[0] & 0x80 == 0) else { return };
        let opened = stolen.open(0, &mut datagram.to_vec()).is_ok();
        assert_eq!(opened, fresh == 0, "after {fresh} exchanges");
        (self.opened, self.safe) = (self.opened + u64::from(opened), self.safe + u64::from(!opened));
    }

    /// Handles events, reads and writes.
    fn act(&mut self, now: Time) {
        while let Some((handle, event)) = self.endpoint.poll_event() {
            match event {
                Event::Connected => {
                    self.handle = Some(handle);
                    let keys = self.connection().and_then(|us| us.security.keys.as_ref()).expect("connected");
                    self.stolen = Some(keys.sealing.stolen());
                    self.stream = self.connection().and_then(|us| us.open_stream().ok());
                }
                Event::Closed(reason) => panic!("{reason:?} at {now:?}"),
                _ => {}
            }
        }
        let (Some(ours), written, mut read) = (self.stream, self.written, self.read) else { return };
        let theirs = StreamId(ours.0 ^ 1);
        let Some(us) = self.connection() else { return };
        let piece: Vec<u8> = (written..written + 300).map(byte).collect();
        let took = us.write(ours, &piece).unwrap_or(0) as u64;
        let mut buffer = [0; 4_096];
        while let Ok(n @ 1..) = us.read(now, theirs, &mut buffer) {
            assert!(buffer[..n].iter().zip(read..).all(|(&got, at)| got == byte(at)), "wrong bytes from {read} on");
            read += n as u64;
        }
        (self.written, self.read) = (written + took, read);
    }
}

/// Runs two ends for eight seconds. `loss` percent of the datagrams are lost, and the others take 10 to 40
/// ms.
fn run(credentials: [Credentials; 2], peer: Option<&crate::crypto::PublicKey>, loss: u64, seed: u64) -> [End; 2] {
    let config = Config::builder()
        .fresh_keys_after(Duration::from_secs(1))
        .packets_per_key(20 + seed % 300)
        .max_rate(Some(1_000_000))
        .build()
        .expect("in range");
    let [near, far] = credentials;
    let mut ends = [End::new(near, config.clone(), 1, seed), End::new(far, config, 2, seed)];
    let (mut dice, mut now, to) = (Dice(seed), Time::from_millis(1), ends[1].address);
    let connect = |end: &mut End| match peer {
        Some(peer) => end.endpoint.connect_to(now, to, peer),
        None => end.endpoint.connect(now, to),
    };
    ends[0].handle = Some(connect(&mut ends[0]).expect("credentials fit"));
    let mut wire: BTreeMap<(Time, u64), (usize, Vec<u8>)> = BTreeMap::new();
    let (mut buffer, mut order) = ([0; DATAGRAM], 0);
    let until = now + Duration::from_secs(8);
    while now < until {
        now += Duration::from_millis(1);
        while let Some(entry) = wire.first_entry().filter(|entry| entry.key().0 <= now) {
            let (end, mut datagram) = entry.remove();
            let from = ends[1 - end].address;
            let received = Received { at: now, from, to: None, ecn: None, datagram: &mut datagram };
            ends[end].endpoint.handle_datagram(received);
        }
        for (nth, end) in ends.iter_mut().enumerate() {
            end.endpoint.handle_timeout(now);
            end.act(now);
            while let Some(transmit) = end.endpoint.poll_transmit(now, 1, &mut buffer) {
                end.spied(&buffer[..transmit.len]);
                order += 1;
                if dice.below(100) >= loss {
                    let at = now + Duration::from_millis(10 + dice.below(30));
                    wire.insert((at, order), (1 - nth, buffer[..transmit.len].to_vec()));
                }
            }
            let due = end.endpoint.poll_timeout();
            assert!(due.is_none_or(|(at, _)| at > now), "{due:?} was served at {now:?}");
        }
    }
    ends
}

/// Every byte arrives, and both ends take keys from several exchanges, between ordinary updates. A thief who
/// stole the first keys reads nothing that an end sends after its first exchange.
#[test]
fn fresh_keys_heal_a_session_and_lose_no_byte() {
    let (near, far) = (PrivateKey::new([1; 32]), PrivateKey::new([2; 32]));
    let mut listener = KeyCredentials::new(far.clone());
    listener.authorized = Arc::new(BTreeSet::from([near.public()]));
    let key = [Credentials::Key(KeyCredentials::new(near)), Credentials::Key(listener)];
    let psk = [Secret::new([7; 32]).into(), Secret::new([7; 32]).into()];
    let seeds = if tidewire_testing::few_seeds() { 3 } else { 30 };
    for (credentials, peer) in [(psk, None), (key, Some(far.public()))] {
        let (mut exchanges, mut updates) = (0, 0);
        for (loss, seed) in [0, 10, 30].into_iter().flat_map(|loss| (1..=seeds).map(move |seed| (loss, seed))) {
            let mut ends = run(credentials.clone(), peer.as_ref(), loss, seed);
            let stats = ends.each_mut().map(|end| end.connection().expect("alive").stats());
            let what = format!("{loss} % lost, seed {seed}");
            for (end, stats) in ends.iter().zip(&stats) {
                // At 30 % loss an exchange itself may take a second.
                let least = if loss < 30 { 4 } else { 2 };
                assert!((least..=7).contains(&stats.fresh_keys), "{what}: {} exchanges", stats.fresh_keys);
                assert!(end.opened > 5 && end.safe > 50 && end.read > 50_000, "{what}: {} bytes", end.read);
            }
            assert!(stats[0].fresh_keys.abs_diff(stats[1].fresh_keys) <= 1, "{what}");
            exchanges += stats[0].fresh_keys;
            updates += stats[0].key_updates + stats[1].key_updates;
        }
        println!("{exchanges} exchanges between {updates} ordinary updates");
        assert!(updates > 0, "exchanges and updates cross");
    }
}

/// The peer must not answer without a request, begin at the wrong end, use a wrong number or another secret,
/// or begin too soon.
#[test]
fn an_exchange_that_is_not_right_ends_the_connection() {
    let fault = Some(CloseReason::Fault(CloseCode::Protocol));
    let renewal = |secret: u8, seed: u8| Renewal::new((&Secret::new([secret; 32])).into(), Arc::new(AwsLc), [seed; 32]);
    let second = Duration::from_secs(1);
    for (secret, number, wait, right) in [
        (7, 1, second, true),
        (7, 2, second, false),
        (7, 0, second, false),
        (7, 1, second / 2, false),
        (8, 1, second, false),
    ] {
        let (mut us, mut peer) = connected(Config::default());
        us.allow_exchanges(renewal(7, 1));
        let aead = us.security.keys.as_ref().expect("keys").aead;
        let (mut state, message) = renewal(secret, 2).begin(aead, number);
        peer.wait(wait);
        peer.say(&mut us, &[Frame::Rekey { number, message: &message }]);
        assert_eq!(close_reason(&mut us), fault.clone().filter(|_| !right), "{secret} {number} {wait:?}");
        if !right {
            continue;
        }
        // A copy has no effect. The answer is sent once, and it opens.
        peer.say(&mut us, &[Frame::Rekey { number, message: &message }]);
        let mut buffer = [0; DATAGRAM];
        let mut answers = Vec::new();
        while let Some(transmit) = us.poll_transmit(peer.now, 1, &mut buffer) {
            assert!(matches!(Datagram::parse(&buffer[..transmit.len]), Ok(Datagram::Short { .. })));
            let opened = peer.opening.open(0, &mut buffer[..transmit.len]).expect("authentic");
            answers.extend(Frames::new(&buffer[opened.payload]).flatten().filter_map(|frame| match frame {
                Frame::Rekey { number: 1, message } => Some(message.to_vec()),
                _ => None,
            }));
        }
        assert_eq!(answers.len(), 1);
        let fresh = crate::handshake::finish_renewal(&mut state, &answers[0]).expect("the answer opens");
        // Until the peer uses the new key, we keep the old key; then we use the new one.
        peer.sealing.refresh(&fresh.ours);
        peer.opening.refresh(&fresh.theirs);
        peer.say(&mut us, &[Frame::Ping]);
        peer.wait(Duration::from_millis(50));
        assert!(!peer.hear(&mut us).is_empty());
        assert_eq!((us.stats().fresh_keys, peer.opening.phase(), close_reason(&mut us)), (1, 1, None));
        // The next exchange is too soon.
        let (_, message) = renewal(7, 3).begin(aead, 2);
        peer.say(&mut us, &[Frame::Rekey { number: 2, message: &message }]);
        assert_eq!(close_reason(&mut us), fault);
    }
}
