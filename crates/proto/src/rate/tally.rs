//! Counts of packets and of losses among them, for the controllers that judge who dropped a packet.

/// Packets, and how many of them were lost. Counts are fractions where old packets fade.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub packets: f64,
    pub lost: f64,
}

impl Tally {
    pub(super) fn add(&mut self, lost: bool) {
        self.packets += 1.0;
        self.lost += f64::from(u8::from(lost));
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, lost: self.lost + other.lost }
    }

    /// Part that was lost; zero without packets.
    pub(super) fn rate(&self) -> f64 {
        if self.packets > 0.0 { self.lost / self.packets } else { 0.0 }
    }
}
