//! Rate control: how many bytes may be in flight, and at what pace they leave.
//!
//! A controller sees packets, not symbols. Repair packets count like any other packet. A lost packet stays a
//! lost packet even when a repair recovers its data (RFC 9265). The connection calls the controller for every
//! packet, and the controller answers with a [`Budget`].

mod aimd;
mod cubic;
mod fixed;
mod hystart;
mod newreno;
mod open;
mod share;
mod tally;
mod train;
mod window;
#[cfg(test)]
mod window_tests;

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

pub(crate) use aimd::Aimd;
pub use aimd::AimdSteps;
pub(crate) use cubic::Cubic;
pub(crate) use fixed::Fixed;
pub(crate) use newreno::NewReno;
pub(crate) use open::Open;
pub(crate) use share::Share;
pub use train::{Train, TrainSteps};

use crate::Custom;
use crate::path::Controller;
pub use crate::path::{AckSample, Budget, LossSample, RateController, Tested, TrainPace, TrainSample};
use tidewire_units::{Rate, UnitError, nearest};

/// Initial window (RFC 6928, RFC 9002 section 7.2): ten packets.
pub(crate) const INITIAL_WINDOW: u64 = 10 * PACKET;
/// Size of a full packet, the unit of windows. It is Ethernet's; on a path with larger packets the windows
/// grow a little more slowly.
const PACKET: u64 = 1_500;
/// Least rate of `fixed`, in bits per second: a full packet each 1.5 s. Chosen.
const LEAST_FIXED: u64 = 8_000;

/// Whether losses at this queueing delay count as drops of the queue. The limit is the largest of three
/// values: a quarter of the minimum RTT; 10 ms, twice the 5 ms by which the scheduler of a busy host spreads
/// round trips; and the time of two full packets at `rate` bytes per second. If the minimum RTT came from a
/// short packet, this much extra delay is serialization, not queueing.
fn queue_is_long(queue: Duration, min_rtt: Duration, rate: u64) -> bool {
    queue > (min_rtt / 4).max(Duration::from_millis(10)).max(own_time(rate))
}

/// Time that the measured packet and one packet before it take at `rate` bytes per second. Zero while the
/// rate is unknown.
fn own_time(rate: u64) -> Duration {
    if rate == 0 { Duration::ZERO } else { Duration::from_secs_f64(2.0 * PACKET as f64 / rate as f64) }
}

/// Which controller to run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum RateControl {
    /// A short queue shared by any number of flows of this kind. It does not take random loss for congestion.
    /// Beside a sender that fills a queue, as TCP does, it competes as CUBIC (docs/fairness.md).
    #[default]
    Share,
    /// CUBIC (RFC 9438), which most of the network runs. It takes every loss for congestion.
    Cubic,
    /// NewReno (RFC 9002 section 7), the simplest controller. It takes every loss for congestion.
    NewReno,
    /// Additive increase and multiplicative decrease at congestion marks. It takes losses for noise while the
    /// network marks or the queue is short.
    Aimd(AimdSteps),
    /// Packet trains: the rate follows the spacing of arrivals, whatever is lost.
    Train(TrainSteps),
    /// A fixed rate in bits per second. The user guarantees that the path carries it.
    Fixed {
        /// Bits per second, IP headers included.
        bits_per_second: u64,
    },
    /// No limit. For messages alone, whose senders control their rate themselves: a stream has no other
    /// control.
    Open,
    /// A controller from outside this crate.
    Custom(Custom<dyn RateController>),
}

impl RateControl {
    /// Names that a user can write.
    const NAMES: [&'static str; 7] = ["share", "cubic", "newreno", "aimd:1,80", "train", "fixed:25mbit", "open"];

    /// Makes the controller. The user vouches for a fixed rate; every other one keeps the floor of sanity.
    pub(crate) fn build(self) -> Controller {
        let is_limited = !matches!(self, Self::Fixed { .. });
        Controller::new(self.made(), is_limited)
    }

    fn made(self) -> Box<dyn RateController> {
        match self {
            Self::Share => Box::new(Share::default()),
            Self::Cubic => Box::new(Cubic::default()),
            Self::NewReno => Box::new(NewReno::default()),
            Self::Aimd(steps) => Box::new(Aimd::new(steps)),
            Self::Train(steps) => Box::new(Train::new(steps)),
            Self::Fixed { bits_per_second } => Box::new(Fixed::new(bits_per_second)),
            Self::Open => Box::new(Open),
            Self::Custom(custom) => custom.build(),
        }
    }
}

impl fmt::Display for RateControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share => f.write_str("share"),
            Self::Cubic => f.write_str("cubic"),
            Self::NewReno => f.write_str("newreno"),
            Self::Aimd(steps) => steps.fmt(f),
            Self::Train(steps) => steps.fmt(f),
            Self::Fixed { bits_per_second } => write!(f, "fixed:{bits_per_second}bit"),
            Self::Open => f.write_str("open"),
            Self::Custom(custom) => custom.fmt(f),
        }
    }
}

