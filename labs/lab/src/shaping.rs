//! What `tidewire-lab check` adds for slots and policers: figures from formulas, beside those from the link
//! model.
//!
//! [`check`](crate::check) calls it with what crossed in real time. It repeats the arithmetic of slots and
//! buckets with its own means, so that a fault of the link model shows too. Invariant: whether a finding
//! holds depends only on its numbers.

use std::time::Duration;

use tidewire_proto::Time;
use tidewire_sim::link::{Capacity, IPV4_UDP_HEADERS, LinkConfig, Police, PoliceStep, Slots, TokenBucket};

use crate::check::{ADDED_MS, EDGES, FULL, Finding, LEAST_DISTANCE, POLICER, RATE, RATE_OFF, SHORT};
use crate::crossing::{Crossing, Packets};

/// Offered load relative to the rate of a policer. Chosen: it drops half of the packets.
const OVER_BUCKET: f64 = 2.0;
/// Share of the packets that may arrive when the link is closed: those late by more than [`ADDED_MS`], of
/// which the delay's 95th percentile allows as many.
const LATE_SHARE: f64 = 0.05;
/// Bytes of the shortest packet that carries a number.
const SHORTEST: u64 = IPV4_UDP_HEADERS as u64 + 8;

/// Bits per second that a link carries in the long run; `None` if its rate is not fixed.
pub(crate) fn mean_rate(link: &LinkConfig) -> Option<f64> {
    let Capacity::Fixed(rate) = &link.capacity else { return None };
    Some(rate.bits_per_second() as f64 * link.mac.slots.map_or(1.0, |slots| open_share(&slots)))
}

fn open_share(slots: &Slots) -> f64 {
    slots.open().as_secs_f64() / slots.period().as_secs_f64()
}

/// The rate while the link is open, as a mean over time, and the packets that came while it was closed.
/// Packets arrive `delay` after they leave the queue.
pub(crate) fn slots_found(crossing: &Crossing, wanted: f64, slots: &Slots, delay: Duration) -> Vec<Finding> {
    let left: Vec<_> = crossing.arrived.iter().flatten().map(|at| at.since(Time::ZERO + delay)).collect();
    let (Some(first), Some(last)) = (left.iter().min(), left.iter().max()) else { return Vec::new() };
    let open = open_until(slots, *last) - open_until(slots, *first);
    let bits = 8.0 * crossing.ip_bytes as f64 * (left.len() - 1) as f64;
    let (measured, allowed) = (bits / open * open_share(slots), RATE_OFF * wanted);
    let rate = Finding { name: "rate", crossing: RATE, unit: "bit/s", wanted, allowed, measured };
    let end = slots.open().as_secs_f64() + ADDED_MS / 1e3;
    let is_outside = |left: &&Duration| left.as_secs_f64() % slots.period().as_secs_f64() > end;
    let measured = left.iter().filter(is_outside).count() as f64 / left.len() as f64;
    let (name, allowed) = ("outside slots", LATE_SHARE);
    vec![rate, Finding { name, crossing: RATE, unit: "", wanted: 0.0, allowed, measured }]
}

/// Seconds for which the link was open by `time`.
fn open_until(slots: &Slots, time: Duration) -> f64 {
    let (period, open) = (slots.period().as_secs_f64(), slots.open().as_secs_f64());
    let periods = (time.as_secs_f64() / period).floor();
    periods * open + (time.as_secs_f64() - periods * period).min(open)
}

/// The last bucket of a policer, if a packet fits into it.
pub(crate) fn last_bucket(police: &Police) -> Option<TokenBucket> {
    police.steps().iter().rev().find_map(|step| step.bucket).filter(|bucket| bucket.burst >= SHORTEST)
}

/// A link that only has this bucket from the beginning on, and packets that exceed it.
pub(crate) fn policed(link: &LinkConfig, bucket: TokenBucket) -> Option<(LinkConfig, Packets)> {
    let mut only = LinkConfig::default();
    (only.delay, only.headers, only.seed) = (link.delay, link.headers, link.seed);
    let step = PoliceStep { from: Duration::ZERO, bucket: Some(TokenBucket { after: 0, ..bucket }) };
    only.police = Police::new([step]).ok()?;
    let ip_bytes = FULL.min(usize::try_from(bucket.burst).unwrap_or(FULL));
    let distance = 8.0 * ip_bytes as f64 / (OVER_BUCKET * bucket.rate.bits_per_second() as f64);
    // A rate of 1 bit/s is so slow that two packets are all that is sent.
    let every = Duration::from_secs_f64(distance).clamp(LEAST_DISTANCE, SHORT / 2);
    let count = usize::try_from(SHORT.as_nanos().div_ceil(every.as_nanos())).unwrap_or(usize::MAX);
    Some((only, Packets { ip_bytes, every, count }))
}

