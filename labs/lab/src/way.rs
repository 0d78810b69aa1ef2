//! Compares the lab with a way over several links: numbered packets cross it, and the same links in virtual
//! time say what should happen to them.
//!
//! `tidewire-lab check` calls it for a scenario of a network. The way is that of the first flow, or from the
//! first to the last node. The crossings, figures and bounds are those of [`check`](crate::check), with these
//! differences: the loss is that of all links together, and each link may add as much delay as one alone.
//! Where a link polices, which packet exceeds a bucket depends on microseconds, so packets are counted.
//! Routers are kernels that forward. Invariant: whether a finding holds depends only on its numbers.

use std::time::Duration;

use anyhow::{Context, ensure};
use tidewire_proto::Time;
use tidewire_sim::link::{Fate, LinkConfig, Police, TokenBucket};
use tidewire_sim::network::Plan;
use tidewire_sim::network::fabric::{Fabric, Packet};
use tidewire_sim::network::topology::Topology;
use tidewire_sim::pair::End;
use tidewire_units::Probability;

use crate::check::{
    ADDED_MS, DELAY, DEVIATIONS, EDGES, FULL, Finding, LOAD, LOSSES, OVERLOAD, RATE, Report, SHORT, SHORT_PACKET,
    USUAL, added, fates_found, packets, pattern, rate_found, share_and_burst, unimpaired, variance,
};
use crate::crossing::{Crossing, Packets, cross_nodes};
use crate::nodes::Nodes;
use crate::processor::Look;
use crate::shaping::mean_rate;

/// Checks the lab with the network of `plan`. The crossing for losses lasts `time`.
///
/// # Errors
/// Fails if the network has no way to check, the nodes cannot be made, or a packet cannot be sent.
pub fn run(plan: &Plan, time: Duration) -> anyhow::Result<Report> {
    let mut topology = plan.topology.clone();
    let last = topology.nodes.len().checked_sub(1).context("the network has no nodes")?;
    let ends = plan.flows.first().map_or([0, last], |flow| [flow.from, flow.to]);
    // A changed byte could be in the packet's number.
    for joint in &mut topology.links {
        (joint.config.forward.corrupt, joint.config.back.corrupt) = (Probability::ZERO, Probability::ZERO);
    }
    let way = way(&topology, ends).context("there is no way between the ends")?;
    ensure!(!way.is_empty(), "the ends are one node");
    let nodes = Nodes::start(&topology)?;
    let narrow = way.iter().min_by(|one, other| rate(one).total_cmp(&rate(other))).context("a way has links")?.clone();
    let (mut findings, mut shares) = (Vec::new(), Vec::new());
    let mut cross = |name, topology: &Topology, packets: Packets| {
        let before = Look::now();
        let crossing = cross_nodes(&nodes, ends, topology, &packets)?;
        let passed = before.zip(Look::now()).and_then(|(before, now)| now.since(&before));
        shares.extend(passed.map(|passed| (name, passed)));
        anyhow::Ok(crossing)
    };
    if let Some(rate) = mean_rate(&narrow) {
        let plain = plain(&topology);
        let crossing = cross(RATE, &plain, packets(&narrow, FULL, OVERLOAD, SHORT))?;
        let found = rate_found(&crossing, rate);
        // The first and the last packet can be anywhere in a period.
        let period = way.iter().filter_map(|link| link.mac.slots).map(|slots| slots.period()).max().unwrap_or_default();
        let edges = rate * period.as_secs_f64() / SHORT.as_secs_f64();
        findings.extend(found.map(|found| Finding { allowed: found.allowed + edges, ..found }));
    }
    let crossing = cross(LOSSES, &topology, packets(&narrow, SHORT_PACKET, LOAD, time))?;
    let fates = predict(&topology, ends, &crossing);
    findings.extend(loss_found(&way, &pattern(&crossing, &fates)));
    findings.push(if way.iter().all(|link| link.police == Police::default()) {
        fates_found(&crossing, &fates)
    } else {
        passed_found(&crossing, &fates, &way)
    });
    let crossing = cross(DELAY, &topology, packets(&narrow, USUAL, LOAD, SHORT))?;
    let added = added(&crossing, &predict(&topology, ends, &crossing));
    if let Some(measured) = added.distribution().quantile(0.95) {
        let (name, allowed) = ("added delay p95", ADDED_MS * way.len() as f64);
        findings.push(Finding { name, crossing: DELAY, unit: "ms", wanted: 0.0, allowed, measured });
    }
    Ok(Report { findings, added, shares })
}

/// The directions of the links from one end to the other.
fn way(topology: &Topology, [from, to]: [usize; 2]) -> Option<Vec<LinkConfig>> {
    let config = |hop: &tidewire_sim::network::topology::Hop| {
        let both = &topology.links[hop.link].config;
        if hop.enters == End::Near { both.forward.clone() } else { both.back.clone() }
    };
    Some(topology.way(&topology.routes(), from, to)?.iter().map(config).collect())
}

/// The rate of a link, to find the narrowest.
fn rate(link: &LinkConfig) -> f64 {
    mean_rate(link).unwrap_or(f64::INFINITY)
}

