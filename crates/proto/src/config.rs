//! Settings of a connection. Every setting has a default that adapts to the path.

use core::num::NonZeroU16;
use core::time::Duration;
use std::sync::Arc;

use tidewire_codec::Code;

use crate::crypto::{KeyLog, MAX_SEALED};
use crate::lane::{INITIAL_CREDIT, MESSAGE_RING};
use crate::path::BASE_DATAGRAM;
use crate::profile::{Delivery, Layout, Mismatch, Profile};
use crate::rate::RateControl;
use crate::recode::Relaying;
use crate::redundancy::{DEFAULT_SPAN, Redundancy, Target};
use crate::trace::Trace;

/// Limit of proactive repair where the user states none. Chosen: 20 % loss at half load takes 0.48
/// (docs/default-policy.md).
const MAX_OVERHEAD: f64 = 0.5;
/// Time without a packet after which an idle connection of a command sends a PING, so that address
/// translators keep its mapping. RFC 4787 section 4.3 lets a mapping expire after two minutes; many expire
/// after 30 s. A connection has no such PINGs by default.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);

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
/// Least `max_memory`: the least ring of one connection.
const LEAST_MEMORY: usize = 1 << 20;

/// Settings of a connection, and the limits for all connections of an endpoint together.
///
/// Every setting has a default. [`Config::builder`] changes settings, and [`ConfigBuilder::build`] checks
/// them, so every value of this type is valid. Each method here returns the setting of the same name in
/// [`ConfigBuilder`], which documents it.
///
/// ```
/// use std::time::Duration;
/// use tidewire_proto::config::Config;
///
/// let config = Config::builder().latency(Some(Duration::from_millis(40))).max_overhead(0.3).build()?;
/// assert_eq!(config.max_overhead(), 0.3);
/// let error = Config::builder().max_overhead(3.0).build().unwrap_err();
/// assert_eq!(error.to_string(), "max_overhead must be from 0 to 1");
/// # Ok::<(), tidewire_proto::config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) profile: Profile,
    pub(crate) asks_peer: bool,
    pub(crate) follows_peer: bool,
    pub(crate) max_rate: Option<u64>,
    pub(crate) trace: Option<Arc<dyn Trace>>,
    pub(crate) key_log: Option<Arc<dyn KeyLog>>,
    pub(crate) relaying: Option<Relaying>,
    pub(crate) repair: RepairSettings,
    pub(crate) jobs: JobsSettings,
    pub(crate) packets: PacketsSettings,
    pub(crate) timing: TimingSettings,
    pub(crate) limits: LimitsSettings,
}

/// Settings of repair.
#[derive(Clone, Debug)]
pub(crate) struct RepairSettings {
    /// The default is [`MAX_OVERHEAD`], and lone symbols are exempt from it.
    pub max_overhead: Option<f64>,
    pub latency: Option<Duration>,
    pub deliver: f64,
    pub max_span: u16,
}

/// Settings of coding jobs.
#[derive(Clone, Debug)]
pub(crate) struct JobsSettings {
    pub workers: u16,
    pub inline_products: usize,
}

/// Settings of packets and of the keys that seal them.
#[derive(Clone, Debug)]
pub(crate) struct PacketsSettings {
    /// Size of a datagram that needs no probe.
    pub base: u16,
    pub max_datagram: u16,
    pub probe_size: bool,
    pub packets_per_key: u64,
}

/// Intervals and timeouts.
#[derive(Clone, Debug)]
pub(crate) struct TimingSettings {
    pub idle_timeout: Duration,
    pub keep_alive: Option<Duration>,
    pub fresh_keys_after: Duration,
    pub handshake_timeout: Duration,
}

