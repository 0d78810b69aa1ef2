//! Congestion marks (RFC 3168): the mark of a datagram, and the number of each mark that the peer counted.

/// The ECN field of an IP header whose sender is ECN-capable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "RFC 3168 has these")]
pub enum Ecn {
    /// ECT(1), `01`.
    Ect1 = 1,
    /// ECT(0), `10`, which this transport sends.
    Ect0 = 2,
    /// Congestion experienced, `11`.
    Ce = 3,
}

/// Packets received with each mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EcnTally {
    pub ect0: u64,
    pub ect1: u64,
    pub ce: u64,
}

impl EcnTally {
    /// Counts one received packet.
    pub(crate) fn count(&mut self, mark: Option<Ecn>) {
        match mark {
            Some(Ecn::Ect0) => self.ect0 += 1,
            Some(Ecn::Ect1) => self.ect1 += 1,
            Some(Ecn::Ce) => self.ce += 1,
            None => {}
        }
    }

    /// Whether any marked packet came. Without one, the counts need not be reported.
    pub(crate) fn any(&self) -> bool {
        self.ect0 + self.ect1 + self.ce > 0
    }
}
