//! The report of `figures forward` in Markdown: medians with their goals.

use std::fmt;

use super::super::Session;
use super::super::goal::{Figure, Goal, ending, heading};
use super::super::measured::Measured;
use super::super::options::Options;
use super::{crowd, delay};

/// The p99 of the other connections may grow by this many milliseconds because of the unread one.
const MOVED_MS: Goal = Goal::AtMost(5.0);

/// All rows, and how they were measured.
pub struct Text<'a> {
    pub session: &'a Session<'a>,
    pub delays: &'a [(&'a delay::Row, Measured<delay::Figures>)],
    pub crowds: &'a [(&'a str, Measured<crowd::Figures>)],
}

/// The figures of a row of the first tables, in the order of the columns.
fn row(row: &delay::Row, measured: &Measured<delay::Figures>, of: fn(&delay::Figures) -> [f64; 5]) -> Vec<Figure> {
    let figure = |(index, &most): (usize, &f64)| {
        Figure::new(measured.median(|run| of(run)[index]), if index == 4 { 3 } else { 1 }, Goal::at_most(most))
    };
    row.goals.iter().enumerate().map(figure).collect()
}

fn moved(measured: &Measured<crowd::Figures>) -> Figure {
    Figure::new(measured.median(crowd::Figures::moved), 1, Some(MOVED_MS))
}

impl Text<'_> {
    /// Number of rows that miss a goal or had a failed run.
    pub fn missed(&self) -> usize {
        let delays = self.delays.iter().flat_map(|(link, measured)| {
            let held = |of| row(link, measured, of).iter().all(Figure::holds) && measured.failures.is_empty();
            [held(|run: &delay::Figures| run.whole), held(|run: &delay::Figures| run.steady)]
        });
        let crowds = self.crowds.iter().map(|(_, measured)| moved(measured).holds() && measured.failures.is_empty());
        delays.chain(crowds).filter(|held| !held).count()
    }

    fn failures(&self) -> impl Iterator<Item = (&str, &String)> {
        let delays =
            self.delays.iter().flat_map(|(row, measured)| measured.failures.iter().map(|failure| (row.name, failure)));
        let crowds =
            self.crowds.iter().flat_map(|(name, measured)| measured.failures.iter().map(|failure| (*name, failure)));
        delays.chain(crowds)
    }

    fn delays(&self, f: &mut fmt::Formatter<'_>, title: &str, of: fn(&delay::Figures) -> [f64; 5]) -> fmt::Result {
        writeln!(f, "## {title}\n")?;
        heading(f, &["loss", "mean ms", "p50 ms", "p95 ms", "p99 ms", "sent/app"])?;
        for (link, measured) in self.delays {
            let figures: Vec<_> = row(link, measured, of).iter().map(ToString::to_string).collect();
            writeln!(f, "| {} | {} |", link.name, figures.join(" | "))?;
        }
        writeln!(f)
    }

    fn crowds(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "## Two hundred connections, one never read\n\n\
             Records of the 199 others, 6.4 Mbit/s together: while the one is silent, while it is written to until nothing\n\
             more is taken (a bulk stream beside them), and after that.\n"
        )?;
        let parts = ["silent: p50 / p99 ms", "filling: p50 / p99 ms", "unread: p50 / p99 ms"];
        heading(f, &["loss", parts[0], parts[1], parts[2], "p99 moved by ms", "taken MB"])?;
        for (name, measured) in self.crowds {
            let part = |of: fn(&crowd::Figures) -> [f64; 4]| {
                let [p50, p99] = [1, 3].map(|index| Figure::new(measured.median(|run| of(run)[index]), 1, None));
                format!("{p50} / {p99}")
            };
            let taken = Figure::new(measured.median(|run| run.taken / 1e6), 1, None);
            let parts = [part(|run| run.silent), part(|run| run.filling), part(|run| run.unread)].join(" | ");
            writeln!(f, "| {name} | {parts} | {} | {taken} |", moved(measured))?;
        }
        Ok(())
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Session { machine, command, options, .. } = self.session;
        let Options { seeds, seconds, .. } = options;
        writeln!(f, "# Figures of `forward`\n\nWritten by `{command}`.\n{machine}\n")?;
        writeln!(
            f,
            "TCP connections through `tidewire forward`, `tidewire-lab link` (25 Mbit/s, 60 ms, queue 60 ms; losses toward the target)\n\
             and `tidewire serve`, three processes on loopback, defaults only. Medians over {seeds} seeds, one run of {seconds} s each; a\n\
             value with a bound is a goal. Delay: from when the application made a record until the other application\n\
             had read its last byte, less 30 ms. sent/app: IP bytes put on the link per byte delivered.\n"
        )?;
        if !self.delays.is_empty() {
            writeln!(f, "One connection with records of 1,200 bytes at 12.5 Mbit/s, half of the link:\n")?;
            self.delays(f, "The whole run, start-up included", |run| run.whole)?;
            self.delays(f, "From the third second on", |run| run.steady)?;
        }
        if !self.crowds.is_empty() {
            self.crowds(f)?;
        }
        ending(f, self.failures(), self.missed())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::machine::Machine;
    use super::*;
    use std::path::PathBuf;

    fn crowd(unread: f64) -> Measured<crowd::Figures> {
        let part = |p99| [2.0, 1.0, 3.0, p99];
        let run = crowd::Figures { silent: part(4.0), filling: part(9.0), unread: part(unread), taken: 1e6 };
        Measured { runs: vec![run], failures: Vec::new() }
    }

    #[test]
    fn each_goal_can_be_missed() {
        let (machine, options) = (Machine::unknown(), Options::example("forward"));
        let session = Session { options: &options, machine: &machine, command: "", binary: PathBuf::new() };
        let missed = |delays: &[_], crowds: &[_]| Text { session: &session, delays, crowds }.missed();
        let ten = &delay::ROWS[4];
        let reached = [3.0, 1.0, 10.0, 25.0, 1.45];
        let run = |whole, steady| Measured { runs: vec![delay::Figures { whole, steady }], failures: Vec::new() };
        assert_eq!(missed(&[(ten, run(reached, reached))], &[("", crowd(9.0))]), 0);
        for index in 0..5 {
            let mut spoiled = reached;
            spoiled[index] *= 1.01;
            assert_eq!(missed(&[(ten, run(spoiled, reached))], &[]), 1);
            assert_eq!(missed(&[(ten, run(reached, spoiled))], &[]), 1);
        }
        assert_eq!(missed(&[], &[("", crowd(9.1))]), 1);
        let failed = Measured { failures: vec!["seed 2: no answer".into()], ..crowd(4.0) };
        assert_eq!(missed(&[], &[("", failed)]), 1);
    }
}
