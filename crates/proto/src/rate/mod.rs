//! Rate control: how many bytes may be in flight, and at what pace they leave.
//!
//! A controller sees packets, never symbols: repair packets are charged like any other, and a packet that a repair made
//! good is still a lost packet (RFC 9265). It is called by the connection for every packet and answers with a [`Budget`].

mod bbr;
mod fixed;

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

pub use bbr::Bbr;
pub use fixed::Fixed;

use crate::Time;
use crate::path::RateSample;

/// What a sender may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes in flight (IP and UDP headers included) that must not be exceeded.
    pub window: u64,
    /// Bytes per second at which packets leave.
    pub pacing: u64,
}

/// One FEEDBACK's worth of newly acknowledged packets.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// When the FEEDBACK came.
    pub now: Time,
    /// Bytes newly acknowledged.
    pub bytes: u64,
    /// Bytes still in flight after it.
    pub in_flight: u64,
    /// Newest packet number acknowledged, and the number the next packet will have.
    pub newest: u64,
    /// Number of the next packet to be sent: where the running round trip ends.
    pub next: u64,
    /// Round trip of the newest packet, if this acknowledgement gave one, and the path's least.
    pub rtt: Option<Duration>,
    /// Least round trip of the last ten seconds.
    pub min_rtt: Duration,
    /// Delivery rate over the last round trip, if it could be measured.
    pub rate: Option<RateSample>,
}

/// Packets found lost at one moment.
#[derive(Clone, Copy, Debug)]
pub struct LossSample {
    /// When they were given up.
    pub now: Time,
    /// Their bytes.
    pub bytes: u64,
    /// When the newest of them had left.
    pub sent: Time,
}

/// A congestion controller.
pub trait RateController: Send + fmt::Debug {
    /// A packet left; `in_flight` counts it.
    fn on_sent(&mut self, _now: Time, _bytes: u64, _in_flight: u64) {}
    /// Packets were acknowledged.
    fn on_ack(&mut self, ack: &AckSample);
    /// Packets were lost.
    fn on_loss(&mut self, _loss: &LossSample) {}
    /// The peer counted `marked` more packets with a congestion mark.
    fn on_ecn(&mut self, _now: Time, _marked: u64) {}
    /// What may be sent.
    fn budget(&self) -> Budget;
    /// Whether losses now are the bottleneck queue's own, as far as the delay tells: then they say nothing about the medium.
    fn is_congested(&self) -> bool {
        false
    }
}

/// Initial window (RFC 6928, RFC 9002 section 7.2): ten packets.
pub(crate) const INITIAL_WINDOW: u64 = 10 * 1_500;

/// Which controller to run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum RateControl {
    /// Model of the bottleneck after the BBR family; random loss is no sign of congestion.
    #[default]
    Bbr,
    /// A rate that the user vouches for, in bits per second.
    Fixed {
        /// Bits per second, IP headers included.
        bits_per_second: u64,
    },
}

impl RateControl {
    pub(crate) fn build(self) -> Box<dyn RateController> {
        match self {
            Self::Bbr => Box::new(Bbr::default()),
            Self::Fixed { bits_per_second } => Box::new(Fixed::new(bits_per_second)),
        }
    }
}

impl fmt::Display for RateControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bbr => f.write_str("bbr"),
            Self::Fixed { bits_per_second } => write!(f, "fixed:{bits_per_second}bit"),
        }
    }
}

/// A name that is no rate controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownRateControl(String);

impl fmt::Display for UnknownRateControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown rate control {:?}; known: bbr, fixed:25000000bit (bits per second)", self.0)
    }
}

impl core::error::Error for UnknownRateControl {}

impl FromStr for RateControl {
    type Err = UnknownRateControl;

    fn from_str(text: &str) -> Result<Self, UnknownRateControl> {
        let unknown = || UnknownRateControl(text.to_owned());
        match text.split_once(':') {
            None if text == "bbr" => Ok(Self::Bbr),
            Some(("fixed", rate)) => {
                let digits = rate.strip_suffix("bit").ok_or_else(unknown)?;
                let (digits, scale) = match digits.as_bytes().last() {
                    Some(b'k') => (&digits[..digits.len() - 1], 1_000),
                    Some(b'm') => (&digits[..digits.len() - 1], 1_000_000),
                    Some(b'g') => (&digits[..digits.len() - 1], 1_000_000_000),
                    _ => (digits, 1),
                };
                let value: u64 = digits.parse().map_err(|_| unknown())?;
                let bits_per_second = value.checked_mul(scale).filter(|&rate| rate >= 8_000).ok_or_else(unknown)?;
                Ok(Self::Fixed { bits_per_second })
            }
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        assert_eq!("bbr".parse(), Ok(RateControl::Bbr));
        let fixed = RateControl::Fixed { bits_per_second: 25_000_000 };
        assert_eq!("fixed:25mbit".parse(), Ok(fixed));
        assert_eq!(fixed.to_string().parse(), Ok(fixed));
        for bad in ["", "cubik", "fixed", "fixed:25", "fixed:mbit", "fixed:0bit", "fixed:99999999999999999999bit"] {
            assert!(bad.parse::<RateControl>().is_err(), "{bad}");
        }
    }
}
