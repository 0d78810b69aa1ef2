//! The runs of one row of a table, one for each seed.

use std::thread;

use tidewire_figures::median;

/// The results of these runs.
pub struct Measured<F> {
    pub runs: Vec<F>,
    /// Why other runs gave no figures.
    pub failures: Vec<String>,
}

/// Whether the seeds of a row run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeds {
    /// One after the other, so that each has the machine to itself.
    InTurn,
    /// All at once, for runs that leave most of the machine idle.
    Together,
}

impl<F: Send> Measured<F> {
    /// Runs the seeds from 1 to `seeds`, and prints the text of `line` for each. All seeds run even if one
    /// fails.
    pub fn of(
        name: &str,
        (seeds, order): (u64, Seeds),
        run: impl Fn(u64) -> Result<F, String> + Sync,
        line: impl Fn(&F) -> String,
    ) -> Self {
        let mut measured = Self { runs: Vec::new(), failures: Vec::new() };
        let mut take = |seed, result| match result {
            Ok(figures) => {
                println!("{name:<22} seed {seed}: {}", line(&figures));
                measured.runs.push(figures);
            }
            Err(problem) => {
                println!("{name:<22} seed {seed}: FAILED: {problem}");
                measured.failures.push(format!("seed {seed}: {problem}"));
            }
        };
        match order {
            Seeds::InTurn => (1..=seeds).for_each(|seed| take(seed, run(seed))),
            Seeds::Together => thread::scope(|scope| {
                let run = &run;
                let running: Vec<_> = (1..=seeds).map(|seed| (seed, scope.spawn(move || run(seed)))).collect();
                for (seed, thread) in running {
                    take(seed, thread.join().unwrap_or_else(|_| Err("the run panicked".into())));
                }
            }),
        }
        measured
    }
}

impl<F> Measured<F> {
    /// The median of a figure over all runs; NaN without a run.
    pub fn median(&self, of: impl Fn(&F) -> f64) -> f64 {
        median(self.runs.iter().map(of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_runs_and_the_median_is_the_middle() {
        for order in [Seeds::InTurn, Seeds::Together] {
            let run = |seed: u64| if seed == 4 { Err("no answer".into()) } else { Ok(1.0 / seed as f64) };
            let measured = Measured::of("", (4, order), run, |value| value.to_string());
            assert_eq!(measured.median(|value| *value), 0.5);
            assert_eq!(measured.failures, ["seed 4: no answer"]);
        }
    }
}
