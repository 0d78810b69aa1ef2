//! What a run of a seed must keep to: the time after the faults, and counts that sum.

use core::time::Duration;

use tidewire_proto::config::Config;
use tidewire_proto::profile::Elimination;
use tidewire_proto::rate::RateControl;
use tidewire_proto::redundancy::{BucketBlocks, PipelineBlocks, Proactive, Ratio};
use tidewire_proto::stats::Stats;
use tidewire_sim::link::LinkStats;
use tidewire_sim::pair::End;
use tidewire_sim::report::{Report, Run, Trial};

use super::case::Case;

/// How long a link without faults may take for the rest.
///
/// This is ten round trips and two of the longest probe timeouts for recovery, the round trips in which the
/// rate controller finds the link's rate again, the remaining bytes at half that rate, and the time that the
/// application itself waits.
pub fn allowed(case: &Case, run: &mut Run) -> Duration {
    let rtt = case.longest_rtt;
    let probe = SLOWEST_PROBE.max(rtt * 3);
    let mut seconds: f64 = 0.0;
    for end in [End::Near, End::Far] {
        let left: u64 = run.load.progress().filter(|at| at.flow.from == end).map(|at| at.flow.bytes - at.read).sum();
        seconds = seconds.max(left as f64 * 8.0 / (case.rate * share(case, end)));
    }
    let since = run.load.began().map_or(Duration::ZERO, |began| run.pair.now().since(began));
    let mut application = Duration::ZERO;
    for flow in run.load.progress().filter(|at| at.read < at.flow.bytes).map(|at| at.flow) {
        let at = |rate: Option<u64>, bytes: u64| rate.map_or(0.0, |rate| bytes as f64 / rate as f64);
        let produced = flow.start + Duration::from_secs_f64(at(flow.rate, flow.bytes));
        let taken = flow.start + flow.deaf + Duration::from_secs_f64(at(flow.reads, flow.bytes));
        application = application.max(produced.max(taken).saturating_sub(since));
    }
    let time =
        rtt * 10 + probe * 2 + case.trial.link.rtt() * FIND_RATE + Duration::from_secs_f64(seconds) + application;
    let never_solves = |config: &Config| {
        let profile = config.profile();
        profile.code.is_sparse() && profile.elimination == Elimination::Never
    };
    let is_slow = [&case.trial.near, &case.trial.far].into_iter().any(never_solves);
    if is_slow { time * NEVER_SOLVED } else { time }
}

/// A receiver that only peels asks several times for each block, and small blocks of a sparse code seldom
/// peel. Seed 6:713 needs 1.4 times the time of the others.
const NEVER_SOLVED: u32 = 2;

/// Least fraction of the link's rate for new stream bytes: the policy's source symbols times what the rate
/// controller takes. The controller has measured its rate on a path that lost up to 60 %, and may fill half
/// of a calm link on average.
fn share(case: &Case, end: End) -> f64 {
    let rate = match case.config(end).profile().rate_control {
        RateControl::Fixed { bits_per_second } => bits_per_second as f64 / case.rate * 0.8,
        _ => 0.5,
    };
    source_share(case.config(end)) * rate
}

/// Least fraction of source symbols among the symbols that a policy sends without loss.
fn source_share(config: &Config) -> f64 {
    match config.profile().redundancy.proactive {
        Proactive::Every { spacing } => 1.0 - 1.0 / spacing,
        Proactive::Block { k, r } => f64::from(k) / f64::from(k + r),
        Proactive::None => 1.0,
        // A block has at least as many symbols as a round trip has packets (`blocks.rs`).
        Proactive::Rcdp(blocks) if blocks.basic => 0.4,
        Proactive::Pipeline(PipelineBlocks { ratio: Ratio::Fixed(ratio), .. }) => 1.0 / ratio,
        // The estimate may be 60 % of loss still.
        Proactive::Pipeline(PipelineBlocks { ratio: Ratio::ComboPrinted, .. }) => 1.0 / 3.9,
        Proactive::Bucket(BucketBlocks { cap, gamma, is_fixed: true }) => 1.0 / (gamma * f64::from(cap)),
        Proactive::Bucket(BucketBlocks { gamma, .. }) => 1.0 / gamma,
        // One repair for eight symbols; the shortest generation has one repair for one symbol.
        Proactive::Custom(_) => 0.5,
        _ => 1.0 / (1.0 + config.max_overhead()),
    }
}

