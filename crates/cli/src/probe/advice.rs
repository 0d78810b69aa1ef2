//! Advice that follows from a measurement: where plain TCP is as good, where redundancy does not help, what a
//! target costs.
//!
//! It is a pure function of measured and predicted values. The verb prints the result. Every threshold names
//! its origin.

use serde::Serialize;
use tidewire_command::report::rate;

use super::outlook::{Outlook, Point};
use super::phase::LIGHT_RATE;
use super::police::Policer;
use super::{Phase, Spread, interval};

/// A conclusion, for programs and for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// For programs.
    pub subject: Subject,
    /// One or two sentences.
    pub words: String,
}

/// Printed in snake case as `subject` of the event `advice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// There were too few packets to conclude anything.
    TooLittle,
    /// The light load was too much for this path.
    SlowPath,
    /// Coding gains nothing.
    PlainTcp,
    /// TCP would fill the path anyway.
    TcpFills,
    /// Losses keep TCP below the rate.
    TcpStarves,
    /// Losses come with a queue.
    Congestion,
    /// Losses come with the rate, without a visible queue.
    ShallowQueue,
    /// A policer drops what exceeds its rate.
    Policed,
    /// Losses come in runs.
    Bursts,
    /// Nothing passes for longer than repair can span.
    Blackout,
    /// Packets overtake each other.
    Reordering,
    /// Round trips vary without load.
    Jitter,
    /// Long packets are lost.
    SmallPackets,
    /// Data sent at full rate waits in a queue.
    LongQueue,
    /// The target cannot be met.
    Infeasible,
    /// What the transport would do for the flow.
    Outlook,
}

/// Minimum number of packets with known fate, the same as for the adaptive policy (`redundancy/tuning.rs`).
const ENOUGH: u64 = 64;
/// The light load counts as carried if this fraction of it arrived.
const CARRIED: f64 = 0.9;
/// Loss below which TCP is as good: one in a thousand (README, "When not to use this").
const FREE_OF_LOSS: f64 = 0.001;
/// Loss that full load may have beyond light load: what a competitor's own probing costs. Chosen: half of the
/// loss that BBRv2 takes for congestion.
const TOLERANCE: f64 = 0.01;
/// A queue is long if it exceeds this fraction of the least round trip and this many milliseconds, as for
/// rate control (`rate/mod.rs`).
const LONG_QUEUE: f64 = 0.25;
const LEAST_QUEUE_MS: f64 = 10.0;
/// Losses count as bursts if their runs are this much longer than those of independent losses, and if there
/// were this many runs. The adaptive policy allows for bursts from 1.2 times on; this value also exceeds the
/// variation of a few runs.
const BURSTY: f64 = 1.5;
const ENOUGH_RUNS: u64 = 10;
/// A run of this length is a blackout: the longest mean burst that the loss estimate accepts
/// (`path/estimate.rs`).
const BLACKOUT: u64 = 64;
/// Number of packets by which a packet may be late before TCP and QUIC declare it lost (RFC 5681 section 3.2,
/// RFC 9002 section 6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// IPv6 requires at least this from every link (RFC 8200 section 5). The search for the size ends within 20
/// bytes (`path/mtu.rs`).
const SMALL_PACKET: u16 = 1_280 + 20;
/// TCP and IPv4 headers with timestamps (RFC 7323).
const TCP_HEADERS: u16 = 52;

