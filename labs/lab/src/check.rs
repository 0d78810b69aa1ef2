//! Compares the lab with the link that it should be: numbered packets cross it, and the link model says what
//! should happen to the same packets.
//!
//! The verb `tidewire-lab check` calls it. There are three crossings from the near host to the far one: more
//! than the rate, without impairments, to measure the rate; half the rate in short packets, for losses and
//! their bursts; half the rate in full packets, for the delay. A link with a policer has one more, over that
//! policer alone. A second [`Link`](tidewire_sim::link::Link) with the same seed gets each packet at the time
//! it came to the link, and says what should become of it; another gets it at the time it was sent, and says
//! when it should arrive. A difference is an error of the lab. Invariant: whether a finding holds depends
//! only on its numbers.

use std::time::Duration;

use tidewire_proto::Time;
use tidewire_sim::duplex::{DuplexConfig, DuplexLink};
use tidewire_sim::link::{Fate, LinkConfig, Loss, Queue};
use tidewire_units::Probability;

use crate::crossing::{Crossing, Packets, cross};
use crate::hosts::Hosts;
use crate::late::Late;
use crate::processor::{Look, Shares};
use crate::shaping::{last_bucket, mean_rate, police_found, policed, slots_found};

/// Names of the crossings, by what they measure.
pub(crate) const RATE: &str = "rate";
pub(crate) const LOSSES: &str = "losses";
pub(crate) const DELAY: &str = "delay";
pub(crate) const POLICER: &str = "policer";
/// Duration of the crossings for the rate and for the delay.
pub(crate) const SHORT: Duration = Duration::from_secs(5);
/// Allowed relative error of the rate. This bound and those of bursts and delay are chosen: comparisons of
/// transports need them.
pub(crate) const RATE_OFF: f64 = 0.005;
/// Allowed number of standard deviations from the mean.
pub(crate) const DEVIATIONS: f64 = 4.0;
/// Allowed relative error of the mean burst, beyond chance.
const BURST_OFF: f64 = 0.02;
/// Fraction of packets whose fate may differ: those sent at the very edge of a blackout or of a full queue.
/// Chosen.
pub(crate) const EDGES: f64 = 1e-4;
/// Delay that the lab may add, in milliseconds, at the 95th percentile.
pub(crate) const ADDED_MS: f64 = 0.3;
/// Offered load relative to the rate, to measure the rate.
pub(crate) const OVERLOAD: f64 = 1.1;
/// Offered load relative to the rate in the other crossings.
pub(crate) const LOAD: f64 = 0.5;
/// Least interval between packets. With more packets the machine would be measured.
pub(crate) const LEAST_DISTANCE: Duration = Duration::from_micros(100);
/// IP bytes of full, usual and short packets.
pub(crate) const FULL: usize = 1_500;
pub(crate) const USUAL: usize = 1_250;
pub(crate) const SHORT_PACKET: usize = 256;

/// One figure of the lab.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Name of the figure.
    pub name: &'static str,
    /// Name of its crossing.
    pub crossing: &'static str,
    /// Unit; empty for a ratio or a count.
    pub unit: &'static str,
    /// The expected value.
    pub wanted: f64,
    /// The allowed difference.
    pub allowed: f64,
    /// The measured value.
    pub measured: f64,
}

