//! Who makes how many handshakes: a token bucket for each network prefix, in fixed memory.
//!
//! Asked under load only, of HELLOs that have proved their address: who has many addresses of one network shall not take all of a responder's
//! time. Prefixes are hashed under a key that nobody else knows into [`BUCKETS`] places; two that share one share its tokens.

use core::net::{IpAddr, SocketAddr};

use crate::Time;
use crate::crypto::MacKey;

/// Handshakes of a prefix in a second, in the long run; WireGuard gives an address as many (RELIABILITY section 1.1).
const RATE: u64 = 20;
/// Handshakes of a prefix at once. Chosen: an office that comes back after an outage.
const BURST: u64 = 100;
/// Places; 8 KiB. Chosen: 100 networks in 16 leave 91 % of them alone.
const BUCKETS: usize = 1_024;

/// What one handshake costs, in the nanoseconds that earn it.
const TOKEN: u64 = 1_000_000_000 / RATE;

/// See the module.
pub(super) struct Prefixes {
    key: MacKey,
    /// Until when each place is in debt: more than [`BURST`] tokens ahead of now it has none left. Made when first asked.
    spent_until: Box<[Time]>,
}

impl Prefixes {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self { key: MacKey::from_bytes(&seed), spent_until: Box::default() }
    }

    /// Takes a token for a handshake with this address, if there is one.
    pub(super) fn admit(&mut self, now: Time, from: SocketAddr) -> bool {
        if self.spent_until.is_empty() {
            self.spent_until = vec![Time::ZERO; BUCKETS].into();
        }
        let place = self.place(from.ip());
        let Some(spent_until) = self.spent_until.get_mut(place) else { return false };
        let after = Time(now.0.max(spent_until.0).saturating_add(TOKEN));
        let admitted = after.0 <= now.0.saturating_add(BURST * TOKEN);
        if admitted {
            *spent_until = after;
        }
        admitted
    }

    /// Of the /24 of IPv4, and the /56 of IPv6, which is what a household gets.
    fn place(&self, address: IpAddr) -> usize {
        let prefix = match address.to_canonical() {
            IpAddr::V4(v4) => u64::from(u32::from(v4) >> 8),
            IpAddr::V6(v6) => (u128::from(v6) >> 72) as u64 | 1 << 63,
        };
        let hash = u128::from_be_bytes(self.key.tag(&prefix.to_be_bytes()));
        (hash % BUCKETS as u128) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn admitted(prefixes: &mut Prefixes, now: Time, address: &str) -> usize {
        let from = SocketAddr::new(address.parse().unwrap(), 4_000);
        (0..1_000).take_while(|_| prefixes.admit(now, from)).count()
    }

    #[test]
    fn a_network_has_its_burst_and_then_its_rate_and_leaves_others_theirs() {
        let mut prefixes = Prefixes::new([7; 32]);
        let begin = Time::from_millis(1_000);
        assert_eq!(admitted(&mut prefixes, begin, "192.0.2.1"), 100);
        assert_eq!(admitted(&mut prefixes, begin, "192.0.2.200"), 0);
        assert_eq!(admitted(&mut prefixes, begin, "::ffff:192.0.2.3"), 0);
        assert_eq!(admitted(&mut prefixes, begin, "198.51.100.1"), 100);
        assert_eq!(admitted(&mut prefixes, begin, "2001:db8::1"), 100);
        assert_eq!(admitted(&mut prefixes, begin, "2001:db8:0:ff::1"), 0);
        assert_eq!(admitted(&mut prefixes, begin, "2001:db8:0:100::1"), 100);
        assert_eq!(admitted(&mut prefixes, begin + Duration::from_millis(500), "192.0.2.1"), 10);
        assert_eq!(admitted(&mut prefixes, begin + Duration::from_secs(3_600), "192.0.2.1"), 100);
    }
}