/// Limits of streams, connections and memory.
#[derive(Clone, Debug)]
pub(crate) struct LimitsSettings {
    pub ring_memory: usize,
    pub message_memory: usize,
    pub max_streams: u64,
    pub stream_window: u64,
    pub max_stream_window: u64,
    pub max_connections: usize,
    pub max_memory: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            asks_peer: false,
            follows_peer: true,
            max_rate: None,
            trace: None,
            key_log: None,
            relaying: None,
            repair: RepairSettings { max_overhead: None, latency: None, deliver: 0.99, max_span: DEFAULT_SPAN },
            jobs: JobsSettings { workers: 0, inline_products: INLINE_PRODUCTS },
            packets: PacketsSettings {
                base: BASE_DATAGRAM,
                max_datagram: 1_472,
                probe_size: true,
                packets_per_key: PACKETS_PER_KEY,
            },
            timing: TimingSettings {
                idle_timeout: Duration::from_secs(60),
                keep_alive: None,
                fresh_keys_after: FRESH_KEYS_AFTER,
                handshake_timeout: Duration::from_secs(30),
            },
            limits: LimitsSettings {
                ring_memory: 64 << 20,
                message_memory: MESSAGE_RING,
                max_streams: 128,
                stream_window: 256 << 10,
                max_stream_window: 64 << 20,
                max_connections: 10_000,
                max_memory: 1 << 30,
            },
        }
    }
}

/// Settings that are not checked yet: [`ConfigBuilder::build`] makes a [`Config`] of them.
#[derive(Clone, Debug, Default)]
#[must_use = "build() makes the Config"]
pub struct ConfigBuilder(Config);

/// Defines a setter of the builder and a getter of the configuration for each setting.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $($path:ident).+;)*) => {
        impl ConfigBuilder {
            $($(#[$doc])* pub fn $name(mut self, $name: $type) -> Self {
                self.0.$($path).+ = $name;
                self
            })*
        }

        impl Config {
            $(#[doc = concat!("See [`ConfigBuilder::", stringify!($name), "`].")]
            pub fn $name(&self) -> $type {
                self.$($path).+.clone()
            })*
        }
    };
}

settings! {
    /// How the data of this end is coded, repaired and paced.
    profile: Profile = profile;
    /// The code axis of `profile`.
    code: Code = profile.code;
    /// The layout of `profile`, a part of its code axis.
    layout: Layout = profile.layout;
    /// The redundancy axes of `profile`: proactive repair, and the answer to feedback.
    redundancy: Redundancy = profile.redundancy;
    /// The rate control axis of `profile`.
    rate_control: RateControl = profile.rate_control;
    /// The delivery axis of `profile`.
    delivery: Delivery = profile.delivery;
    /// An end that connects asks the peer to use the code, layout and redundancy of `profile`, if they are
    /// not the default. Off by default: the choice of this end then applies only to its own data.
    asks_peer: bool = asks_peer;
    /// An end that listens follows such a request within its own limits, if its own `profile` has the default
    /// code, layout and redundancy (default true).
    follows_peer: bool = follows_peer;
    /// Upper limit of the sending rate, in bits per second of IP packets.
    max_rate: Option<u64> = max_rate;
    /// Latency target of our data: in-order delay beyond the one-way time of the path, at least 1 ms. The
    /// default is a fraction of the round trip that grows with the loss.
    latency: Option<Duration> = repair.latency;
    /// Fraction of our source symbols that must meet `latency`, 0.5 to 0.999999 (default 0.99).
    deliver: f64 = repair.deliver;
    /// Longest span of our repairs, 1 to 1,024 symbols (default 256). The peer may accept less.
    max_span: u16 = repair.max_span;
    /// Number of threads that run coding jobs of lanes in generations, 0 to 64 (default 0: the connection
    /// runs all jobs immediately itself). If it is above 0, the driver of the endpoint must take its jobs
    /// ([`crate::endpoint::Endpoint::poll_job`]); a job that is not run blocks its stream.
    workers: u16 = jobs.workers;
    /// With workers, jobs of at most this many products of a coefficient and a byte still run inside the
    /// connection (default 262,144).
    inline_products: usize = jobs.inline_products;
    /// Largest UDP payload to try, 1,200 to 65,527 bytes (default 1,472: an Ethernet frame).
    max_datagram: u16 = packets.max_datagram;
    /// Whether to probe for the largest datagram. If off, no datagram exceeds 1,200 bytes.
    probe_size: bool = packets.probe_size;
    /// A connection that receives nothing for this long is closed (default 60 s).
    idle_timeout: Duration = timing.idle_timeout;
    /// If no packet passes for this long, a PING keeps the connection alive, so that address translators on
    /// the path do not forget it. 10 s is shorter than the timeouts seen in the field. Off by default. One
    /// end is enough: the initiator. It must set this if the responder may be the first to send after a
    /// pause.
    keep_alive: Option<Duration> = timing.keep_alive;
    /// Number of packets after which our key is renewed, once the peer has answered under it; 1 to 2^27
    /// (default 2^22).
    packets_per_key: u64 = packets.packets_per_key;
    /// Interval after which an end that connects makes fresh keys, which do not follow from the old ones, by
    /// another handshake inside the session; at least 1 s (default 60 minutes).
    fresh_keys_after: Duration = timing.fresh_keys_after;
    /// A connection attempt that gets no answer for this long is given up (default 30 s).
    handshake_timeout: Duration = timing.handshake_timeout;
    /// Maximum bytes of each ring, of the sender and of the receiver (default 64 MiB).
    ring_memory: usize = limits.ring_memory;
    /// Maximum bytes of each ring of a lane of messages, within `ring_memory` (default 2 MiB). A ring never
    /// has fewer than 256 symbols.
    message_memory: usize = limits.message_memory;
    /// Number of streams that the peer may have open (default 128).
    max_streams: u64 = limits.max_streams;
    /// Number of unread bytes allowed per stream at first. `max_stream_window` is the upper limit (defaults
    /// 256 KiB and 64 MiB).
    stream_window: u64 = limits.stream_window;
    /// Upper limit of `stream_window` as it grows: it doubles while a reader uses it up within four round
    /// trips, and while `max_memory` allows. All windows together grow by at most 64 MiB.
    max_stream_window: u64 = limits.max_stream_window;
    /// Maximum number of connections of the endpoint (default 10,000). At this number, HELLOs get no answer.
    /// Connections that the endpoint itself opens count too, but are not refused.
    max_connections: usize = limits.max_connections;
    /// Maximum bytes of the rings of all connections of the endpoint (default 1 GiB). One half is for
    /// connections that want more than their equal part; the other half guarantees each its part. When the
    /// first half is used up, HELLOs get no answer, and a connection above its part gets no more memory. Its
    /// credit and its send buffer stay as they are, and it is closed if it fills what the handshake promised.
    max_memory: usize = limits.max_memory;
    /// Receives what happens on all connections of the endpoint. Off by default.
    trace: Option<Arc<dyn Trace>> = trace;
    /// Receives the keys of all connections of the endpoint, with which everything they send can be read and
    /// forged: for a person who looks at its own packets (docs/wireshark.md). Off by default.
    key_log: Option<Arc<dyn KeyLog>> = key_log;
    /// Makes each connection of the endpoint a hop of a path with relays (docs/wire.md section 8). Off by
    /// default: then a peer that sends on the relayed lane breaks the protocol.
    relaying: Option<Relaying> = relaying;
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A field is outside its range.
    #[error("{field} must be {allowed}")]
    Range {
        /// The field.
        field: &'static str,
        /// The allowed values.
        allowed: &'static str,
    },
    /// Choices of the profile contradict each other.
    #[error("{0}")]
    Profile(Mismatch),
}

