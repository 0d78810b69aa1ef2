//! Several peers over the same link: medians and ranges of their runs, as a table, and who is ahead of us in
//! what.
//!
//! The verb `tidewire-lab run --peer` fills one and prints it; `docs/lab.md` keeps such tables. Invariant:
//! who did not carry the load is never ahead, and figures are compared as they are printed: what no reader
//! can tell apart is no lead.

use tidewire_figures::Distribution;
use tidewire_lab::contest::OURS;
use tidewire_lab::peer::Kind;
use tidewire_lab::trial::{Measured, Traffic};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::{Capacity, Loss};

use tidewire_figures::Spread;
use tidewire_figures::chart::Curve;

/// Share of the records that a stream must deliver while they are made and waited for, or else it did not
/// sustain the load. Chosen: a stream that falls behind by more has a delay that grows with the length of the
/// run.
const SUSTAINED: f64 = 0.99;
/// How late the emulator may hand on packets, in milliseconds at the 95th percentile, before delays are
/// doubted: what `tidewire-lab check` allows it.
const LATE_MS: f64 = 0.3;

/// All runs of one peer.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    /// Whether it may leave out records: then it sustains any load.
    pub may_lose: bool,
    /// A run a seed.
    pub runs: Vec<Measured>,
}

/// A figure that peers are compared by.
struct Figure {
    name: &'static str,
    of: fn(&Measured) -> Option<f64>,
    decimals: usize,
    more_is_better: bool,
}

/// Of runs at a rate.
const AT_A_RATE: [Figure; 4] = [
    Figure { name: "p50", of: |run| run.delay.quantile(0.5), decimals: 1, more_is_better: false },
    Figure { name: "p95", of: |run| run.delay.quantile(0.95), decimals: 1, more_is_better: false },
    Figure { name: "p99", of: |run| run.delay.quantile(0.99), decimals: 1, more_is_better: false },
    Figure { name: "sent/app", of: |run| run.sent_per_app, decimals: 2, more_is_better: false },
];
/// Of saturating runs.
const SATURATING: [Figure; 3] = [
    Figure { name: "goodput", of: |run| Some(run.goodput_bps / 1e6), decimals: 2, more_is_better: true },
    Figure { name: "sent/app", of: |run| run.sent_per_app, decimals: 2, more_is_better: false },
    Figure { name: "queueing", of: |run| Some(run.queueing_ms), decimals: 1, more_is_better: false },
];

impl Row {
    /// The spread of a figure over the runs.
    pub fn spread(&self, of: impl Fn(&Measured) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().map(of))
    }

    /// The share of the records that arrived.
    pub fn delivered(&self) -> Option<Spread> {
        self.spread(|run| (run.made > 0).then(|| run.delivered as f64 / run.made as f64))
    }

    /// Whether it carried what it was given.
    fn is_sustained(&self) -> bool {
        self.may_lose || self.delivered().is_none_or(|share| share.median >= SUSTAINED)
    }

    fn cell(&self, decimals: usize, of: impl Fn(&Measured) -> Option<f64>) -> String {
        self.spread(of).map_or_else(|| "-".into(), |spread| spread.print(decimals))
    }

    /// The delays of all runs as one curve.
    pub fn curve(&self) -> Curve {
        Curve { label: self.name.clone(), delay: Distribution::of_all(self.runs.iter().map(|run| &run.delay)) }
    }
}

/// Whether a peer may leave out records.
pub fn may_lose(kind: &Kind) -> bool {
    matches!(kind, Kind::Datagrams(_))
}

/// The rows as a Markdown table, with a sentence on who is ahead of us, and one on what is in doubt.
pub fn table(rows: &[Row], load: Traffic, link: &DuplexConfig) -> String {
    let body = match load {
        Traffic::Full => saturating(rows, passing_bps(link)),
        Traffic::Share(_) | Traffic::Rate(_) => at_a_rate(rows),
    };
    // As fast as it goes there is no load that one could fail to carry: what still waits in buffers at the
    // end is nobody's failure.
    let lead = match load {
        Traffic::Full => ahead(rows, &SATURATING, |_| true),
        Traffic::Share(_) | Traffic::Rate(_) => ahead(rows, &AT_A_RATE, Row::is_sustained),
    };
    format!("{body}\n{lead}\n{}", doubts(rows))
}

