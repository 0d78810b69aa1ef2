//! A flood of HELLOs (docs/survival.md, row H5): no state before the cookie, bounded state after it, and an
//! honest client connects.
//!
//! The flood knows the secret; otherwise the first MAC would end it. It sends copies of one HELLO with
//! different padding, so that each is valid and none was seen before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{Event, Received};
use tidewire_proto::crypto::{AwsLc, MacKey, PrivateKey, Secret};
use tidewire_proto::endpoint::{Endpoint, EndpointConfig};
use tidewire_proto::handshake::{Credentials, Initiator, KeyCredentials, Parameters, open_cookie};
use tidewire_proto::wire::{COOKIE_LEN, ConnectionId, Datagram, HELLO_LEN, LongKind, MAC_LEN};

/// Counts the bytes that each thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: every request goes to the system allocator unchanged; the counter is a plain cell that does not
// allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get() + layout.size() as isize);
        // SAFETY: the caller keeps the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ONE_WAY: Duration = Duration::from_millis(25);
const HONEST: &str = "192.0.2.1:4000";

fn secret() -> Secret {
    Secret::new([0x5a; 32])
}

fn endpoint(credentials: impl Into<Credentials>, listen: bool, seed: u8) -> Endpoint {
    let (credentials, connection) = (credentials.into(), Config::default());
    Endpoint::new(EndpointConfig { credentials, listen, connection, provider: Arc::new(AwsLc) }, [seed; 32])
}

/// An endless series of HELLOs, each valid and new.
struct Flood {
    hello: [u8; HELLO_LEN],
    mac: MacKey,
    count: u32,
}

impl Flood {
    fn new(initiator: &mut Initiator, mac: MacKey, now: Time) -> Self {
        let mut hello = [0; HELLO_LEN];
        initiator.poll_transmit(now, &mut hello).unwrap();
        Self { hello, mac, count: 0 }
    }

    /// Adds mac2 to a HELLO, with the cookie of its answer.
    fn prove(&self, hello: &mut [u8; HELLO_LEN], cookie: &[u8]) {
        let Ok(Datagram::Long(packet)) = Datagram::parse(cookie) else { panic!("no COOKIE") };
        let (bytes, mac2) = hello.split_at_mut(HELLO_LEN - MAC_LEN);
        let cookie = open_cookie(&packet, &self.mac, bytes.last_chunk().unwrap()).expect("the cookie opens");
        mac2.copy_from_slice(&cookie.tag(bytes));
    }

    /// The next HELLO, and a new address for it in a new network.
    fn next(&mut self) -> (SocketAddr, [u8; HELLO_LEN]) {
        self.count += 1;
        let (authenticated, macs) = self.hello.split_at_mut(HELLO_LEN - 2 * MAC_LEN);
        // The end of the padding.
        authenticated.last_chunk_mut::<4>().unwrap().copy_from_slice(&self.count.to_be_bytes());
        macs[..MAC_LEN].copy_from_slice(&self.mac.tag(authenticated));
        (SocketAddr::from((Ipv4Addr::from(self.count << 8 | 1), 1)), self.hello)
    }
}

fn flood() -> Flood {
    let id = ConnectionId([9; 8]);
    let mut initiator = Initiator::new(&secret(), id, &Parameters::default(), Arc::new(AwsLc), [9; 32], Time::ZERO);
    Flood::new(&mut initiator, MacKey::new(&secret()), Time::ZERO)
}

fn hand(endpoint: &mut Endpoint, at: Time, from: SocketAddr, datagram: &[u8]) {
    endpoint.handle_datagram(Received { at, from, to: None, ecn: None, datagram: &mut datagram.to_vec() });
}

/// All packets that an endpoint sends now.
fn drain(endpoint: &mut Endpoint, now: Time) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut out = vec![0; 2_048];
    std::iter::from_fn(|| {
        endpoint.poll_transmit(now, 1, &mut out).map(|sent| (sent.destination, out[..sent.len].to_vec()))
    })
    .collect()
}

