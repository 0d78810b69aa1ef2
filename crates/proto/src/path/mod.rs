//! A path is the route between two addresses. This module holds all state that belongs to packets rather than
//! to data.
//!
//! It holds packet numbers, RTT, loss detection, loss estimate, packet size, pacing and the interface to rate
//! control. In this release a connection has only path 0, a `Path`. Nothing here depends on connections,
//! lanes or symbols, so that a second path can be added later.

mod app_limited;
mod control;
mod controller;
mod delivery;
mod ecn;
mod estimate;
mod flight;
mod floor;
mod host;
mod ids;
mod loss;
mod losses;
mod minimum;
mod mtu;
mod one_way;
mod pacer;
mod pto;
mod received;
mod rtt;
mod runs;
mod state;
mod trains;
mod validation;

pub use control::{AckSample, Budget, LossSample, RateController, Tested, Totals, TrainPace, TrainSample};
pub(crate) use controller::Controller;
pub(crate) use delivery::DeliveryRate;
pub use delivery::{Dispersion, RateSample};
pub use ecn::Ecn;
pub(crate) use ecn::EcnTally;
pub(crate) use estimate::{DEVIATION_BLOCK, LossEstimator};
pub use estimate::{LossEstimate, correlation};
#[cfg(all(test, feature = "aws-lc-rs"))]
pub(crate) use flight::MAX_FLIGHT;
pub(crate) use flight::{Carried, Fate, Sent};
pub use floor::FloorStats;
#[cfg(all(test, feature = "aws-lc-rs"))]
pub(crate) use ids::MAX_IDS;
pub(crate) use ids::{OurIds, PeerIds};
pub(crate) use loss::{LossDetector, is_persistent};
pub(crate) use losses::Cause;
pub(crate) use mtu::{BASE as BASE_DATAGRAM, MtuProber};
pub(crate) use pacer::{Pacer, transmission_time};
pub(crate) use pto::STEADY_PROBES;
pub(crate) use received::{FeedbackClock, MAX_DELAY as MAX_FEEDBACK_DELAY, Patience, ReceivedPackets};
pub(crate) use rtt::Rtt;
pub use runs::LossRuns;
pub(crate) use state::Path;
pub(crate) use validation::{Errand, Move, Validation};

/// IPv4 and UDP headers (RFC 791, RFC 768), which a datagram adds to its payload on the link. IPv6 adds 20
/// bytes more. The real rate is then a little higher than the controller assumes, by 1.4 % at full size.
pub const IP_UDP_HEADER: usize = 28;