fn at_a_rate(rows: &[Row]) -> String {
    let mut out = String::from(
        "| peer | delivered | mean | p50 | p95 | p99 | p95, p99 settled | sent/app | back/app | queue drops | queueing ms |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        out += &format!("| {} | ", row.name);
        if row.is_sustained() {
            let share = row.delivered().map_or_else(|| "-".into(), |share| format!("{:.3} %", 100.0 * share.median));
            out += &format!("{share} | {} | ", row.cell(1, |run| run.delay.mean()));
            for q in [0.5, 0.95, 0.99] {
                out += &format!("{} | ", row.cell(1, |run| run.delay.quantile(q)));
            }
            let settled = [0.95, 0.99].map(|q| row.spread(|run| run.settled.quantile(q)));
            let settled =
                settled.map(|figure| figure.map_or_else(|| "-".into(), |figure| format!("{:.1}", figure.median)));
            out += &format!("{} | ", settled.join(", "));
        } else {
            let goodput = row.cell(2, |run| Some(run.goodput_bps / 1e6));
            out += &format!("not sustained: {goodput} Mbit/s | | | | | | ");
        }
        out += &costs(row);
    }
    out
}

fn saturating(rows: &[Row], passing_bps: Option<f64>) -> String {
    let mut out = String::from(
        "| peer | goodput Mbit/s | of what passes | sent/app | back/app | queue drops | queueing ms |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let share = row.spread(|run| Some(run.goodput_bps)).zip(passing_bps);
        let share = share.map_or_else(|| "-".into(), |(goodput, all)| format!("{:.0} %", 100.0 * goodput.median / all));
        let goodput = row.cell(2, |run| Some(run.goodput_bps / 1e6));
        out += &format!("| {} | {goodput} | {share} | {}", row.name, costs(row));
    }
    out
}

/// What the link bore for it: the last columns of either table.
fn costs(row: &Row) -> String {
    format!(
        "{} | {} | {} % | {} |\n",
        row.cell(2, |run| run.sent_per_app),
        row.cell(3, |run| run.back_per_app),
        row.cell(1, |run| Some(100.0 * run.queue_dropped)),
        row.cell(1, |run| Some(run.queueing_ms)),
    )
}

/// Who is ahead of us, and in what; nothing where we were not measured.
fn ahead(rows: &[Row], figures: &[Figure], counts: fn(&Row) -> bool) -> String {
    let Some(ours) = rows.iter().find(|row| row.name == OURS) else { return String::new() };
    let mut leads = Vec::new();
    for Figure { name, of, decimals, more_is_better } in figures {
        let scale = 10f64.powi(*decimals as i32);
        let printed = |row: &Row| row.spread(of).map(|figure| (figure.median * scale).round() / scale);
        let Some(own) = printed(ours) else { continue };
        let is_ahead = |value: &f64| if *more_is_better { *value > own } else { *value < own };
        let others = rows.iter().filter(|row| row.name != OURS && counts(row));
        let named = |row: &Row| printed(row).filter(is_ahead).map(|value| format!("{} {value:.decimals$}", row.name));
        let leaders: Vec<_> = others.filter_map(named).collect();
        if !leaders.is_empty() {
            leads.push(format!("{name} ({}; tidewire {own:.decimals$})", leaders.join(", ")));
        }
    }
    let all: Vec<_> = figures.iter().map(|figure| figure.name).collect();
    match leads.is_empty() {
        true => format!("Ahead of tidewire in {}: nobody.", all.join(", ")),
        false => format!("Ahead of tidewire: {}.", leads.join("; ")),
    }
}

/// Whose delays are as much the machine's; nothing where all are the link's.
fn doubts(rows: &[Row]) -> String {
    let late = |row: &Row| row.spread(|run| run.late.quantile(0.95)).filter(|late| late.greatest > LATE_MS);
    let doubtful = rows.iter().filter_map(|row| Some(format!("{} {:.2} ms", row.name, late(row)?.greatest)));
    let doubtful: Vec<_> = doubtful.collect();
    if doubtful.is_empty() {
        return String::new();
    }
    format!("Delays in doubt, since packets were handed on late (p95) on a busy machine: {}.\n", doubtful.join(", "))
}