/// The number of packets that arrived. At the edges each bucket may differ by what its rate brings in
/// [`UNPUNCTUAL`], and by a packet.
fn passed_found(crossing: &Crossing, fates: &[Fate], way: &[LinkConfig]) -> Finding {
    let wanted = fates.iter().filter(|fate| matches!(fate, Fate::Carried { .. })).count() as f64;
    let measured = crossing.arrived.iter().flatten().count() as f64;
    let buckets = way.iter().flat_map(|link| link.police.steps()).filter_map(|step| step.bucket);
    let packets = |bucket: TokenBucket| {
        1.0 + bucket.rate.bits_per_second() as f64 * UNPUNCTUAL.as_secs_f64() / (8.0 * crossing.ip_bytes as f64)
    };
    let allowed = (EDGES * fates.len() as f64).floor() + buckets.map(packets).sum::<f64>();
    Finding { name: "arrived", crossing: LOSSES, unit: "", wanted, allowed, measured }
}

/// How much later than due a packet may come to a policer. Chosen: few packets are as late on a busy machine.
const UNPUNCTUAL: Duration = Duration::from_millis(10);

/// The same links without impairments.
fn plain(topology: &Topology) -> Topology {
    let mut plain = topology.clone();
    for joint in &mut plain.links {
        (joint.config.forward, joint.config.back) = (unimpaired(&joint.config.forward), unimpaired(&joint.config.back));
    }
    plain
}

/// What the links say about each packet sent.
fn predict(topology: &Topology, [from, to]: [usize; 2], crossing: &Crossing) -> Vec<Fate> {
    let mut fabric = Fabric::new(topology);
    let mut fates = vec![Fate::Lost; crossing.sent.len()];
    let mut until = |fabric: &mut Fabric<usize>, until: Option<Time>| {
        while let Some(now) = fabric.poll_timeout().filter(|&now| until.is_none_or(|until| now <= until)) {
            while let Some(packet) = fabric.poll_arrival(now) {
                if fates[packet.payload] == Fate::Lost {
                    fates[packet.payload] = Fate::Carried { arrives: now };
                }
            }
        }
    };
    for (number, &at) in crossing.sent.iter().enumerate() {
        until(&mut fabric, Some(at));
        fabric.send(at, from, Packet::new(to, Packet::<usize>::len_of_ip(crossing.ip_bytes), false, number));
    }
    until(&mut fabric, None);
    fates
}

/// The share of the packets that all links together lose, if each loss model has one and no link sends again.
/// Not where a link polices: the links in virtual time do not tell why a packet did not arrive.
fn loss_found(way: &[LinkConfig], lost: &[bool]) -> Option<Finding> {
    let packets = lost.len() as f64;
    let (mut passes, mut deviation) = (1.0, 0.0);
    for link in way {
        let is_plain = link.mac.arq.is_none() && link.police == Police::default();
        let (share, burst) = share_and_burst(&link.loss).filter(|_| is_plain)?;
        passes *= 1.0 - share;
        deviation += variance(share, burst, packets);
    }
    let (name, allowed) = ("loss", DEVIATIONS * deviation.sqrt());
    let measured = lost.iter().filter(|&&lost| lost).count() as f64 / packets;
    Some(Finding { name, crossing: LOSSES, unit: "", wanted: 1.0 - passes, allowed, measured })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const LINE: &str = include_str!("line.toml");

    /// The lab without the machine: the packets meet the links of `truly`.
    fn simulated(truly: &Plan, packets: &Packets) -> Crossing {
        let sent: Vec<_> = (0..packets.count).map(|n| Time::ZERO + packets.every * n as u32).collect();
        let mut crossing = Crossing { ip_bytes: packets.ip_bytes, sent, entered: Vec::new(), arrived: Vec::new() };
        let arrives = |fate: &Fate| match fate {
            Fate::Carried { arrives } => Some(*arrives),
            _ => None,
        };
        crossing.arrived = predict(&truly.topology, [0, 3], &crossing).iter().map(arrives).collect();
        crossing
    }

    #[test]
    fn three_hops_pass_and_a_line_that_loses_more_does_not() {
        let plan = Plan::parse(LINE, Path::new("line.toml")).unwrap();
        let links = way(&plan.topology, [0, 3]).unwrap();
        assert_eq!(links.len(), 3);
        let narrow = links.iter().min_by(|one, other| rate(one).total_cmp(&rate(other))).unwrap();
        let load = packets(narrow, SHORT_PACKET, LOAD, Duration::from_secs(60));
        let check = |truly: &Plan| {
            let crossing = simulated(truly, &load);
            let fates = predict(&plan.topology, [0, 3], &crossing);
            let found = [loss_found(&links, &pattern(&crossing, &fates)).unwrap(), fates_found(&crossing, &fates)];
            found.map(|finding| finding.holds())
        };
        assert_eq!(check(&plan), [true, true]);
        let more = LINE.replacen("loss = \"", "loss = \"1", 1);
        assert_eq!(check(&Plan::parse(&more, Path::new("more.toml")).unwrap()), [false, false]);
    }

    #[test]
    fn a_way_that_polices_counts_what_arrived() {
        let plan = |police| {
            let text = LINE.replacen("loss = \"", &format!("police = \"{police}\"\nloss = \""), 1);
            Plan::parse(&text, Path::new("policed.toml")).unwrap()
        };
        let claimed = plan("10mbit:50kB");
        let links = way(&claimed.topology, [0, 3]).unwrap();
        let load = packets(&links[0], SHORT_PACKET, LOAD, Duration::from_secs(20));
        let check = |truly: &Plan| {
            let crossing = simulated(truly, &load);
            let fates = predict(&claimed.topology, [0, 3], &crossing);
            assert_eq!(loss_found(&links, &pattern(&crossing, &fates)), None);
            passed_found(&crossing, &fates, &links).holds()
        };
        assert!(check(&claimed) && !check(&plan("10.1mbit:50kB")) && !check(&plan("none")));
    }
}