impl ConfigBuilder {
    /// Checks every setting against its range, and that the choices of the profile fit together.
    ///
    /// # Errors
    /// The first setting that is invalid, with the allowed values.
    pub fn build(self) -> Result<Config, ConfigError> {
        self.check_ranges()?;
        self.0.profile.check().map_err(ConfigError::Profile)?;
        Ok(self.0)
    }

    /// Checks every setting that has a range. Whether the choices of the profile fit together is known only
    /// when all are made.
    ///
    /// # Errors
    /// The first setting that is outside its range, with the allowed values.
    pub fn check_ranges(&self) -> Result<(), ConfigError> {
        let Config { repair, jobs, packets, timing, limits, .. } = &self.0;
        let check = |ok: bool, field, allowed| if ok { Ok(()) } else { Err(ConfigError::Range { field, allowed }) };
        let max_overhead = repair.max_overhead.is_none_or(|cap| (0.0..=1.0).contains(&cap));
        check(max_overhead, "max_overhead", "from 0 to 1")?;
        let latency = repair.latency.is_none_or(|latency| latency >= Duration::from_millis(1));
        check(latency, "latency", "at least 1 ms")?;
        check((0.5..=0.999_999).contains(&repair.deliver), "deliver", "from 50 % to 99.9999 %")?;
        check((1..=1_024).contains(&repair.max_span), "max_span", "from 1 to 1024 symbols")?;
        check(jobs.workers <= MOST_WORKERS, "workers", "from 0 to 64")?;
        check((1_200..=65_527).contains(&packets.max_datagram), "max_datagram", "from 1200 to 65527 bytes")?;
        check(self.0.max_rate.is_none_or(|rate| rate >= 8_000), "max_rate", "at least 8000 bits per second")?;
        check(timing.idle_timeout >= Duration::from_secs(1), "idle_timeout", "at least 1 s")?;
        let keep_alive = timing.keep_alive.is_none_or(|interval| interval >= Duration::from_secs(1));
        check(keep_alive, "keep_alive", "at least 1 s")?;
        check((1..=MAX_SEALED / 2).contains(&packets.packets_per_key), "packets_per_key", "from 1 to 2^27")?;
        check(timing.fresh_keys_after >= LEAST_FRESH_KEYS_AFTER, "fresh_keys_after", "at least 1 s")?;
        check(timing.handshake_timeout >= Duration::from_millis(100), "handshake_timeout", "at least 100 ms")?;
        let least_ring = (INITIAL_CREDIT * self.0.slot_len()).max(1 << 20);
        check(limits.ring_memory >= least_ring, "ring_memory", "at least 1 MiB, and 256 datagrams")?;
        check(limits.max_connections >= 1, "max_connections", "at least 1")?;
        check(limits.max_memory >= LEAST_MEMORY, "max_memory", "at least 1 MiB")?;
        let relaying = self.0.relaying.is_none_or(|relaying| relaying.is_valid());
        check(relaying, "relaying", "generations of 1 to 64 symbols, 4 to 128 generations, redundancy from 1 to 2")?;
        check(limits.max_streams <= 4_096, "max_streams", "at most 4096")?;
        check(limits.stream_window >= 2_048, "stream_window", "at least 2048 bytes")
    }
}

