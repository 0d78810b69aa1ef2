//! The bodies of TRAIN and TRAIN_REPORT (docs/wire.md section 5), which packet trains use for rate control.
//!
//! `wire/frame.rs` calls this for the two frame types. Invariant: a parsed report names a train of at most
//! [`MAX_TRAIN`] packets.

use core::time::Duration;

use super::bytes::{Full, Reader, Writer};
use super::frame::Malformed;

/// Maximum number of packets of a train.
pub const MAX_TRAIN: u16 = 1_024;

/// When the first and the last packet of a train arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a version of the wire format has these fields")]
pub struct TrainReport {
    /// Number of the first packet, which carried TRAIN.
    pub first: u64,
    /// Distance of the last packet that came above the first, 1 to [`MAX_TRAIN`] - 1.
    pub distance: u16,
    /// Arrival time of the first packet on the receiver's clock in microseconds, modulo 2^32.
    pub arrival: u32,
    /// Time from the first arrival to the last, in whole microseconds.
    pub span: Duration,
}

impl TrainReport {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let first = r.varint()?;
        let distance = u16::try_from(r.varint()?).ok().filter(|distance| (1..MAX_TRAIN).contains(distance));
        let distance = distance.ok_or(Malformed::Field("distance"))?;
        let arrival = u32::from_be_bytes(r.array()?);
        Ok(Self { first, distance, arrival, span: Duration::from_micros(r.varint()?) })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.varint(self.first)?;
        w.varint(self.distance.into())?;
        w.bytes(&self.arrival.to_be_bytes())?;
        w.varint(u64::try_from(self.span.as_micros()).unwrap_or(u64::MAX))
    }
}

/// Reads the number of packets of a TRAIN.
pub(super) fn parse_packets(r: &mut Reader<'_>) -> Result<u16, Malformed> {
    u16::try_from(r.varint()?)
        .ok()
        .filter(|packets| (2..=MAX_TRAIN).contains(packets))
        .ok_or(Malformed::Field("packets"))
}