#[test]
fn h5_a_flood_leaves_room_for_an_honest_client() {
    let mut server = endpoint(secret(), true, 1);
    let mut client = endpoint(secret(), false, 2);
    let (server_address, honest) = ("198.51.100.1:7700".parse().unwrap(), HONEST.parse().unwrap());
    let mut flood = flood();
    let per_ms = if tidewire_testing::few_seeds() { 10 } else { 100 };
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let (mut flooded, mut answered, mut connected) = (0, 0, None);
    let begins = 1_000;
    for ms in 0..3_000 {
        let now = Time::from_millis(1 + ms);
        if ms == begins {
            client.connect(now, server_address).unwrap();
        }
        for _ in 0..per_ms {
            let (from, hello) = flood.next();
            flooded += hello.len();
            hand(&mut server, now, from, &hello);
        }
        let arrived = |at: &Time| *at <= now;
        to_server.extract_if(.., |(at, _)| arrived(at)).for_each(|(_, datagram): (Time, Vec<u8>)| {
            hand(&mut server, now, honest, &datagram);
        });
        to_client.extract_if(.., |(at, _)| arrived(at)).for_each(|(_, datagram): (Time, Vec<u8>)| {
            hand(&mut client, now, server_address, &datagram);
        });
        server.handle_timeout(now);
        client.handle_timeout(now);
        for (to, datagram) in drain(&mut server, now) {
            if to == honest {
                to_client.push((now + ONE_WAY, datagram));
            } else {
                answered += datagram.len();
            }
        }
        to_server.extend(drain(&mut client, now).into_iter().map(|(_, datagram)| (now + ONE_WAY, datagram)));
        while let Some((_, event)) = client.poll_event() {
            if event == Event::Connected {
                connected.get_or_insert(ms - begins);
            }
        }
        while server.poll_event().is_some() {}
        assert!(server.half_open() <= 4_096);
    }
    let stats = server.stats();
    let bound = (3 * 2 * ONE_WAY + Duration::from_secs(2)).as_millis() as u64;
    println!("flood of {} HELLOs: connected after {connected:?} ms, {stats:?}", flood.count);
    assert!(connected.is_some_and(|ms| ms <= bound), "{connected:?} {stats:?}");
    // H2: two round trips if a cookie is demanded. Each millisecond step adds one.
    assert!(connected.is_some_and(|ms| ms <= 2 * 2 * 25 + 4), "{connected:?}");
    // H3, and the actual sizes: few HELLOs get two copies of a REPLY, some get one short COOKIE, most get
    // nothing.
    assert!(answered <= flooded, "{answered} bytes for {flooded}");
    assert_eq!(server.connections().count(), 1);
    assert_eq!(stats.displaced, 0, "who proves nothing displaces nobody");
    assert!(stats.hellos.unproven > u64::from(flood.count) * 9 / 10, "{stats:?}");
}

/// Attackers with proven addresses can fill the table. It stays within its bounds, in entries and in bytes.
#[test]
fn h5_half_open_sessions_are_bounded_in_memory() {
    let mut server = endpoint(secret(), true, 1);
    let before = HELD.get();
    let now = Time::from_millis(1);
    let mut flood = flood();
    let (mut displaced, mut most) = (0, 0);
    for n in 0..5_000 {
        let now = now + Duration::from_millis(n);
        let (from, mut hello) = flood.next();
        hand(&mut server, now, from, &hello);
        if let Some((_, cookie)) = drain(&mut server, now).iter().find(|(_, sent)| sent.len() == COOKIE_LEN) {
            flood.prove(&mut hello, cookie);
            hand(&mut server, now, from, &hello);
        }
        drain(&mut server, now);
        assert!(server.half_open() <= 4_096);
        (displaced, most) = (server.stats().displaced, most.max(HELD.get() - before));
    }
    let sessions = server.half_open();
    println!("{sessions} half-open sessions and their REPLYs: at most {most} bytes, {} each", most / sessions as isize);
    assert_eq!((sessions, displaced), (4_096, 5_000 - 4_096));
    // H5, including the REPLYs of the last 4 s.
    assert!(most <= 1 << 20, "{most} bytes");
    server.handle_timeout(now + Duration::from_secs(36));
    assert_eq!(server.half_open(), 0);
}

/// An attacker in one network gets the handshakes of one network, however many addresses it has. Others
/// connect meanwhile.
#[test]
fn under_load_a_network_makes_few_handshakes() {
    let mut server = endpoint(secret(), true, 1);
    let mut flood = flood();
    let mut accepted = |server: &mut Endpoint, now: Time, from: SocketAddr| {
        let (_, mut hello) = flood.next();
        hand(server, now, from, &hello);
        if let Some((_, cookie)) = drain(server, now).iter().find(|(_, sent)| sent.len() == COOKIE_LEN) {
            flood.prove(&mut hello, cookie);
            hand(server, now, from, &hello);
        }
        server.stats().hellos.accepted
    };
    let address = |n: u32| SocketAddr::from((Ipv4Addr::from(0x0a00_0000 | (n & 0xff)), 1));
    let mut before = 0;
    for n in 0..3_000 {
        before = accepted(&mut server, Time::from_millis(u64::from(n)), address(n));
    }
    // 128 free handshakes per second, a burst of 100, and 20 per second in the long run.
    assert!((3 * 128 + 100..=3 * 128 + 100 + 60).contains(&before), "{before}");
    assert_eq!(server.stats().hellos.limited + before, 3_000);
    let other = SocketAddr::from(([192, 0, 2, 1], 1));
    assert_eq!(accepted(&mut server, Time::from_millis(2_999), other), before + 1);
}