/// All advice, the most important first.
pub fn advise(light: &Phase, full: &Phase, policer: Option<&Policer>, outlook: Option<&Outlook>) -> Vec<Advice> {
    let mut said = Vec::new();
    let mut say = |subject, words: String| said.push(Advice { subject, words });
    if light.packets < ENOUGH || full.packets < ENOUGH {
        let packets = light.packets.min(full.packets);
        say(Subject::TooLittle, format!("only {packets} packets could be followed: too few to go by; try --time 60s"));
        return said;
    }
    if light.goodput_bps < CARRIED * LIGHT_RATE as f64 {
        let (asked, came) = (rate(LIGHT_RATE as f64), rate(light.goodput_bps));
        say(
            Subject::SlowPath,
            format!("of a light load of {asked} only {came} came through: what is said of it is said of a full path"),
        );
    }
    if let Some(policer) = policer {
        let words = "what exceeds it is dropped without a queue; keep below it with --max-rate";
        say(Subject::Policed, format!("{policer}: {words}"));
    }
    for (subject, words) in losses(light, full, policer.is_some()) {
        say(subject, words);
    }
    for (subject, words) in [shape(light), order(light, full), size(light), spread(light), queue(light, full)].concat()
    {
        say(subject, words);
    }
    if let Some(outlook) = outlook {
        let (subject, words) = flow(outlook);
        say(subject, words);
    }
    said
}

type Words = Vec<(Subject, String)>;

/// The cause of the losses, and their effect on TCP.
fn losses(light: &Phase, full: &Phase, is_policed: bool) -> Words {
    let mut said = Words::new();
    let excess = full.all_loss() - light.all_loss();
    // The difference of two rates, each known within its interval.
    let half = |phase: &Phase| {
        let (lost, packets) = phase.all_lost();
        let [low, high] = interval(lost, packets, phase.bursts.mean);
        (high - low) / 2.0
    };
    let more_at_full = excess > TOLERANCE && excess > half(light).hypot(half(full));
    let with_queue = light.all_loss() >= FREE_OF_LOSS && light.loss < FREE_OF_LOSS;
    if is_policed {
        // The policer explains the losses of the full load.
    } else if with_queue || (more_at_full && is_long(full.queueing_ms(light), light)) {
        let wait = full.queueing_ms(light).unwrap_or(0.0);
        said.push((
            Subject::Congestion,
            format!(
                "losses come with a full queue ({} at light load, {} at full, which waits {wait:.0} ms): that is congestion, redundancy will not help, \
                 and none is sent for it",
                percent(light.all_loss()),
                percent(full.all_loss())
            ),
        ));
    } else if more_at_full {
        said.push((
            Subject::ShallowQueue,
            format!(
                "{} are lost at light load and {} at full, without a queue that shows: a very short queue, a limit on the way, or loss that takes long \
                 packets first; keep below it with --max-rate",
                percent(light.all_loss()),
                percent(full.all_loss())
            ),
        ));
    }
    if light.loss < FREE_OF_LOSS {
        said.push((
            Subject::PlainTcp,
            format!(
                "use plain TCP here: of {} packets {} were lost at light load, fewer than one in a thousand; TCP is as good and costs less CPU",
                light.packets, light.lost
            ),
        ));
    } else if let Some(tcp) = tcp_rate(light) {
        let losses = percent(light.loss);
        said.push(if tcp >= full.rate_bps {
            let words = "would still fill the path; what coding takes away is the wait of a round trip for each loss";
            (Subject::TcpFills, format!("at {losses} loss one TCP connection {words}"))
        } else {
            let (tcp, full) = (rate(tcp), rate(full.rate_bps));
            let words = "if it takes loss for congestion as NewReno does (Mathis and others, 1997)";
            (Subject::TcpStarves, format!("at {losses} loss one TCP connection gets about {tcp} of {full}, {words}"))
        });
    }
    said
}

/// `MSS/RTT sqrt(1.5/p)`. A run of losses counts once, because TCP halves its window once per round trip.
fn tcp_rate(light: &Phase) -> Option<f64> {
    let segment = 8.0 * f64::from(light.packet_bytes.saturating_sub(TCP_HEADERS));
    let events = light.loss / light.bursts.mean;
    Some(segment / (light.rtt_ms?.p50 / 1e3) * (1.5 / events).sqrt())
}

