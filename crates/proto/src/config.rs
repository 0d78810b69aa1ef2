//! What a connection may be told; all of it has a default that adapts.

use core::time::Duration;

use crate::crypto::MAX_SEALED;
use crate::lane::INITIAL_CREDIT;
use crate::profile::{Mismatch, Profile};
use crate::redundancy::{DEFAULT_SPAN, Target};

/// RELIABILITY 5.5: far below the 2^28 that a key may seal at most.
const PACKETS_PER_KEY: u64 = 1 << 22;

/// Chosen: whoever steals the keys of a session reads what it carries for an hour at most, and an exchange costs 300 us.
const FRESH_KEYS_AFTER: Duration = Duration::from_secs(3_600);
/// The initiator begins no exchange of keys sooner after the last, and the responder answers none: each costs the responder two operations
/// on the curve, some 200 us.
pub(crate) const LEAST_FRESH_KEYS_AFTER: Duration = Duration::from_secs(1);

/// Chosen: as much as one repair of a longest default span (256 symbols of 1,024 bytes), which a lane in a sliding window computes inside too.
/// A block of 32 symbols stays inside as a whole, the repairs and losses of one of 100 go to a worker.
const INLINE_PRODUCTS: usize = 1 << 18;
/// Chosen: more than any machine of today has cores to spare for one endpoint.
const MOST_WORKERS: u16 = 64;

/// Settings of a connection, and what all connections of an endpoint may take together. Every field has a default; [`Config::validate`] runs when an endpoint is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// How our own data is coded, repaired and paced.
    pub profile: Profile,
    /// An end that connects asks the other one to choose code, layout and redundancy as `profile` does, where
    /// that is not the default. Off by default: what this end chooses then holds for its own data alone.
    pub asks_peer: bool,
    /// An end that listens does what a peer asks for, within its own bounds, where its own `profile` has the
    /// code, layout and redundancy of the default (default true).
    pub follows_peer: bool,
    /// Never send faster, in bits per second of IP packets.
    pub max_rate: Option<u64>,
    /// Bound of proactive repair over source bytes, 0 to 1 (default 0.5).
    pub max_overhead: f64,
    /// How late our data may be: in-order delay beyond the path's own one-way time, at least 1 ms. By default a part of the round trip that
    /// grows with the loss.
    pub latency: Option<Duration>,
    /// Fraction of our source symbols that are to keep to `latency`, 0.5 to 0.9999 (default 0.99).
    pub deliver: f64,
    /// Longest span of our repairs, 1 to 1,024 symbols (default 256); the peer may accept less.
    pub max_span: u16,
    /// Threads that take coding jobs of lanes in generations, 0 to 64 (default 0: the connection runs them all at once itself).
    /// With any, whoever drives the endpoint must take its jobs ([`crate::endpoint::Endpoint::poll_job`]); one that is left lying stops its stream.
    pub workers: u16,
    /// With workers, jobs of at most so many products of a coefficient and a byte still run inside of the connection (default 262,144).
    pub inline_products: usize,
    /// Largest UDP payload to try, 1,200 to 65,527 bytes (default 1,472: an Ethernet frame).
    pub max_datagram: u16,
    /// Look for the largest datagram; off, 1,200 bytes are never exceeded.
    pub probe_size: bool,
    /// A connection that hears nothing for this long is closed (default 60 s).
    pub idle_timeout: Duration,
    /// A connection that nothing passes for this long is kept alive by a PING, so that address translators on the way do not forget it: 10 s
    /// outlive those seen in the field. None by default; the initiator's is enough, and needed where the responder may speak first after a pause.
    pub keep_alive: Option<Duration>,
    /// Packets after which our key is renewed, once the peer has answered under it; 1 to 2^27 (default 2^22).
    pub packets_per_key: u64,
    /// An end that connects makes keys that do not follow from those before after this long, by another handshake inside the session; at least 1 s
    /// (default 60 minutes).
    pub fresh_keys_after: Duration,
    /// A connection attempt that hears nothing for this long is given up (default 30 s).
    pub handshake_timeout: Duration,
    /// Bytes of each ring, sender's and receiver's, at most (default 64 MiB).
    pub ring_memory: usize,
    /// Streams that the peer may have open (default 128).
    pub max_streams: u64,
    /// Bytes that a stream may hold unread at first, and at most (default 256 KiB and 16 MiB).
    pub stream_window: u64,
    /// See `stream_window`.
    pub max_stream_window: u64,
    /// Connections of the whole endpoint (default 10,000). With as many of them a HELLO gets no answer; what the endpoint itself connects to counts and is
    /// not refused.
    pub max_connections: usize,
    /// Bytes that the rings of all connections of the endpoint may take (default 1 GiB). Half of it is for connections that want more than their
    /// part, the other half lets each have its part. Once the first half is taken, a HELLO gets no answer, and a connection with more than its
    /// part gets no more: its credit and its send buffer stay as they are, and it is closed if it fills what it was promised in the handshake.
    pub max_memory: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            asks_peer: false,
            follows_peer: true,
            max_rate: None,
            max_overhead: 0.5,
            latency: None,
            deliver: 0.99,
            max_span: DEFAULT_SPAN,
            workers: 0,
            inline_products: INLINE_PRODUCTS,
            max_datagram: 1_472,
            probe_size: true,
            idle_timeout: Duration::from_secs(60),
            keep_alive: None,
            packets_per_key: PACKETS_PER_KEY,
            fresh_keys_after: FRESH_KEYS_AFTER,
            handshake_timeout: Duration::from_secs(30),
            ring_memory: 64 << 20,
            max_streams: 128,
            stream_window: 256 << 10,
            max_stream_window: 16 << 20,
            max_connections: 10_000,
            max_memory: 1 << 30,
        }
    }
}

