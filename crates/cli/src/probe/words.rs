//! What was measured, as a table for people: a line for each figure, a column for each phase.

use tidewire_command::report::{RateControl, rate};

use super::{Phase, Spread};

/// The table, ending in a line break.
pub fn table(light: &Phase, full: &Phase) -> String {
    let mut out = String::new();
    let mut row = |name: &str, figure: &dyn Fn(&Phase) -> String| {
        out.push_str(format!("{name:<14} {:<34} {}", figure(light), figure(full)).trim_end());
        out.push('\n');
    };
    row("", &|phase| format!("{} load, {:.0} s", phase.name, phase.seconds));
    row("loss", &|phase| {
        let [low, high] = phase.loss_interval;
        format!("{} ({} to {})", percent(phase.loss), percent(low), percent(high))
    });
    row("packets", &|phase| format!("{}, {} lost", phase.packets, phase.lost));
    row("own rate", &|phase| {
        let RateControl { dropped_packets, dropped_bytes, .. } = phase.rate_control;
        format!("{dropped_packets} dropped, {}", indicatif::DecimalBytes(dropped_bytes))
    });
    row("runs of losses", &|phase| format!("mean {:.2}, longest {}", phase.bursts.mean, phase.bursts.longest));
    row("  by length", &|phase| runs(&phase.bursts.runs));
    row("RTT", &|phase| {
        phase.rtt_ms.map_or_else(
            || "-".into(),
            |Spread { p5, p50, p95, .. }| format!("p5 {p5:.1}, p50 {p50:.1}, p95 {p95:.1} ms"),
        )
    });
    row("jitter", &|phase| phase.rtt_ms.map_or_else(|| "-".into(), |rtt| format!("{:.2} ms", rtt.jitter)));
    row("reordering", &|phase| match phase.reordering {
        None => "not told by the other side".into(),
        Some(late) => {
            let share = late.packets as f64 / late.of.max(1) as f64;
            format!("{}, by up to {} packets", percent(share), late.depth)
        }
    });
    row("packet size", &|phase| format!("{} bytes", phase.packet_bytes));
    row("rate", &|phase| format!("{} sent, {} came", rate(phase.rate_bps), rate(phase.goodput_bps)));
    row("queueing", &|phase| phase.queueing_ms(light).map_or_else(|| "-".into(), |wait| format!("{wait:.1} ms")));
    out
}

/// How many runs there are of each length up to the longest that was seen.
fn runs(counts: &[u64]) -> String {
    let known = counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
    let more = if known == counts.len() { "+" } else { "" };
    let counts: Vec<String> = counts[..known].iter().map(u64::to_string).collect();
    if known == 0 { "-".into() } else { format!("{}{more}", counts.join(" ")) }
}

fn percent(part: f64) -> String {
    format!("{:.2} %", 100.0 * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_made_up() {
        let text = table(&Phase { name: "light", ..Phase::default() }, &Phase { name: "full", ..Phase::default() });
        assert!(text.contains("not told by the other side") && !text.contains("NaN"), "{text}");
        assert_eq!((runs(&[0, 0]), runs(&[3, 0, 1, 0]), runs(&[1, 2])), ("-".into(), "3 0 1".into(), "1 2+".into()));
    }
}
