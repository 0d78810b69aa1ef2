//! The report of `figures delay` in Markdown: medians with their goals, and compared with those of the
//! simulator.

use std::fmt;

use super::super::Session;
use super::super::goal::{ANY, Figure, Goal, heading, shown};
use super::super::measured::Measured;
use super::row::Row;
use super::run::{Figures, LATE_MS};

/// The runs of one row.
pub struct Line<'a> {
    pub row: &'a Row,
    pub emulated: Measured<Figures>,
    pub simulated: Measured<Figures>,
}

/// The two parts of every run.
const PARTS: [(&str, Part); 2] = [("whole", |figures| figures.whole), ("from 3 s", |figures| figures.steady)];
type Part = fn(&Figures) -> [f64; 4];
/// Indices of p50, p95 and p99 among the delays of a part.
const PERCENTILES: std::ops::RangeInclusive<usize> = 1..=3;
/// Emulated link and simulator agree if they differ by at most this share of the simulator's figure, or by at
/// most [`DIFFERENCE_MS`]. Both bounds are chosen.
const SHARE: f64 = 0.15;
const DIFFERENCE_MS: f64 = 2.0;

impl Line<'_> {
    /// Mean, p50, p95, p99 of a part.
    fn delays(&self, of: Part) -> [Figure; 4] {
        let goals = self.row.goals.delay;
        std::array::from_fn(|index| {
            Figure::new(self.emulated.median(|run| of(run)[index]), 1, Goal::at_most(goals[index]))
        })
    }

    /// The costs of a whole run (sent/app, queue drops, proactive repair), and how late the machine was.
    fn costs(&self) -> [Figure; 4] {
        let goals = self.row.goals;
        let figure = |of: fn(&Figures) -> f64, decimals, most| {
            Figure::new(self.emulated.median(of), decimals, Goal::at_most(most))
        };
        [
            figure(|run| run.sent_per_app, 3, goals.sent_per_app),
            figure(|run| run.queue_drops, 2, goals.queue_drops),
            figure(|run| run.proactive, 2, goals.proactive),
            figure(|run| run.late_ms, 1, ANY),
        ]
    }

    /// A percentile of a part on the link and in the simulator, and whether the two agree.
    fn compared(&self, of: Part, index: usize) -> (f64, f64, bool) {
        let [link, simulator] = [&self.emulated, &self.simulated].map(|runs| runs.median(|run| of(run)[index]));
        (link, simulator, (link - simulator).abs() <= (SHARE * simulator).max(DIFFERENCE_MS))
    }

    fn holds(&self) -> bool {
        let delays = PARTS.iter().flat_map(|(_, of)| self.delays(*of));
        self.failures().next().is_none() && delays.chain(self.costs()).all(|figure| figure.holds())
    }

    fn failures(&self) -> impl Iterator<Item = &String> {
        self.emulated.failures.iter().chain(&self.simulated.failures)
    }
}

/// All rows, and how they were measured.
pub struct Text<'a> {
    pub session: &'a Session<'a>,
    pub lines: &'a [Line<'a>],
}

impl Text<'_> {
    /// Number of rows that miss a goal, and of figures for which link and simulator disagree.
    pub fn missed(&self) -> usize {
        self.lines.iter().filter(|line| !line.holds()).count() + self.apart()
    }

    fn apart(&self) -> usize {
        let figures = self.lines.iter().flat_map(|line| {
            PARTS.iter().flat_map(move |(_, of)| PERCENTILES.map(move |index| line.compared(*of, index)))
        });
        figures.filter(|(_, _, agree)| !agree).count()
    }

    fn introduction(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Session { machine, command, options, .. } = self.session;
        let together =
            if options.alone { "one at a time" } else { "the seeds of a row at the same time up to 20 Mbit/s" };
        writeln!(f, "# Figures of delay\n\nWritten by `{command}`.\n{machine}\n")?;
        writeln!(
            f,
            "Records of 1,200 bytes from `tidewire bench -c` through `tidewire-lab link` to `bench -s`, three processes on loopback, defaults\n\
             only, losses toward the server, a queue of one round trip. Medians over {} seeds, one run of {} s each (twice as long at\n\
             1 Mbit/s), {together}; a value with a bound is a goal. Delay: from when a record was made until its last byte was\n\
             read in order, less half a round trip. sent/app: IP bytes sent per byte of records. Proactive: repairs that answered\n\
             no feedback, in percent of source symbols. Late: by how much this machine woke a sleeping thread too late, at worst;\n\
             a run in which that was more than {LATE_MS} ms was repeated once, and the better one counts.\n\n\
             L1: 25 Mbit/s, 60 ms, half load. 50/20: 50 Mbit/s, 20 ms, half load; 100/10: 100 Mbit/s, 10 ms, half load. L3 and L4:\n\
             the link of L1 with other loads.\n",
            options.seeds, options.seconds
        )
    }

    fn whole(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## The whole run, start-up included\n")?;
        heading(
            f,
            &["row", "mean ms", "p50 ms", "p95 ms", "p99 ms", "sent/app", "queue drops %", "proactive %", "late ms"],
        )?;
        for line in self.lines {
            let figures = line.delays(PARTS[0].1).into_iter().chain(line.costs());
            writeln!(f, "| {} | {} |", line.row.name, columns(figures))?;
        }
        writeln!(f)
    }

    fn steady(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## From the third second on\n")?;
        heading(f, &["row", "mean ms", "p50 ms", "p95 ms", "p99 ms"])?;
        for line in self.lines {
            writeln!(f, "| {} | {} |", line.row.name, columns(line.delays(PARTS[1].1).into_iter()))?;
        }
        writeln!(f)
    }

    fn agreement(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "## Emulated link and simulator\n\n\
             The same scenario files in virtual time (`tidewire-lab sim`): link / simulator, in ms; apart where they differ by more than\n\
             {:.0} % and more than {DIFFERENCE_MS} ms.\n",
            100.0 * SHARE
        )?;
        heading(f, &["row", "part", "p50", "p95", "p99", "sent/app"])?;
        for line in self.lines {
            for (part, of) in PARTS {
                let percentiles = PERCENTILES.map(|index| {
                    let (link, simulator, agree) = line.compared(of, index);
                    let verdict = if agree { "" } else { " **APART**" };
                    format!("{} / {}{verdict}", shown(link, 1), shown(simulator, 1))
                });
                let sent = [&line.emulated, &line.simulated].map(|runs| shown(runs.median(|run| run.sent_per_app), 3));
                let percentiles = percentiles.collect::<Vec<_>>().join(" | ");
                writeln!(f, "| {} | {part} | {percentiles} | {} |", line.row.name, sent.join(" / "))?;
            }
        }
        writeln!(f)
    }
}