fn shape(light: &Phase) -> Words {
    let bursts = &light.bursts;
    if bursts.longest >= BLACKOUT {
        let words = "packets in a row were lost: that is a blackout, which is waited for and then asked for; no repair spans it";
        return vec![(Subject::Blackout, format!("{} {words}", bursts.longest))];
    }
    let independent = 1.0 / (1.0 - light.loss).max(0.1);
    if bursts.mean < BURSTY * independent || bursts.runs.iter().sum::<u64>() < ENOUGH_RUNS {
        return Words::new();
    }
    let words = "the same delay takes more repair than for as many single losses, and short blocks fail whole";
    vec![(
        Subject::Bursts,
        format!("losses come in runs of {:.1} on average, {} at most: {words}", bursts.mean, bursts.longest),
    )]
}

fn order(light: &Phase, full: &Phase) -> Words {
    let late = [light, full].map(|phase| phase.reordering.unwrap_or_default());
    let depth = late.iter().map(|late| late.depth).max().unwrap_or(0);
    let (packets, of) = (late[0].packets + late[1].packets, late[0].of + late[1].of);
    let share = packets as f64 / of.max(1) as f64;
    if share < FREE_OF_LOSS || depth < PACKET_THRESHOLD {
        return Words::new();
    }
    let words = "what is three and more late TCP and QUIC take for lost at first; here it costs no more than a repair";
    vec![(Subject::Reordering, format!("{} of the packets are overtaken, by up to {depth}: {words}", percent(share)))]
}

fn size(light: &Phase) -> Words {
    if light.packet_bytes >= SMALL_PACKET {
        return Words::new();
    }
    let words = "a tunnel inside a tunnel? Headers take more of each packet, and IPv6 wants 1280";
    vec![(Subject::SmallPackets, format!("the path takes packets of {} bytes: {words}", light.packet_bytes))]
}

fn spread(light: &Phase) -> Words {
    let Some(Spread { min, p5, p95, .. }) = light.rtt_ms.filter(|rtt| is_long(Some(rtt.p95 - rtt.p5), light)) else {
        return Words::new();
    };
    let words = "without load of ours: Wi-Fi, mobile or others' queues; no latency target below that spread is kept by code alone";
    vec![(Subject::Jitter, format!("round trips are {p5:.0} to {p95:.0} ms, {min:.0} at least, {words}"))]
}

fn queue(light: &Phase, full: &Phase) -> Words {
    match full.queueing_ms(light) {
        Some(wait) if is_long(Some(wait), light) => {
            let words = "at the full rate: for low delay stay below it, by --max-rate or a flow that asks for less";
            vec![(Subject::LongQueue, format!("packets wait {wait:.0} ms in a queue {words}"))]
        }
        _ => Words::new(),
    }
}

fn is_long(queue_ms: Option<f64>, light: &Phase) -> bool {
    let least = light.rtt_ms.map_or(0.0, |rtt| rtt.min);
    queue_ms.is_some_and(|queue| queue > (LONG_QUEUE * least).max(LEAST_QUEUE_MS))
}

fn flow(outlook: &Outlook) -> (Subject, String) {
    let flow = rate(outlook.ground.rate_bps);
    if let Some(plan) = outlook.plan.as_ref().filter(|plan| plan.stated) {
        let subject = if plan.nearest.is_some() { Subject::Infeasible } else { Subject::Outlook };
        return (subject, format!("for a flow of {flow}: {plan}"));
    }
    let Point { repair, p95_ms, p99_ms, .. } = outlook.chosen;
    let asking = outlook.asking;
    if repair == 0.0 {
        let words = "no proactive repair is sent";
        return (Subject::Outlook, format!("for a flow of {flow} {words}: p99 of in-order delay {p99_ms:.1} ms"));
    }
    let words = format!(
        "{} of proactive repair: in-order delay p95 {p95_ms:.1}, p99 {p99_ms:.1} ms beyond the one-way time, instead of {:.1} and {:.1} by retransmission alone",
        percent(repair),
        asking.p95_ms,
        asking.p99_ms
    );
    (Subject::Outlook, format!("a flow of {flow} would be sent with {words}"))
}

fn percent(part: f64) -> String {
    let percent = 100.0 * part;
    if percent > 0.0 && percent < 1.0 { format!("{percent:.2} %") } else { format!("{percent:.1} %") }
}

#[cfg(test)]
mod tests;
