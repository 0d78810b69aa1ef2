//! Stand-ins until tidewire-codec has these.
use core::ops::Add;
/// Source id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u64);
/// Repair id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RepairId {
    /// First.
    pub first: SourceId,
    /// Count.
    pub count: u16,
    /// Key.
    pub key: u16,
}
/// Code.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Rlc.
    Rlc,
    /// Cauchy.
    Cauchy,
}
impl Add<u64> for SourceId {
    type Output = Self;
    fn add(self, n: u64) -> Self {
        Self(self.0.saturating_add(n))
    }
}