fn columns(figures: impl Iterator<Item = Figure>) -> String {
    figures.map(|figure| figure.to_string()).collect::<Vec<_>>().join(" | ")
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.introduction(f)?;
        self.whole(f)?;
        self.steady(f)?;
        self.agreement(f)?;
        for line in self.lines {
            for failure in line.failures() {
                writeln!(f, "{} **FAILED**, {failure}\n", line.row.name)?;
            }
        }
        let rows = self.lines.iter().filter(|line| !line.holds()).count();
        writeln!(f, "{rows} of {} rows miss a goal; {} percentiles are apart.", self.lines.len(), self.apart())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::machine::Machine;
    use super::super::super::options::Options;
    use super::super::row::{NONE, ROWS};
    use super::*;
    use std::path::PathBuf;

    /// A run that exactly reaches every goal of `row`.
    fn reached(row: &Row) -> Figures {
        let just = |bound: f64| if bound == ANY { 1e4 } else { bound };
        let delay = row.goals.delay.map(just);
        Figures {
            whole: delay,
            steady: delay,
            sent_per_app: just(row.goals.sent_per_app),
            queue_drops: just(row.goals.queue_drops),
            proactive: just(row.goals.proactive),
            late_ms: 0.0,
            unseen: 0.0,
        }
    }

    fn line(row: &'static Row, emulated: Figures, simulated: Figures) -> Line<'static> {
        let measured = |run| Measured { runs: vec![run], failures: Vec::new() };
        Line { row, emulated: measured(emulated), simulated: measured(simulated) }
    }

    fn missed(line: Line<'_>) -> usize {
        let (machine, options) = (Machine::unknown(), Options::example("delay"));
        let session = Session { options: &options, machine: &machine, command: "", binary: PathBuf::new() };
        Text { session: &session, lines: &[line] }.missed()
    }

    #[test]
    fn each_goal_can_be_missed() {
        let mut spoiled = 0;
        for row in &ROWS {
            let good = reached(row);
            assert_eq!(missed(line(row, good, good)), 0, "{}", row.name);
            let spoil: [fn(&mut Figures); 9] = [
                |run| run.whole[1] *= 1.01,
                |run| run.whole[2] *= 1.01,
                |run| run.whole[3] *= 1.01,
                |run| run.steady[1] *= 1.01,
                |run| run.steady[2] *= 1.01,
                |run| run.steady[3] *= 1.01,
                |run| run.sent_per_app *= 1.01,
                |run| run.queue_drops *= 1.01,
                |run| run.proactive *= 1.01,
            ];
            for spoil in spoil {
                let mut bad = good;
                spoil(&mut bad);
                spoiled += missed(line(row, bad, bad));
            }
        }
        // Seven L1 rows have goals for three percentiles, twice, and for sent/app. The first L1 row has goals
        // for one percentile, twice, for sent/app and for proactive. Six rows have two percentiles, twice.
        // Four have one, twice, and a cost.
        assert_eq!(spoiled, 7 * 7 + 4 + 6 * 4 + 4 * 3);
    }

    #[test]
    fn link_and_simulator_may_differ_by_a_share_or_two_milliseconds() {
        static ROW: Row = Row { goals: NONE, ..ROWS[3] };
        let run = |p99| Figures { steady: [0.0, 0.0, 0.0, p99], whole: [0.0; 4], ..reached(&ROW) };
        for (link, simulator, apart) in [(11.9, 10.0, 0), (12.1, 10.0, 1), (114.0, 100.0, 0), (84.0, 100.0, 1)] {
            assert_eq!(missed(line(&ROW, run(link), run(simulator))), apart, "{link} {simulator}");
        }
        let failed = Measured { failures: vec!["seed 2: no answer".into()], runs: vec![run(1.0)] };
        assert_eq!(missed(Line { emulated: failed, ..line(&ROW, run(1.0), run(1.0)) }), 1);
    }
}
