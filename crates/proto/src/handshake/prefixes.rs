//! Limits handshakes per network: token buckets for address prefixes of two lengths, in fixed memory.
//!
//! The responder uses it only under load, for HELLOs with a proven address. A peer with many addresses in one
//! network must not take all of the responder's time. A handshake takes a token of its narrow network (/24 of
//! IPv4, /56 of IPv6) and one of its wide network (/16, /32). The wide bucket limits how many narrow buckets
//! one provider can empty. Without it, one /32 of IPv6 has enough /56 networks to empty them all. A secret
//! key hashes prefixes into [`BUCKETS`] places per length. Two prefixes in one place share its tokens.

use core::net::{IpAddr, SocketAddr};

use crate::Time;
use crate::crypto::MacKey;

/// Handshakes per second of a narrow network in the long run. Chosen: as many as WireGuard allows an address.
const RATE: u64 = 20;
/// Handshakes of a narrow network at once. Chosen: an office that reconnects after an outage.
const BURST: u64 = 100;
/// Size of a wide bucket in narrow buckets: 160 handshakes per second and 800 at once. Chosen: a provider
/// then uses about as much time as the 128 free handshakes per second, and can empty the buckets of 8 narrow
/// networks out of [`BUCKETS`].
const WIDE: u64 = 8;
/// Places per prefix length; 8 KiB. Chosen: of 100 networks, 91 % share a place with no other.
const BUCKETS: usize = 1_024;

/// Cost of one handshake for a narrow network, as the time in nanoseconds that earns it back.
const TOKEN: u64 = 1_000_000_000 / RATE;

/// Token buckets of a responder, described in the module documentation.
pub(super) struct Prefixes {
    key: MacKey,
    narrow: Buckets,
    wide: Buckets,
}

impl Prefixes {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        let (narrow, wide) = (Buckets::new(TOKEN), Buckets::new(TOKEN / WIDE));
        Self { key: MacKey::from_bytes(&seed), narrow, wide }
    }

    /// Takes a token for a handshake with this address, if both networks have one. A refused handshake takes
    /// none.
    pub(super) fn admit(&mut self, now: Time, from: SocketAddr) -> bool {
        let (narrow, wide) = networks(from.ip());
        let (narrow, wide) = (self.place(narrow), self.place(wide));
        let admitted = self.narrow.after(now, narrow).zip(self.wide.after(now, wide));
        if let Some((after, wide_after)) = admitted {
            (self.narrow.spent_until[narrow], self.wide.spent_until[wide]) = (after, wide_after);
        }
        admitted.is_some()
    }

    fn place(&self, prefix: u64) -> usize {
        let hash = u128::from_be_bytes(self.key.tag(&prefix.to_be_bytes()));
        (hash % BUCKETS as u128) as usize
    }
}
/// Token buckets of prefixes of one length.
struct Buckets {
    /// Cost of one handshake in nanoseconds.
    token: u64,
    /// Time until which each place is in debt. A place whose time is a whole burst after now has no token
    /// left. Allocated at the first use.
    spent_until: Box<[Time]>,
}

impl Buckets {
    fn new(token: u64) -> Self {
        Self { token, spent_until: Box::default() }
    }

    /// Time until which a place is in debt after one more handshake, if it has a token.
    fn after(&mut self, now: Time, place: usize) -> Option<Time> {
        if self.spent_until.is_empty() {
            self.spent_until = vec![Time::ZERO; BUCKETS].into();
        }
        let after = Time(now.0.max(self.spent_until.get(place)?.0).saturating_add(self.token));
        // A burst takes the same time to earn back at either length.
        (after.0 <= now.0.saturating_add(BURST * TOKEN)).then_some(after)
    }
}

/// The narrow network of an address (of an office or a household) and the wide one (of a provider). All
/// network numbers are distinct.
fn networks(address: IpAddr) -> (u64, u64) {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let bits = u64::from(u32::from(v4));
            (bits >> 8, bits >> 16 | 1 << 32)
        }
        IpAddr::V6(v6) => {
            let bits = u128::from(v6);
            ((bits >> 72) as u64 | 1 << 63, (bits >> 96) as u64 | 1 << 62)
        }
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

    /// An attacker with a /32 of IPv6 uses another /56 for each handshake. Other networks keep their tokens.
    #[test]
    fn a_provider_cannot_empty_the_buckets_of_others() {
        let mut prefixes = Prefixes::new([7; 32]);
        let mut taken = 0;
        for ms in 1_000..11_000 {
            for n in 0..20_u128 {
                let address = 0x2001_0db8 << 96 | (ms as u128 * 20 + n) << 72 | 1;
                let from = SocketAddr::new(IpAddr::V6(address.into()), 4_000);
                taken += u32::from(prefixes.admit(Time::from_millis(ms), from));
            }
        }
        // 800 at once and 160 per second.
        assert!((2_390..=2_401).contains(&taken), "{taken}");
        let now = Time::from_millis(11_000);
        let others: Vec<String> = (0..500).map(|n| format!("2a00:{n:x}::1")).collect();
        let served =
            others.iter().filter(|other| prefixes.admit(now, SocketAddr::new(other.parse().unwrap(), 1))).count();
        // The attacker empties one bucket in 1,024.
        assert!(served >= 495, "{served} of 500 other networks");
        assert!(admitted(&mut prefixes, now, "192.0.2.1") >= 98, "or few share its bucket");
        assert!(admitted(&mut prefixes, now, "2001:db8:ffff::1") <= 1, "the attacker has none left");
    }
}
