//! The rules of a tunnel: IP packets as messages of a lane (`docs/tunnel.md`).
//!
//! The command's tunnel carries the packets of a device, the simulator's those of its TCP. Both keep the
//! packets for one peer in a [`Queue`], open a lane with [`lane`], and give it packets with
//! [`Connection::fill_lane`](crate::connection::Connection::fill_lane). Invariant: a packet waits in the
//! queue, where flows take turns, and not in the transport.

mod queue;

use core::time::Duration;

use crate::Time;
use crate::config::ConfigBuilder;
use crate::connection::LaneConfig;
use crate::profile::Delivery;

pub use queue::{Fates, Packet, Queue};

/// Default of the longest packet. One packet and its headers then fit into a datagram of 1,472 bytes, the
/// payload of UDP over Ethernet.
pub const DEFAULT_MTU: u16 = 1_420;
/// Packets that wait in the lane for their first transmission, as time at the pace. Chosen: the queue before
/// the lane decides what waits; the lane only bridges the time until the sender runs again.
const LANE_QUEUE: Duration = Duration::from_micros(1_500);
/// Ring of the lane: the packets of a lifetime and their repair, at 1 Gbit/s over 100 ms.
const RING: usize = 32 << 20;
/// Lifetime of a packet in round trips: enough for an answer to the peer's feedback, and for a second one.
/// With one round trip only proactive repair counts, and what it misses is a loss for the flows inside:
/// `docs/tunnel.md` section 4 has the measurement.
const LIFETIME: u32 = 3;
/// The same for TCP, which waits longer: it repeats a packet on a timer after a round trip and at least 200
/// ms, and takes back what it did when the first copy arrives later (RFC 3522, RFC 3708).
const LIFETIME_OF_TCP: u32 = 6;
/// Least lifetime of a packet. Chosen: a reordering or a short gap of the radio passes within this time.
const LEAST_LIFETIME: Duration = Duration::from_millis(50);
/// The round trip is read again after this time. Chosen: it changes within a few of them.
const RTT_CHECK: Duration = Duration::from_millis(100);
/// IP protocol number of TCP.
const TCP: u8 = 6;

/// The transport's settings for a tunnel, on top of the user's.
pub fn configure(config: ConfigBuilder) -> ConfigBuilder {
    config.message_memory(RING).keep_alive(Some(crate::config::KEEP_ALIVE))
}

/// The settings of the lane. A packet enters it when it can leave within 1.5 ms at the present pace.
pub fn lane() -> LaneConfig {
    LaneConfig { queue: Some(LANE_QUEUE), ..LaneConfig::default() }
}

/// How the far end delivers packets of an IP protocol. TCP has tolerated reordering since RACK (RFC 8985),
/// and a packet that waits for an earlier one only makes its acknowledgements come in bursts. Other flows
/// keep their order: QUIC takes a packet for lost after three later ones (RFC 9002 section 6.1.1).
pub fn delivery(protocol: u8) -> Delivery {
    if protocol == TCP { Delivery::AsComplete } else { Delivery::InOrder }
}

/// How long a packet is of use from the moment at which it leaves the queue, at this round trip.
pub fn lifetime(rtt: Duration, delivery: Delivery) -> Duration {
    let round_trips = if delivery == Delivery::AsComplete { LIFETIME_OF_TCP } else { LIFETIME };
    (rtt * round_trips).max(LEAST_LIFETIME)
}

/// The round trip of the connection of a tunnel, read every 100 ms.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    rtt: Duration,
    read: Time,
}

impl RoundTrip {
    /// The round trip that was read now.
    pub fn new(now: Time, rtt: Duration) -> Self {
        Self { rtt, read: now }
    }

    /// The round trip of late. Calls `read` if that is 100 ms old.
    pub fn at(&mut self, now: Time, read: impl FnOnce() -> Duration) -> Duration {
        if now.since(self.read) >= RTT_CHECK {
            *self = Self::new(now, read());
        }
        self.rtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_some_round_trips_of_late() {
        let ms = Duration::from_millis;
        let mut rtt = RoundTrip::new(Time::ZERO, ms(60));
        assert_eq!(rtt.at(Time::from_millis(99), || panic!("too early")), ms(60));
        assert_eq!(rtt.at(Time::from_millis(100), || ms(10)), ms(10));
        assert_eq!(rtt.at(Time::from_millis(199), || panic!("too early")), ms(10));
        assert_eq!((lifetime(ms(60), delivery(6)), lifetime(ms(60), delivery(17))), (ms(360), ms(180)));
        assert_eq!(lifetime(ms(10), Delivery::InOrder), ms(50));
    }
}
