//! How many segments a bucket takes: the paper's rule as it is printed, the right one, and a fixed number.
//!
//! [`Coder`](super::Coder) asks before each bucket. Invariant: the right rule never takes more than the
//! window has room for or the application has produced.

/// What the sender knows when it begins a bucket, in bytes. The names in brackets are the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The window (w).
    pub window: u64,
    /// What the application has produced and is not acknowledged (b).
    pub buffered: u64,
    /// What is in flight (unack).
    pub unacked: u64,
    /// A full segment (maxPktSize).
    pub packet: u64,
}

/// The number of segments of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `min(b - unack, w - unack) / maxPktSize`: as many full segments as there are and as the window has
    /// room for.
    Right,
    /// The rule of section 3.3 as it is printed. Its first test compares the whole window with what is left
    /// to send, so a bucket can exceed the room of the window.
    Printed,
    /// Always the cap; zero-payload packets take the place of what is missing (section 3.2).
    Fixed,
}

impl Rule {
    /// Symbols of a bucket that begins now, from 1 to `cap`. `None` if the rule sends nothing.
    pub fn size(self, offer: Offer, cap: u16) -> Option<u16> {
        let Offer { window, buffered, unacked, packet } = offer;
        let data = buffered.checked_sub(unacked).filter(|&data| data > 0)?;
        let bytes = match self {
            Self::Fixed => return Some(cap),
            Self::Right => window.checked_sub(unacked).filter(|&room| room > 0)?.min(data),
            Self::Printed if window >= data => data,
            // The printed rule says nothing of a window that has shrunk below what is in flight.
            Self::Printed => window.checked_sub(unacked)?,
        };
        Some(u16::try_from(bytes / packet.max(1)).unwrap_or(cap).clamp(1, cap))
    }
}