/// Faults may have left an estimate of a thousandth of the rate, which grows by a quarter every eight round
/// trips.
const FIND_RATE: u32 = 250;
/// One FEEDBACK of about 110 bytes with headers for two packets is 5 % without loss. Six in ten lost packets,
/// and an answer for every copy, make it four times as much.
const MOST_RETURNED: f64 = 0.25;
/// Longest time between two probes without an answer.
const SLOWEST_PROBE: Duration = Duration::from_secs(2);

/// The report of a run in which every byte arrived.
///
/// # Errors
/// Some bytes are wrong or did not arrive.
pub fn whole(run: &mut Run) -> Result<Report, String> {
    let report = run.report();
    if !report.errors.is_empty() {
        return Err(format!("wrong bytes: {:?}", report.errors));
    }
    if !report.done {
        let left: Vec<_> = run.load.progress().collect();
        return Err(format!("not done: {left:?} after {:.3} s, {:?}", report.seconds, report.closed));
    }
    Ok(report)
}

/// Checks the counts of a run.
///
/// # Errors
/// One is wrong.
pub fn counts(trial: &Trial, report: &Report) -> Result<(), String> {
    ensure(report, report.sealed.packets > 0 && report.sealed.reused == 0, "a key sealed twice under one nonce")?;
    ensure(report, report.counted.overdue == 0, "a timer was not later than the wake-up it followed")?;
    let seconds = report.seconds.max(1.0);
    // The application is woken for each of its records.
    let paced = trial.flows.iter().filter(|flow| flow.rate.is_some());
    let records: u64 = paced.map(|flow| flow.bytes.div_ceil(flow.record)).sum();
    let own = report.counted.wakes.saturating_sub(records) as f64;
    ensure(report, own < 4.0 * report.counted.datagrams as f64 + 500.0 * seconds, "woken too often")?;
    for stats in [&report.near, &report.far] {
        ensure(report, packets_sum(stats), "packets do not sum")?;
        ensure(report, symbols_sum(stats), "symbols do not sum")?;
    }
    ensure(report, link_sums(&report.forward) && link_sums(&report.back), "link counts do not sum")
}

/// Checks that a policy that codes sent repairs.
///
/// # Errors
/// It sent none.
pub fn repairs(case: &Case, report: &Report) -> Result<(), String> {
    let sent = report.sending().packets;
    let coded = match case.config(report.sender).profile().redundancy.proactive {
        Proactive::None | Proactive::Block { r: 0, .. } => false,
        Proactive::Every { spacing } => spacing < 30.0,
        _ => true,
    };
    // Only what the link lost counts, because long bursts can spare a whole transfer.
    let link = report.outward();
    let has_none = coded && link.lost * 20 >= link.offered && sent.source >= 1_000;
    ensure(report, !has_none || sent.repair + sent.feedback_repair > 0, "a coded policy sent no repair")
}

/// Bytes returned for each delivered byte, if the case is bulk one way.
///
/// # Errors
/// They are too many.
pub fn returned(case: &Case, report: &Report) -> Result<Option<f64>, String> {
    // Blocks of the basic form repeat the ends of streams, which carry no bytes, until the sender answers.
    let receiver = case.config(report.sender.other()).profile().redundancy.proactive;
    let repeats = matches!(receiver, Proactive::Rcdp(blocks) if blocks.basic);
    let bulk = case.is_bulk() && !repeats && report.receiving().symbols.delivered > 1_000;
    let returned = bulk.then(|| report.returned_per_byte());
    // The peer also acknowledges the repairs that the policy adds to each source symbol.
    let source = source_share(case.config(report.sender));
    if returned.is_some_and(|share| share * source > MOST_RETURNED) {
        return Err(format!("{returned:?} bytes returned for each delivered"));
    }
    Ok(returned)
}

fn ensure(report: &Report, is_right: bool, what: &str) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(format!("{what}: {report:?}")) }
}

fn packets_sum(stats: &Stats) -> bool {
    let packets = &stats.packets;
    packets.sent == packets.source + packets.repair + packets.feedback_repair + packets.control
        && packets.acked + packets.lost <= packets.sent
}

fn symbols_sum(stats: &Stats) -> bool {
    let symbols = &stats.symbols;
    symbols.delivered == symbols.direct + symbols.repaired + symbols.resent && symbols.expired == 0
}

fn link_sums(link: &LinkStats) -> bool {
    link.offered == link.accounted()
}