impl Finding {
    /// Whether the difference is within what is allowed.
    pub fn holds(&self) -> bool {
        (self.measured - self.wanted).abs() <= self.allowed
    }
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// Each figure that the scenario has.
    pub findings: Vec<Finding>,
    /// Delay that the lab added, over all full packets.
    pub added: Late,
    /// Shares of the processor in each crossing, as far as the system reports them.
    pub shares: Vec<(&'static str, Shares)>,
}

impl Report {
    /// Names of the figures that do not hold, and the shares of the processor in the crossing that was
    /// disturbed most.
    pub fn off(&self) -> (Vec<&'static str>, Option<Shares>) {
        let off = || self.findings.iter().filter(|finding| !finding.holds());
        let worst = |(_, one): &&(_, Shares), (_, other): &&(_, Shares)| one.away().total_cmp(&other.away());
        let concerned = self.shares.iter().filter(|(crossing, _)| off().any(|finding| finding.crossing == *crossing));
        (off().map(|finding| finding.name).collect(), concerned.max_by(worst).map(|(_, shares)| *shares))
    }
}

/// Checks the lab with `link`. The crossing for losses lasts `time`.
///
/// # Errors
/// Fails if the hosts cannot be made or a packet cannot be sent.
pub fn run(link: &DuplexConfig, time: Duration) -> anyhow::Result<Report> {
    let hosts = Hosts::start()?;
    let mut link = link.clone();
    // A changed byte could be in the packet's number.
    (link.forward.corrupt, link.back.corrupt) = (Probability::ZERO, Probability::ZERO);
    let (mut findings, mut shares) = (Vec::new(), Vec::new());
    let mut cross = |name, link: &DuplexConfig, packets| {
        let before = Look::now();
        let crossing = cross(&hosts, link, &packets)?;
        let passed = before.zip(Look::now()).and_then(|(before, now)| now.since(&before));
        shares.extend(passed.map(|passed| (name, passed)));
        anyhow::Ok(crossing)
    };
    let mut alone = link.clone();
    if let Some(rate) = mean_rate(&link.forward) {
        alone.forward = unimpaired(&link.forward);
        let crossing = cross(RATE, &alone, packets(&alone.forward, FULL, OVERLOAD, SHORT))?;
        match &link.forward.mac.slots {
            Some(slots) => findings.extend(slots_found(&crossing, rate, slots, link.forward.delay)),
            None => findings.extend(rate_found(&crossing, rate)),
        }
    }
    if let Some(bucket) = last_bucket(&link.forward.police)
        && let Some((only, packets)) = policed(&link.forward, bucket)
    {
        alone.forward = only;
        findings.extend(police_found(&cross(POLICER, &alone, packets)?, &bucket));
    }
    let crossing = cross(LOSSES, &link, packets(&link.forward, SHORT_PACKET, LOAD, time))?;
    let fates = fates(&link, &crossing, crossing.entered());
    findings.extend(losses_found(&link.forward.loss, &pattern(&crossing, &fates)));
    findings.push(fates_found(&crossing, &fates));
    let crossing = cross(DELAY, &link, packets(&link.forward, USUAL, LOAD, SHORT))?;
    let added = added(&crossing, &self::fates(&link, &crossing, &crossing.sent));
    if let Some(measured) = added.distribution().quantile(0.95) {
        let (name, unit) = ("added delay p95", "ms");
        findings.push(Finding { name, crossing: DELAY, unit, wanted: 0.0, allowed: ADDED_MS, measured });
    }
    Ok(Report { findings, added, shares })
}

/// The same rate, slots, queue and delay, without impairments. With slots the queue holds what comes while
/// the link is closed.
pub(crate) fn unimpaired(link: &LinkConfig) -> LinkConfig {
    let mut plain = LinkConfig::default();
    (plain.capacity, plain.queue, plain.delay) = (link.capacity.clone(), link.queue, link.delay);
    (plain.headers, plain.mtu, plain.seed) = (link.headers, link.mtu, link.seed);
    plain.mac.slots = link.mac.slots;
    if let Some(slots) = plain.mac.slots {
        plain.queue = Some(Queue::Time(2 * slots.period()));
    }
    plain
}

/// Packets that fill the fraction `load` of the link's rate for `time`, or as many as can be sent on time.
pub(crate) fn packets(link: &LinkConfig, ip_bytes: usize, load: f64, time: Duration) -> Packets {
    let ip_bytes = link.mtu.map_or(ip_bytes, |mtu| ip_bytes.min(mtu));
    let distance = mean_rate(link).map_or(0.0, |rate| 8.0 * ip_bytes as f64 / (load * rate));
    let every = Duration::from_secs_f64(distance).max(LEAST_DISTANCE);
    let count = time.as_nanos().div_ceil(every.as_nanos());
    Packets { ip_bytes, every, count: usize::try_from(count).unwrap_or(usize::MAX) }
}

/// What the link model says about each packet, if they come to the link at these times.
fn fates(config: &DuplexConfig, crossing: &Crossing, times: &[Time]) -> Vec<Fate> {
    let mut link = DuplexLink::new(config).forward;
    let payload = crossing.ip_bytes.saturating_sub(config.forward.headers);
    let fate = |&at| {
        while link.poll_delivery(at).is_some() {}
        link.send(at, payload, ())
    };
    times.iter().map(fate).collect()
}

/// For each packet that reached the loss model, whether it was lost.
pub(crate) fn pattern(crossing: &Crossing, fates: &[Fate]) -> Vec<bool> {
    let met = crossing.arrived.iter().zip(fates).filter(|(_, fate)| matches!(fate, Fate::Lost | Fate::Carried { .. }));
    met.map(|(arrived, _)| arrived.is_none()).collect()
}

pub(crate) fn rate_found(crossing: &Crossing, wanted: f64) -> Option<Finding> {
    let arrived: Vec<_> = crossing.arrived.iter().flatten().collect();
    let (first, last) = (arrived.iter().min()?, arrived.iter().max()?);
    let bits = 8.0 * crossing.ip_bytes as f64 * (arrived.len() - 1) as f64;
    let measured = bits / last.since(**first).as_secs_f64();
    Some(Finding { name: "rate", crossing: RATE, unit: "bit/s", wanted, allowed: RATE_OFF * wanted, measured })
}

/// Loss rate and mean burst of a model, if it has them.
pub(crate) fn share_and_burst(loss: &Loss) -> Option<(f64, f64)> {
    match loss {
        Loss::None => Some((0.0, 1.0)),
        Loss::Iid(loss) => Some((loss.value(), 1.0 / (1.0 - loss.value()))),
        Loss::Gilbert(gilbert) => Some((gilbert.loss().value(), gilbert.mean_burst())),
        Loss::Trace(_) => None,
    }
}

/// The findings about loss rate and mean burst, if the loss model has them.
fn losses_found(loss: &Loss, lost: &[bool]) -> Vec<Finding> {
    let Some((share, burst)) = share_and_burst(loss) else { return Vec::new() };
    let count = lost.iter().filter(|&&lost| lost).count() as f64;
    let packets = lost.len() as f64;
    let allowed = DEVIATIONS * variance(share, burst, packets).sqrt();
    let finding =
        |name, wanted, allowed, measured| Finding { name, crossing: LOSSES, unit: "", wanted, allowed, measured };
    let mut found = vec![finding("loss", share, allowed, count / packets)];
    let bursts = lost.chunk_by(|one, next| one == next).filter(|run| run[0]).count() as f64;
    if bursts > 0.0 {
        // Burst lengths are geometric.
        let deviation = (burst * (burst - 1.0) / bursts).sqrt();
        let allowed = (BURST_OFF * burst).max(DEVIATIONS * deviation);
        found.push(finding("mean burst", burst, allowed, count / bursts));
    }
    found
}

/// Variance of the loss rate over so many packets.
pub(crate) fn variance(share: f64, burst: f64, packets: f64) -> f64 {
    // Correlation of neighbours: 0 for independent losses, whose mean burst is 1 / (1 - p).
    let alike = 1.0 - 1.0 / ((1.0 - share) * burst);
    share * (1.0 - share) / packets * (1.0 + alike) / (1.0 - alike)
}

/// Packets that were lost and should not have been, or the other way round.
pub(crate) fn fates_found(crossing: &Crossing, fates: &[Fate]) -> Finding {
    let differs = |(arrived, fate): &(&Option<Time>, &Fate)| arrived.is_some() != matches!(fate, Fate::Carried { .. });
    let differ = crossing.arrived.iter().zip(fates).filter(differs).count();
    let allowed = (EDGES * fates.len() as f64).floor();
    let (name, measured) = ("other fates", differ as f64);
    Finding { name, crossing: LOSSES, unit: "", wanted: 0.0, allowed, measured }
}

/// How much later packets arrived than the link model says.
pub(crate) fn added(crossing: &Crossing, fates: &[Fate]) -> Late {
    let mut late = Late::default();
    for (arrived, fate) in crossing.arrived.iter().zip(fates) {
        if let (Some(arrived), Fate::Carried { arrives }) = (arrived, fate) {
            late.add(arrived.since(*arrives));
        }
    }
    late
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A crossing in virtual time: the lab without the machine.
    fn simulated(link: &DuplexConfig, packets: &Packets, late: Duration) -> Crossing {
        let sent: Vec<_> = (0..packets.count).map(|n| Time::ZERO + packets.every * n as u32).collect();
        let mut crossing = Crossing { ip_bytes: packets.ip_bytes, sent, entered: Vec::new(), arrived: Vec::new() };
        let arrives = |fate: &Fate| match fate {
            Fate::Carried { arrives } => Some(*arrives + late),
            _ => None,
        };
        crossing.arrived = fates(link, &crossing, &crossing.sent).iter().map(arrives).collect();
        crossing
    }

    fn link(loss: &str) -> DuplexConfig {
        let scenario = format!("[link]\nrate = \"50mbit\"\nrtt = \"20ms\"\n[forward]\nloss = \"{loss}\"\n");
        tidewire_sim::scenario::Scenario::parse(&scenario, Path::new("check.toml")).unwrap().link
    }

    #[test]
    fn the_link_itself_passes() {
        for loss in ["none", "2%", "gilbert:10%,4"] {
            let link = link(loss);
            let load = packets(&link.forward, SHORT_PACKET, LOAD, Duration::from_secs(60));
            let crossing = simulated(&link, &load, Duration::ZERO);
            let fates = fates(&link, &crossing, &crossing.sent);
            let found = losses_found(&link.forward.loss, &pattern(&crossing, &fates));
            assert_eq!(found.len(), 1 + usize::from(loss != "none"));
            assert!(found.iter().all(Finding::holds), "{found:?}");
            assert_eq!(fates_found(&crossing, &fates).measured, 0.0);
            let mut plain = link.clone();
            plain.forward = unimpaired(&link.forward);
            let load = packets(&plain.forward, FULL, OVERLOAD, SHORT);
            let rate = rate_found(&simulated(&plain, &load, Duration::ZERO), 50e6).unwrap();
            assert!((rate.measured / 50e6 - 1.0).abs() < 1e-6, "{rate:?}");
        }
    }

    #[test]
    fn what_is_off_is_explained_by_its_own_crossing() {
        let found =
            |name, crossing, measured| Finding { name, crossing, unit: "", wanted: 0.0, allowed: 1.0, measured };
        let shares = |stolen| Shares { lab: 0.2, others: 0.0, stolen };
        let mut report = Report {
            findings: vec![found("rate", RATE, 0.5), found("loss", LOSSES, 2.0), found("added delay p95", DELAY, 1.8)],
            added: Late::default(),
            shares: vec![(RATE, shares(0.5)), (LOSSES, shares(0.1)), (DELAY, shares(0.0))],
        };
        assert_eq!(report.off(), (vec!["loss", "added delay p95"], Some(shares(0.1))));
        report.findings[1].measured = 0.0;
        assert_eq!(report.off(), (vec!["added delay p95"], Some(shares(0.0))));
        report.shares.clear();
        assert_eq!(report.off().1, None);
    }

    #[test]
    fn a_lab_of_another_loss_rate_burst_or_delay_does_not() {
        let claimed = link("gilbert:10%,4");
        let load = packets(&claimed.forward, SHORT_PACKET, LOAD, Duration::from_secs(60));
        let late = Duration::from_micros(400);
        for (truly, name) in [("gilbert:11%,4", "loss"), ("gilbert:10%,4.3", "mean burst"), ("10%", "other fates")] {
            let crossing = simulated(&link(truly), &load, late);
            let fates = fates(&claimed, &crossing, &crossing.sent);
            let mut found = losses_found(&claimed.forward.loss, &pattern(&crossing, &fates));
            found.push(fates_found(&crossing, &fates));
            assert!(found.iter().any(|finding| finding.name == name && !finding.holds()), "{found:?}");
            assert_eq!(added(&crossing, &fates).distribution().quantile(0.5), Some(0.4));
        }
    }
}