#[test]
fn a_cookie_is_for_one_hello_from_one_address_and_not_for_long() {
    let pair = PrivateKey::new([2; 32]);
    let mut listener = KeyCredentials::new(pair.clone());
    listener.authorized = Arc::new([PrivateKey::new([1; 32]).public()].into());
    let own = Credentials::Key(KeyCredentials::new(PrivateKey::new([1; 32])));
    let begin = Time::from_millis(120_000);
    let hello = |seed| {
        let keys = own.to_connect(Some(&pair.public())).unwrap();
        let id = ConnectionId([seed; 8]);
        Initiator::new(keys, id, &Parameters::default(), Arc::new(AwsLc), [seed; 32], begin)
    };
    let mac = MacKey::of_listener(&pair.public(), &Secret::new([0; 32]));
    let mut flood = Flood::new(&mut hello(9), mac, begin);
    let mut server = endpoint(Credentials::Key(listener), true, 1);
    let honest: SocketAddr = HONEST.parse().unwrap();
    // From here on every HELLO of this second must prove its address.
    let load = |server: &mut Endpoint, flood: &mut Flood, now| {
        for _ in 0..128 {
            let (from, hello) = flood.next();
            hand(server, now, from, &hello);
        }
        drain(server, now + Duration::from_millis(10));
    };
    load(&mut server, &mut flood, begin);
    let mut initiator = hello(3);
    let mut bytes = [0; HELLO_LEN];
    initiator.poll_transmit(begin, &mut bytes).unwrap();
    assert_eq!(bytes[HELLO_LEN - MAC_LEN..], [0; MAC_LEN]);
    hand(&mut server, begin, honest, &bytes);
    let [(to, cookie)] = &drain(&mut server, begin)[..] else { panic!("one COOKIE") };
    assert_eq!((*to, cookie.len()), (honest, COOKIE_LEN));
    let Ok(Datagram::Long(packet)) = Datagram::parse(cookie) else { panic!("a COOKIE") };
    assert_eq!((packet.kind, packet.destination), (LongKind::Cookie, initiator.source()));
    // A COOKIE that was changed, or that is for another HELLO, does not open. A repeated COOKIE sends nothing
    // early.
    for bit in 0..COOKIE_LEN * 8 {
        let mut changed = cookie.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(initiator.handle_cookie(begin, &changed).is_err(), "bit {bit}");
    }
    initiator.handle_cookie(begin, cookie).unwrap();
    let plain = bytes;
    let mut sent = 0;
    for ms in 0..100 {
        let now = begin + Duration::from_millis(ms);
        while initiator.poll_transmit(now, &mut bytes).is_some() {
            initiator.handle_cookie(now, cookie).unwrap();
            sent += 1;
        }
    }
    assert_eq!(sent, 2, "one pair for any number of copies");
    assert_eq!(bytes[..HELLO_LEN - MAC_LEN], plain[..HELLO_LEN - MAC_LEN], "but for mac2 the same");

    let accepted = |server: &mut Endpoint, flood: &mut Flood, at, from, bytes: &[u8]| {
        load(server, flood, at);
        let before = server.stats().hellos.accepted;
        hand(server, at, from, bytes);
        server.stats().hellos.accepted - before
    };
    let elsewhere = SocketAddr::new(honest.ip(), 4_001);
    assert_eq!(accepted(&mut server, &mut flood, begin, elsewhere, &bytes), 0);
    let mut other = [0; HELLO_LEN];
    hello(4).poll_transmit(begin, &mut other).unwrap();
    other[HELLO_LEN - MAC_LEN..].copy_from_slice(&bytes[HELLO_LEN - MAC_LEN..]);
    assert_eq!(accepted(&mut server, &mut flood, begin, honest, &other), 0);
    // Two key periods of two minutes each.
    let seconds = Duration::from_secs;
    assert_eq!(accepted(&mut server, &mut flood, begin + seconds(240), honest, &bytes), 0);
    assert_eq!(accepted(&mut server, &mut flood, begin + seconds(239), honest, &bytes), 1);
}
