//! Settings of a connection. Every setting has a default that adapts to the path.

use core::time::Duration;

use crate::crypto::MAX_SEALED;
use crate::lane::INITIAL_CREDIT;
use crate::profile::{Mismatch, Profile};
use crate::redundancy::{DEFAULT_SPAN, Target};

/// Chosen: far below 2^28, the maximum number of packets that a key may seal.
const PACKETS_PER_KEY: u64 = 1 << 22;

/// Chosen: a thief of session keys can read at most an hour of traffic, and an exchange costs 300 us.
const FRESH_KEYS_AFTER: Duration = Duration::from_secs(3_600);
/// Least time between two exchanges of keys: the initiator begins none sooner, and the responder answers none
/// sooner. Each costs the responder two operations on the curve, about 200 us.
pub(crate) const LEAST_FRESH_KEYS_AFTER: Duration = Duration::from_secs(1);

/// A power of two near the work that handing a job to a worker costs the driver: 9.3 us, in which it makes
/// 0.29 million products itself (example `worker_cost`, 2 idle cores with GFNI; `docs/performance.md`). All
/// work for a block of 32 symbols stays inside; the repairs and losses of a block of 100 go to a worker.
const INLINE_PRODUCTS: usize = 1 << 18;
/// Chosen: more cores than any present machine can spare for one endpoint.
const MOST_WORKERS: u16 = 64;

/// Settings of a connection, and the limits for all connections of an endpoint together. Every field has a
/// default. [`Config::validate`] runs when an endpoint is created.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// How the data of this end is coded, repaired and paced.
    pub profile: Profile,
    /// An end that connects asks the peer to use the code, layout and redundancy of `profile`, if they are
    /// not the default. Off by default: the choice of this end then applies only to its own data.
    pub asks_peer: bool,
    /// An end that listens follows such a request within its own limits, if its own `profile` has the default
    /// code, layout and redundancy (default true).
    pub follows_peer: bool,
    /// Upper limit of the sending rate, in bits per second of IP packets.
    pub max_rate: Option<u64>,
    /// Upper limit of proactive repair as a fraction of source bytes, 0 to 1 (default 0.5).
    pub max_overhead: f64,
    /// Latency target of our data: in-order delay beyond the one-way time of the path, at least 1 ms. The
    /// default is a fraction of the round trip that grows with the loss.
    pub latency: Option<Duration>,
    /// Fraction of our source symbols that must meet `latency`, 0.5 to 0.9999 (default 0.99).
    pub deliver: f64,
    /// Longest span of our repairs, 1 to 1,024 symbols (default 256). The peer may accept less.
    pub max_span: u16,
    /// Number of threads that run coding jobs of lanes in generations, 0 to 64 (default 0: the connection
    /// runs all jobs immediately itself). If it is above 0, the driver of the endpoint must take its jobs
    /// ([`crate::endpoint::Endpoint::poll_job`]); a job that is not run blocks its stream.
    pub workers: u16,
    /// With workers, jobs of at most this many products of a coefficient and a byte still run inside the
    /// connection (default 262,144).
    pub inline_products: usize,
    /// Largest UDP payload to try, 1,200 to 65,527 bytes (default 1,472: an Ethernet frame).
    pub max_datagram: u16,
    /// Whether to probe for the largest datagram. If off, no datagram exceeds 1,200 bytes.
    pub probe_size: bool,
    /// A connection that receives nothing for this long is closed (default 60 s).
    pub idle_timeout: Duration,
    /// If no packet passes for this long, a PING keeps the connection alive, so that address translators on
    /// the path do not forget it. 10 s is shorter than the timeouts seen in the field. Off by default. One
    /// end is enough: the initiator. It must set this if the responder may be the first to send after a
    /// pause.
    pub keep_alive: Option<Duration>,
    /// Number of packets after which our key is renewed, once the peer has answered under it; 1 to 2^27
    /// (default 2^22).
    pub packets_per_key: u64,
    /// Interval after which an end that connects makes fresh keys, which do not follow from the old ones, by
    /// another handshake inside the session; at least 1 s (default 60 minutes).
    pub fresh_keys_after: Duration,
    /// A connection attempt that gets no answer for this long is given up (default 30 s).
    pub handshake_timeout: Duration,
    /// Maximum bytes of each ring, of the sender and of the receiver (default 64 MiB).
    pub ring_memory: usize,
    /// Number of streams that the peer may have open (default 128).
    pub max_streams: u64,
    /// Number of unread bytes allowed per stream at first. `max_stream_window` is the upper limit (defaults
    /// 256 KiB and 16 MiB).
    pub stream_window: u64,
    /// Upper limit of `stream_window` as it grows.
    pub max_stream_window: u64,
    /// Maximum number of connections of the endpoint (default 10,000). At this number, HELLOs get no answer.
    /// Connections that the endpoint itself opens count too, but are not refused.
    pub max_connections: usize,
    /// Maximum bytes of the rings of all connections of the endpoint (default 1 GiB). One half is for
    /// connections that want more than their equal part; the other half guarantees each its part. When the
    /// first half is used up, HELLOs get no answer, and a connection above its part gets no more memory. Its
    /// credit and its send buffer stay as they are, and it is closed if it fills what the handshake promised.
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

/// An invalid setting.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A field is outside its range.
    Range {
        /// The field.
        field: &'static str,
        /// The allowed values.
        allowed: &'static str,
    },
    /// Choices of the profile contradict each other.
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
    /// Checks every field against its range, and that the choices of the profile fit together.
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

    /// The latency target, if the user stated one.
    pub(crate) fn target(&self) -> Option<Target> {
        let (deliver, max_overhead) = (self.deliver, self.max_overhead);
        self.latency.map(|latency| Target { latency, deliver, max_overhead })
    }

    /// Jobs of at most this many products run inside the connection.
    pub(crate) fn inline(&self) -> usize {
        if self.workers == 0 { usize::MAX } else { self.inline_products }
    }

    /// Length of a ring slot: the longest symbol of the largest datagram, rounded up to a cache line.
    pub(crate) fn slot_len(&self) -> usize {
        usize::from(self.max_datagram).next_multiple_of(64)
    }
}
