//! The report of `figures recording` in Markdown: medians with their goals.

use std::fmt;

use super::super::Session;
use super::super::goal::{Figure, Goal, ending, heading};
use super::super::measured::Measured;
use super::super::options::Options;
use super::run::{Figures, Size};
use super::{Costs, PAGE};

/// Goodput with both options, in percent of the goodput without them.
const GOODPUT: Goal = Goal::AtLeast(98.0);
/// The p99 may grow by this many milliseconds.
const P99_MS: Goal = Goal::AtMost(1.0);
/// Each end may take this much more processor time, in percent of a core.
const PROCESSOR: Goal = Goal::AtMost(3.0);
/// Ten minutes at 25 Mbit/s.
const MEGABYTES: Goal = Goal::AtMost(60.0);
const OPEN_SECONDS: Goal = Goal::AtMost(3.0);

/// All rows, and how they were measured.
pub struct Text<'a> {
    pub session: &'a Session<'a>,
    pub costs: &'a [Costs],
    /// Rows that measure files, with their names.
    pub sizes: &'a [(&'static str, Measured<Size>)],
}

impl Costs {
    /// What the two options change: goodput, p99, and processor time of the sender and the receiver.
    fn figures(&self) -> [Figure; 4] {
        let medians = |of: fn(&Figures) -> f64| (self.off.median(of), self.on.median(of));
        let (goodput, p99) = (medians(|run| run.goodput), medians(|run| run.delay[1]));
        let (near, far) = (medians(|run| run.processor[0]), medians(|run| run.processor[1]));
        [
            Figure::new(100.0 * goodput.1 / goodput.0, 1, Some(GOODPUT)),
            Figure::new(p99.1 - p99.0, 2, Some(P99_MS)),
            Figure::new(near.1 - near.0, 1, Some(PROCESSOR)),
            Figure::new(far.1 - far.0, 1, Some(PROCESSOR)),
        ]
    }

    fn failures(&self) -> impl Iterator<Item = &String> {
        self.off.failures.iter().chain(&self.on.failures)
    }
}

/// Size of ten minutes and time to open them, of the sender's and the receiver's recording.
fn sizes(size: &Measured<Size>) -> [[Figure; 2]; 2] {
    [0, 1].map(|end: usize| {
        [
            Figure::new(size.median(|run| run.megabytes[end]), 1, Some(MEGABYTES)),
            Figure::new(size.median(|run| run.open_seconds[end]), 2, Some(OPEN_SECONDS)),
        ]
    })
}

/// What a row of files measures.
fn about(name: &str) -> String {
    let flow = match name {
        PAGE => "A simulated flow of 25 Mbit/s over a link of 50 Mbit/s, 40 ms and 5 % loss for ten minutes",
        _ => "25 Mbit/s over a link of 50 Mbit/s, 40 ms and 5 % loss for ten minutes",
    };
    format!(
        "{flow}: the size, and the time until the page in headless\nChromium has read the recording and drawn, the median of five."
    )
}