/// A wrong setting.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A field is outside its range.
    Range {
        /// The field.
        field: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
    /// Choices of the profile do not go together.
    Profile(Mismatch),
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Range { field, allowed } => write!(f, "{field} must be {allowed}"),
            Self::Profile(mismatch) => mismatch.fmt(f),
        }
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Checks every field against its range, and that the choices of the profile go together.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_ranges()?;
        self.profile.check().map_err(ConfigError::Profile)
    }

    /// Checks every field that has a range.
    pub fn check_ranges(&self) -> Result<(), ConfigError> {
        let check = |ok: bool, field, allowed| if ok { Ok(()) } else { Err(ConfigError::Range { field, allowed }) };
        check((0.0..=1.0).contains(&self.max_overhead), "max_overhead", "from 0 to 1")?;
        let latency = self.latency.is_none_or(|latency| latency >= Duration::from_millis(1));
        check(latency, "latency", "at least 1 ms")?;
        check((0.5..=0.9999).contains(&self.deliver), "deliver", "from 50 % to 99.99 %")?;
        check((1..=1_024).contains(&self.max_span), "max_span", "from 1 to 1024 symbols")?;
        check(self.workers <= MOST_WORKERS, "workers", "from 0 to 64")?;
        check((1_200..=65_527).contains(&self.max_datagram), "max_datagram", "from 1200 to 65527 bytes")?;
        check(self.max_rate.is_none_or(|rate| rate >= 8_000), "max_rate", "at least 8000 bits per second")?;
        check(self.idle_timeout >= Duration::from_secs(1), "idle_timeout", "at least 1 s")?;
        let keep_alive = self.keep_alive.is_none_or(|interval| interval >= Duration::from_secs(1));
        check(keep_alive, "keep_alive", "at least 1 s")?;
        check((1..=MAX_SEALED / 2).contains(&self.packets_per_key), "packets_per_key", "from 1 to 2^27")?;
        check(self.fresh_keys_after >= LEAST_FRESH_KEYS_AFTER, "fresh_keys_after", "at least 1 s")?;
        check(self.handshake_timeout >= Duration::from_millis(100), "handshake_timeout", "at least 100 ms")?;
        let least_ring = (INITIAL_CREDIT * self.slot_len()).max(1 << 20);
        check(self.ring_memory >= least_ring, "ring_memory", "at least 1 MiB, and 256 datagrams")?;
        check(self.max_connections >= 1, "max_connections", "at least 1")?;
        check(self.max_memory >= 1 << 20, "max_memory", "at least 1 MiB")?;
        check(self.max_streams <= 4_096, "max_streams", "at most 4096")?;
        check(self.stream_window >= 2_048, "stream_window", "at least 2048 bytes")
    }

    /// How late data may be, if that is given.
    pub(crate) fn target(&self) -> Option<Target> {
        let (deliver, max_overhead) = (self.deliver, self.max_overhead);
        self.latency.map(|latency| Target { latency, deliver, max_overhead })
    }

    /// Jobs of at most so many products run inside of the connection.
    pub(crate) fn inline(&self) -> usize {
        if self.workers == 0 { usize::MAX } else { self.inline_products }
    }

    /// Bytes of a ring slot: the longest symbol of the largest datagram, rounded up to a cache line.
    pub(crate) fn slot_len(&self) -> usize {
        usize::from(self.max_datagram).next_multiple_of(64)
    }
}