/// The rate that a bucket passed, and the packets that it should not have passed or dropped.
pub(crate) fn police_found(crossing: &Crossing, bucket: &TokenBucket) -> Vec<Finding> {
    let (times, ip_bytes) = (crossing.entered(), crossing.ip_bytes as f64);
    let passes = bucket_passes(bucket, crossing.ip_bytes as u64, times);
    let differ = crossing.arrived.iter().zip(&passes).filter(|(arrived, passes)| arrived.is_some() != **passes);
    let (measured, allowed) = (differ.count() as f64, (EDGES * passes.len() as f64).floor());
    let mut found = vec![Finding { name: "police fates", crossing: POLICER, unit: "", wanted: 0.0, allowed, measured }];
    // At each drop the bucket holds less than a packet.
    let dropped = |arrived: &Option<Time>| arrived.is_none();
    let (first, last) = (crossing.arrived.iter().position(dropped), crossing.arrived.iter().rposition(dropped));
    if let (Some(first), Some(last)) = (first, last)
        && first < last
    {
        let seconds = times[last].since(times[first]).as_secs_f64();
        let arrived = crossing.arrived[first..last].iter().flatten().count() as f64;
        let (wanted, measured) = (bucket.rate.bits_per_second() as f64, 8.0 * ip_bytes * arrived / seconds);
        let allowed = RATE_OFF * wanted + 8.0 * ip_bytes / seconds;
        found.push(Finding { name: "police rate", crossing: POLICER, unit: "bit/s", wanted, allowed, measured });
    }
    found
}

/// Which packets of `ip_bytes` pass a bucket that they meet at these times, by the virtual scheduling of
/// ITU-T I.371: the bucket is known by the time at which it will be full.
fn bucket_passes(bucket: &TokenBucket, ip_bytes: u64, times: &[Time]) -> Vec<bool> {
    let rate = u128::from(bucket.rate.bits_per_second());
    // Bytes as nanoseconds times the rate.
    let [cost, depth] = [ip_bytes, bucket.burst].map(|bytes| 8_000_000_000 * u128::from(bytes));
    let mut full = 0;
    let pass = |at: &Time| {
        let at = rate * u128::from(at.0);
        let would_be_full = at.max(full) + cost;
        let passes = would_be_full <= at + depth;
        full = if passes { would_be_full } else { full };
        passes
    };
    times.iter().map(pass).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tidewire_sim::link::{Fate, Link};

    fn link(settings: &[(&str, &str)]) -> LinkConfig {
        let mut link = LinkConfig::default();
        settings.iter().for_each(|(key, text)| link.set(key, text, Path::new("")).unwrap());
        link
    }

    /// A crossing of `truly` in virtual time.
    fn simulated(truly: &LinkConfig, packets: &Packets) -> Crossing {
        let mut link = Link::new(truly);
        let sent: Vec<_> = (0..packets.count).map(|n| Time::ZERO + packets.every * n as u32).collect();
        let arrives = |&at: &Time| match link.send(at, packets.ip_bytes - IPV4_UDP_HEADERS, ()) {
            Fate::Carried { arrives } => Some(arrives),
            _ => None,
        };
        let arrived = sent.iter().map(arrives).collect();
        Crossing { ip_bytes: packets.ip_bytes, sent, entered: Vec::new(), arrived }
    }

    #[test]
    fn the_bucket_that_is_claimed_holds_and_another_does_not() {
        let bucket = |police| last_bucket(&link(&[("police", police)]).police).unwrap();
        let claimed = bucket("10mbit:50kB after 1MB, 3s.. none");
        let (only, packets) = policed(&link(&[("delay", "5ms"), ("rate", "50mbit")]), claimed).unwrap();
        let found = police_found(&simulated(&only, &packets), &claimed);
        assert_eq!((found.len(), found.iter().all(Finding::holds)), (2, true), "{found:?}");
        assert!((found[1].measured / 10e6 - 1.0).abs() < 1e-3, "{found:?}");
        for (other, holds) in [("10mbit:60kB", [false, true]), ("10.2mbit:50kB", [false, false])] {
            let (only, _) = policed(&only, bucket(other)).unwrap();
            let found = police_found(&simulated(&only, &packets), &claimed);
            assert_eq!([found[0].holds(), found[1].holds()], holds, "{other}: {found:?}");
        }
        assert_eq!(last_bucket(&link(&[("police", "1mbit:20B")]).police), None);
        let slow = bucket("1bit:1500B");
        let (only, packets) = policed(&only, slow).unwrap();
        assert!(police_found(&simulated(&only, &packets), &slow).iter().all(Finding::holds));
    }

    #[test]
    fn the_slots_that_are_claimed_hold_and_others_do_not() {
        let of = |slot: &str| link(&[("rate", "50mbit"), ("slot", slot), ("delay", "10ms"), ("queue", "100ms")]);
        let check = |truly: &str| {
            let (claimed, truly) = (of("10ms:2ms"), of(truly));
            let wanted = mean_rate(&claimed).unwrap();
            let packets = Packets { ip_bytes: 1_500, every: Duration::from_micros(1_000), count: 5_000 };
            let crossing = simulated(&truly, &packets);
            slots_found(&crossing, wanted, &claimed.mac.slots.unwrap(), claimed.delay)
                .iter()
                .map(Finding::holds)
                .collect()
        };
        assert_eq!(mean_rate(&of("10ms:2ms")), Some(10e6));
        let check: &dyn Fn(&str) -> Vec<bool> = &check;
        assert_eq!(check("10ms:2ms"), [true, true]);
        assert_eq!(check("10ms:2.1ms"), [false, true]);
        assert!(!check("20ms:4ms")[1]);
        assert!(!check("none")[1]);
    }
}