impl Text<'_> {
    /// Number of rows that miss a goal or had a failed run.
    pub fn missed(&self) -> usize {
        let costs = self
            .costs
            .iter()
            .filter(|costs| !costs.figures().iter().all(Figure::holds) || costs.failures().next().is_some());
        let sizes = self
            .sizes
            .iter()
            .filter(|(_, size)| !sizes(size).iter().flatten().all(Figure::holds) || !size.failures.is_empty());
        costs.count() + sizes.count()
    }

    fn costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = ["load", "", "Mbit/s", "p50 / p99 ms", "sender, % of a core", "receiver, % of a core"];
        writeln!(f, "## With and without\n")?;
        heading(f, &columns)?;
        for costs in self.costs {
            for (name, runs) in [("off", &costs.off), ("on", &costs.on)] {
                let [goodput, p50, p99] = [
                    Figure::new(runs.median(|run| run.goodput), 2, None),
                    Figure::new(runs.median(|run| run.delay[0]), 2, None),
                    Figure::new(runs.median(|run| run.delay[1]), 2, None),
                ];
                let [near, far] = [0, 1].map(|end: usize| Figure::new(runs.median(|run| run.processor[end]), 1, None));
                writeln!(f, "| {} | {name} | {goodput} | {p50} / {p99} | {near} | {far} |", costs.row.name)?;
            }
        }
        writeln!(f)?;
        writeln!(f, "## What recording adds\n")?;
        heading(f, &["load", "goodput, % of off", "p99 more, ms", "sender more, %", "receiver more, %"])?;
        for costs in self.costs {
            let figures = costs.figures().map(|figure| figure.to_string()).join(" | ");
            writeln!(f, "| {} | {figures} |", costs.row.name)?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Session { machine, command, options, .. } = self.session;
        let Options { seeds, seconds, .. } = options;
        writeln!(f, "# Figures of recordings\n\nWritten by `{command}`.\n{machine}\n")?;
        writeln!(
            f,
            "`bench` over `tidewire-lab link`, on loopback. A value with a bound is a goal. *On* means `--record` and `--dashboard` at both\n\
             ends, without an open page.\n"
        )?;
        if !self.costs.is_empty() {
            writeln!(
                f,
                "Link of 100 Mbit/s, 40 ms and 5 % loss. Half load is 50 Mbit/s of records. Medians over {seeds} seeds, {seconds} s each; delays from the\n\
                 third second on.\n"
            )?;
            self.costs(f)?;
        }
        for (index, (name, size)) in self.sizes.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            writeln!(f, "## Size and time to open\n\n{}\n", about(name))?;
            heading(f, &["recording of", "MB", "s to open"])?;
            for (end, [megabytes, seconds]) in ["the sender", "the receiver"].into_iter().zip(sizes(size)) {
                writeln!(f, "| {end} | {megabytes} | {seconds} |")?;
            }
        }
        let failures = self.costs.iter().flat_map(|costs| costs.failures().map(|failure| (costs.row.name, failure)));
        let failures =
            failures.chain(self.sizes.iter().flat_map(|(name, size)| size.failures.iter().map(|one| (*name, one))));
        ending(f, failures, self.missed())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::machine::Machine;
    use super::super::ROWS;
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn each_goal_can_be_missed() {
        let (machine, options) = (Machine::unknown(), Options::example("recording"));
        let session = Session { options: &options, machine: &machine, command: "", binary: PathBuf::new() };
        let runs = |run| Measured { runs: vec![run], failures: Vec::new() };
        let missed = |on: Figures, size: Size| {
            let off = Figures { goodput: 80.0, delay: [1.0, 5.0], processor: [20.0, 30.0] };
            let costs = [Costs { row: &ROWS[0], off: runs(off), on: runs(on) }];
            Text { session: &session, costs: &costs, sizes: &[(PAGE, runs_of(size))] }.missed()
        };
        let on = Figures { goodput: 78.5, delay: [1.0, 5.9], processor: [22.0, 33.0] };
        let size = Size { megabytes: [15.0, 60.0], open_seconds: [2.0, 3.0] };
        assert_eq!(missed(on, size), 0);
        for wrong in [
            Figures { goodput: 78.0, ..on },
            Figures { delay: [1.0, 6.1], ..on },
            Figures { processor: [23.5, 33.0], ..on },
            Figures { processor: [22.0, 33.5], ..on },
        ] {
            assert_eq!(missed(wrong, size), 1);
        }
        assert_eq!(missed(on, Size { megabytes: [15.0, 60.1], ..size }), 1);
        assert_eq!(missed(on, Size { open_seconds: [3.1, 3.0], ..size }), 1);
    }

    fn runs_of(size: Size) -> Measured<Size> {
        Measured { runs: vec![size], failures: Vec::new() }
    }
}