impl ConfigBuilder {
    /// Upper limit of proactive repair as a fraction of source bytes, 0 to 1. The default is 0.5, and single
    /// symbols with long pauses between them are exempt from the default: their repairs are few bytes. It
    /// does not bound the redundancy `rcdp:K,basic`, which sends repairs until the peer reports a block.
    pub fn max_overhead(mut self, max_overhead: f64) -> Self {
        self.0.repair.max_overhead = Some(max_overhead);
        self
    }
}

impl Config {
    /// See [`ConfigBuilder::max_overhead`].
    pub fn max_overhead(&self) -> f64 {
        self.repair.max_overhead.unwrap_or(MAX_OVERHEAD)
    }

    /// The defaults, to be changed.
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder::default()
    }

    /// These settings, to be changed.
    pub fn to_builder(&self) -> ConfigBuilder {
        ConfigBuilder(self.clone())
    }

    /// The same settings with datagrams of at most `base` bytes until a longer one was probed.
    #[must_use]
    pub(crate) fn with_base(mut self, base: u16) -> Self {
        self.packets.base = base.min(BASE_DATAGRAM);
        self
    }

    /// The part of one of `shards` that share the limits of one endpoint.
    #[must_use]
    pub fn part(mut self, shards: NonZeroU16) -> Self {
        let shards = usize::from(shards.get());
        self.limits.max_connections = self.limits.max_connections.div_ceil(shards);
        self.limits.max_memory = self.limits.max_memory.div_ceil(shards).max(LEAST_MEMORY);
        self
    }

    /// The same settings with a trace.
    #[must_use]
    pub fn with_trace(mut self, trace: Arc<dyn Trace>) -> Self {
        self.trace = Some(trace);
        self
    }

    /// The latency target, if the user stated one.
    pub(crate) fn target(&self) -> Option<Target> {
        let max_overhead = self.max_overhead();
        self.repair.latency.map(|latency| Target { latency, deliver: self.repair.deliver, max_overhead })
    }

    /// Jobs of at most this many products run inside the connection.
    pub(crate) fn inline(&self) -> usize {
        if self.jobs.workers == 0 { usize::MAX } else { self.jobs.inline_products }
    }

    /// Bytes of each ring of a lane of messages.
    pub(crate) fn message_ring(&self) -> usize {
        self.limits.message_memory.min(self.limits.ring_memory)
    }

    /// Length of a ring slot: the longest symbol of the largest datagram, rounded up to a cache line.
    pub(crate) fn slot_len(&self) -> usize {
        usize::from(self.packets.max_datagram).next_multiple_of(64)
    }
}