/// A text that is not a rate control.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BadRateControl {
    /// The name is unknown.
    Name(String),
    /// The name `bbr`, of the default before `share`.
    Replaced,
    /// The steps after `aimd:` are not steps.
    Steps(String),
    /// The constants after `train:` are not in range.
    Train(String),
    /// The rate after `fixed:` is not a rate.
    Rate(UnitError),
    /// The rate after `fixed:` is below 8 kbit/s.
    TooLow(Rate),
}

impl fmt::Display for BadRateControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                let allowed = nearest(name, &RateControl::NAMES);
                write!(
                    f,
                    "unknown rate control {name:?}{allowed}; fixed is a rate that the path must carry, and \
                     open limits nothing"
                )
            }
            Self::Replaced => f.write_str(
                "rate control \"bbr\" was replaced by \"share\", which is the default; write share, or leave the choice out",
            ),
            Self::Steps(text) => write!(
                f,
                "bad steps {text:?} of aimd; write them like aimd:1,80 (packets by which the window grows in a round \
                 trip, at least 1, and the percentage of it that is left after congestion, 1 to 99)"
            ),
            Self::Train(text) => write!(
                f,
                "bad constants {text:?} of train; write them like train:16,50,95 (packets of a train, 4 to 100; alpha, 10 \
                 to 95 percent; beta, above alpha, to 99 percent) and append ,printed for the paper's form"
            ),
            Self::Rate(error) => write!(f, "the rate of fixed: {error}"),
            Self::TooLow(rate) => write!(f, "the rate of fixed is {rate}; write at least 8kbit"),
        }
    }
}

impl core::error::Error for BadRateControl {}

impl FromStr for RateControl {
    type Err = BadRateControl;

    fn from_str(text: &str) -> Result<Self, BadRateControl> {
        match (text, text.split_once(':')) {
            ("bbr", _) => Err(BadRateControl::Replaced),
            ("share", _) => Ok(Self::Share),
            ("cubic", _) => Ok(Self::Cubic),
            ("newreno", _) => Ok(Self::NewReno),
            ("aimd", _) => Ok(Self::Aimd(AimdSteps::MARKED)),
            (_, Some(("aimd", steps))) => {
                let bad = || BadRateControl::Steps(steps.to_owned());
                AimdSteps::parse(steps).map(Self::Aimd).ok_or_else(bad)
            }
            ("open", _) => Ok(Self::Open),
            ("train", _) => Ok(Self::Train(TrainSteps::CHOSEN)),
            (_, Some(("train", steps))) => {
                let bad = || BadRateControl::Train(steps.to_owned());
                TrainSteps::parse(steps).map(Self::Train).ok_or_else(bad)
            }
            (_, Some(("fixed", rate))) => {
                let rate: Rate = rate.parse().map_err(BadRateControl::Rate)?;
                let bits_per_second = rate.bits_per_second();
                if bits_per_second < LEAST_FIXED {
                    return Err(BadRateControl::TooLow(rate));
                }
                Ok(Self::Fixed { bits_per_second })
            }
            _ => Err(BadRateControl::Name(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (name, control) in [
            ("share", RateControl::Share),
            ("cubic", RateControl::Cubic),
            ("newreno", RateControl::NewReno),
            ("open", RateControl::Open),
        ] {
            assert_eq!((name.parse(), control.to_string().as_str()), (Ok(control), name));
        }
        let aimd = RateControl::Aimd(AimdSteps::PRINTED);
        assert_eq!((aimd.to_string().as_str(), "aimd:1,50".parse()), ("aimd:1,50", Ok(aimd)));
        assert_eq!("aimd".parse(), Ok(RateControl::Aimd(AimdSteps::MARKED)));
        let fixed = RateControl::Fixed { bits_per_second: 25_000_000 };
        assert_eq!("fixed:25mbit".parse(), Ok(fixed));
        assert_eq!(fixed.to_string().parse(), Ok(fixed));
        for bad in [
            "",
            "cubik",
            "aimd:",
            "aimd:1,0",
            "fixed",
            "fixed:25",
            "fixed:mbit",
            "fixed:0bit",
            "fixed:99999999999999999999bit",
        ] {
            assert!(bad.parse::<RateControl>().is_err(), "{bad}");
        }
        assert_eq!("bbr".parse::<RateControl>(), Err(BadRateControl::Replaced));
    }
}
