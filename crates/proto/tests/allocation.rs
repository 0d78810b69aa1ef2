//! The steady state allocates nothing on either side. Two endpoints exchange data with loss in both
//! directions, and an allocator counts. Lanes in generations own their symbols one by one. They allocate a
//! few times per packet, and no more.
#![cfg(feature = "aws-lc-rs")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{Connection, Event, Received, StreamId};
use tidewire_proto::crypto::{AwsLc, Secret};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint, EndpointConfig};
use tidewire_proto::handshake::Credentials;
use tidewire_proto::profile::{Profile, STREAM, block};

/// Counts the allocations of this thread, so that those of the test harness do not count.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every request goes to the system allocator unchanged; the counter is a plain cell that does not
// allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const DATAGRAM: usize = 1_472;
const SEGMENTS: usize = 16;
const DELAY: Duration = Duration::from_millis(5);
const TICK: Duration = Duration::from_micros(200);
/// Bits per second in each direction: some 130 packets are in flight.
const PACE: u64 = 150_000_000;

/// Packets before the counted ones. Every fourth of them is lost, so that rings and lists grow to their final
/// size. Otherwise one would double whenever a gap is longer than all before it, ever more rarely but without
/// end.
const WARM_UP: u64 = 100_000;
/// One packet in this many is lost during the warm-up.
const LOST_BEFORE: u64 = 4;
const LOST: u64 = 20;
/// Size of each ring: five times the bytes in flight.
const RING: usize = 1 << 20;

/// One end, and its packets that are in flight.
struct Side {
    endpoint: Endpoint,
    connection: Option<ConnectionHandle>,
    address: SocketAddr,
    under_way: VecDeque<(Time, usize, Box<[u8]>)>,
    spare: Vec<Box<[u8]>>,
    sent: u64,
    read: u64,
}

impl Side {
    fn new(port: u16, profile: Profile) -> Self {
        let connection =
            Config::builder().profile(profile).max_rate(Some(PACE)).ring_memory(RING).build().expect("in range");
        let credentials = Credentials::Psk(Secret::new([7; 32]));
        let config = EndpointConfig { credentials, listen: true, connection, provider: Arc::new(AwsLc) };
        Self {
            endpoint: Endpoint::new(config, [port as u8; 32]),
            connection: None,
            address: ([127, 0, 0, 1], port).into(),
            under_way: VecDeque::with_capacity(1 << 12),
            spare: (0..1 << 12).map(|_| vec![0; DATAGRAM].into()).collect(),
            sent: 0,
            read: 0,
        }
    }

    fn connection(&mut self) -> Option<&mut Connection> {
        self.endpoint.connection_mut(self.connection?)
    }

    /// Takes arrived packets, reads and writes as much as possible, and sends what may be sent; `lost`
    /// decides which packets are lost.
    fn turn(&mut self, now: Time, from: &mut Self, data: &mut [u8], out: &mut [u8], lost: &mut impl FnMut() -> bool) {
        while from.under_way.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((at, len, mut buffer)) = from.under_way.pop_front() else { break };
            let datagram = &mut buffer[..len];
            self.endpoint.handle_datagram(Received { at, from: from.address, to: None, ecn: None, datagram });
            from.spare.push(buffer);
        }
        self.endpoint.handle_timeout(now);
        while let Some((handle, event)) = self.endpoint.poll_event() {
            assert!(!matches!(event, Event::Closed(_)), "{event:?}");
            self.connection = Some(handle);
        }
        let mut read = 0;
        if let Some(connection) = self.connection() {
            while let Ok(n @ 1..) = connection.read(now, StreamId(0), data) {
                read += n as u64;
            }
            data.fill(1);
            while connection.write(StreamId(0), data).is_ok() {}
        }
        self.read += read;
        while let Some(transmit) = self.endpoint.poll_transmit(now, SEGMENTS, out) {
            for datagram in out[..transmit.len].chunks(transmit.segment_size.unwrap_or(transmit.len)) {
                self.sent += 1;
                if lost() {
                    continue;
                }
                let mut buffer = self.spare.pop().expect("the pace bounds what is under way");
                buffer[..datagram.len()].copy_from_slice(datagram);
                self.under_way.push_back((now + DELAY, datagram.len(), buffer));
            }
        }
    }
}

/// Number of counted packets.
fn packets() -> u64 {
    let few = tidewire_testing::few_seeds();
    if few { 50_000 } else { 1_000_000 }
}

#[test]
fn steady_state_allocates_nothing() {
    let packets = packets();
    assert_eq!(allocations(STREAM, packets), 0, "allocations in {packets} packets");
}

/// The sender allocates once per symbol, and some times for the sum of a repair. The receiver allocates once
/// per symbol, and some times for a decoded generation.
#[test]
fn blocks_allocate_less_than_two_and_a_half_times_for_each_packet() {
    let packets = packets();
    let counted = allocations(block(32, 8), packets);
    assert!(2 * counted < 5 * packets, "{counted} allocations in {packets} packets");
}

/// Allocations of both ends during `packets` packets after the warm-up.
fn allocations(profile: Profile, packets: u64) -> u64 {
    let (mut near, mut far) = (Side::new(1, profile), Side::new(2, profile));
    let mut now = Time::from_millis(1);
    near.connection = Some(near.endpoint.connect(now, far.address).expect("a secret needs no key of the peer"));
    let (mut data, mut out) = (vec![1; 1 << 14], vec![0; DATAGRAM * SEGMENTS]);
    let mut random = 1_u64;
    let mut lost = move |one_in: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33).is_multiple_of(one_in)
    };
    let (mut opened, mut before) = (false, None);
    while near.sent + far.sent < packets + WARM_UP {
        let one_in = if before.is_none() { LOST_BEFORE } else { LOST };
        let mut lost = || lost(one_in);
        near.turn(now, &mut far, &mut data, &mut out, &mut lost);
        if !opened {
            opened = near.connection().is_some_and(|connection| connection.open_stream().is_ok());
        }
        far.turn(now, &mut near, &mut data, &mut out, &mut lost);
        now += TICK;
        if before.is_none() && near.sent + far.sent > WARM_UP {
            before = Some((ALLOCATIONS.get(), near.read, far.read));
        }
    }
    let (allocations, near_read, far_read) = before.expect("more packets than the warm-up's");
    let counted = ALLOCATIONS.get() - allocations;
    for (side, read) in [(&near, near_read), (&far, far_read)] {
        assert!(side.read - read > 400 * packets, "{} bytes were read", side.read - read);
    }
    counted
}