/// What of the link's rate the losses leave; none where it has no one rate or loss.
fn passing_bps(link: &DuplexConfig) -> Option<f64> {
    let Capacity::Fixed(rate) = &link.forward.capacity else { return None };
    let loss = match &link.forward.loss {
        Loss::None => 0.0,
        Loss::Iid(loss) => loss.value(),
        Loss::Gilbert(gilbert) => gilbert.loss().value(),
        Loss::Trace(_) => return None,
    };
    Some((1.0 - loss) * rate.bits_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::time::Duration;
    use tidewire_sim::scenario::Scenario;

    fn run(delay_ms: u64, sent: f64, delivered: u64) -> Measured {
        let delay = Duration::from_millis(delay_ms);
        Measured {
            made: 1_000,
            delivered,
            goodput_bps: 12e6,
            delay: Distribution::new([(delay, delivered)], delay, delay),
            sent_per_app: Some(sent),
            ..Measured::default()
        }
    }

    fn row(name: &str, runs: Vec<Measured>) -> Row {
        Row { name: name.into(), may_lose: false, runs }
    }

    fn link() -> DuplexConfig {
        let text = "[link]\nrate = \"20mbit\"\n[forward]\nloss = \"gilbert:10%,4\"\n";
        Scenario::parse(text, Path::new("link.toml")).unwrap().link
    }

    #[test]
    fn who_is_ahead_is_said_and_who_did_not_carry_the_load_is_not() {
        let ours = row(OURS, vec![run(10, 1.3, 1_000), run(12, 1.3, 1_000), run(80, 1.3, 1_000)]);
        let rows = [ours.clone(), row("lean", vec![run(50, 1.1, 1_000)]), row("slow", vec![run(1, 1.0, 900)])];
        let text = table(&rows, Traffic::Share(0.5), &link());
        assert!(text.contains("| tidewire | 100.000 % | 12.0 (10.0-80.0) | 12.0 (10.0-80.0) |"), "{text}");
        assert!(text.contains("| slow | not sustained: 12.00 Mbit/s | | | | | | 1.00 |"), "{text}");
        assert!(text.ends_with("\nAhead of tidewire: sent/app (lean 1.10; tidewire 1.30).\n"), "{text}");
        // The same, but allowed to lose.
        let lossy = Row { may_lose: true, ..rows[2].clone() };
        let text = table(&[ours.clone(), lossy], Traffic::Share(0.5), &link());
        assert!(text.contains("| slow | 90.000 % | 1.0 |") && text.contains("p50 (slow 1.0; tidewire 12.0)"), "{text}");
        // What is printed alike is no lead.
        let text = table(&[ours, row("alike", vec![run(12, 1.298, 1_000)])], Traffic::Share(0.5), &link());
        assert!(text.ends_with("Ahead of tidewire in p50, p95, p99, sent/app: nobody.\n"), "{text}");
    }

    #[test]
    fn delays_of_a_busy_machine_are_in_doubt() {
        let late = |ms| Distribution::new([(Duration::from_micros(ms), 1)], Duration::ZERO, Duration::from_secs(1));
        let with = |name, us| row(name, vec![Measured { late: late(us), ..run(1, 1.0, 1_000) }]);
        let text = table(&[with("calm", 299), with("busy", 850)], Traffic::Share(0.5), &link());
        assert!(text.ends_with("(p95) on a busy machine: busy 0.85 ms.\n"), "{text}");
    }

    #[test]
    fn saturating_goodput_is_of_what_losses_leave() {
        let rows =
            [row(OURS, vec![run(1, 1.2, 9)]), row("more", vec![Measured { goodput_bps: 13e6, ..run(1, 2.0, 9) }])];
        let text = table(&rows, Traffic::Full, &link());
        assert!(text.contains("| tidewire | 12.00 | 67 % | 1.20 |"), "{text}");
        assert!(text.ends_with("Ahead of tidewire: goodput (more 13.00; tidewire 12.00).\n"), "{text}");
    }
}
