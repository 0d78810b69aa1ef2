//! The figures of a running job in a terminal. The verb `top` asks the job for them through `--metrics`, and
//! draws what changed.
//!
//! The figures come from there and not from a recording, because they are then those of Prometheus, of a job
//! on any machine, and the job need not write a file. Invariant: a rate is the change of a counter between
//! two answers divided by the time between them. A counter that fell belongs to another job: no rate.

pub mod scrape;
pub mod view;

use std::collections::VecDeque;
use std::time::Duration;

use scrape::Scrape;

/// Answers that are kept: the length of the history in the display.
const HISTORY: usize = 120;
/// Answers over which delay percentiles are computed. Chosen: ten seconds at one answer a second.
const DELAY_SPAN: usize = 10;

/// Answers over time. There is always one.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Time since the display began, and the answer.
    answers: VecDeque<(Duration, Scrape)>,
}

impl Figures {
    /// Begins with the first answer.
    pub fn new(first: Scrape) -> Self {
        Self { answers: VecDeque::from([(Duration::ZERO, first)]) }
    }

    /// Adds an answer, `at` after the first.
    pub fn push(&mut self, at: Duration, scrape: Scrape) {
        if self.answers.len() == HISTORY {
            self.answers.pop_front();
        }
        self.answers.push_back((at, scrape));
    }

    /// There is always one: the first is given to [`Self::new`].
    pub fn newest(&self) -> &Scrape {
        &self.answers[self.answers.len() - 1].1
    }

    /// The change of a counter per second between the last two answers; `None` if there is only one.
    pub fn rate(&self, series: &str) -> Option<f64> {
        self.rates(series).next_back()
    }

    /// The same between any two answers that follow each other, from the oldest to the newest. Answers
    /// between which a counter fell are left out.
    pub fn rates<'a>(&'a self, series: &'a str) -> impl DoubleEndedIterator<Item = f64> + 'a {
        let pairs = self.answers.iter().zip(self.answers.iter().skip(1));
        pairs.filter_map(move |((before, old), (after, new))| {
            let seconds = after.saturating_sub(*before).as_secs_f64();
            let change = new.value(series) - old.value(series);
            (seconds > 0.0 && change >= 0.0).then(|| change / seconds)
        })
    }

    /// A quantile of a histogram over the last ten answers, with values spread evenly within a bucket, as
    /// Prometheus has it. `None` if nothing was observed. Values above the highest bound count as that bound.
    pub fn quantile(&self, metric: &str, quantile: f64) -> Option<f64> {
        let first = self.answers.len().saturating_sub(DELAY_SPAN + 1);
        let old = self.answers[first].1.buckets(metric);
        let before = |bound: f64| old.iter().find(|(other, _)| *other == bound).map_or(0.0, |(_, count)| *count);
        // With one answer, everything since the job began counts.
        let only = self.answers.len() == 1;
        let new = self.newest().buckets(metric);
        let counts: Vec<_> =
            new.iter().map(|&(bound, count)| (bound, if only { count } else { count - before(bound) })).collect();
        let wanted = counts.last().map(|(_, count)| count * quantile).filter(|wanted| *wanted > 0.0)?;
        let index = counts.iter().position(|(_, count)| *count >= wanted)?;
        let (from, below) = index.checked_sub(1).map_or((0.0, 0.0), |index| counts[index]);
        let (to, count) = counts[index];
        Some(if to.is_finite() { from + (to - from) * (wanted - below) / (count - below) } else { from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn scrape(lines: &str) -> Scrape {
        Scrape::parse(&format!("tidewire_connections 1\n{lines}\n# EOF\n")).unwrap()
    }

    fn buckets(counts: [u64; 3]) -> Scrape {
        let [a, b, all] = counts;
        scrape(&format!("d_bucket{{le=\"0.01\"}} {a}\nd_bucket{{le=\"0.03\"}} {b}\nd_bucket{{le=\"+Inf\"}} {all}"))
    }

    #[test]
    fn rates_are_changes_per_second_and_a_new_job_gives_none() {
        let mut figures = Figures::new(scrape("x_total 10"));
        assert_eq!(figures.rate("x_total"), None);
        figures.push(Duration::from_secs(2), scrape("x_total 30"));
        assert_eq!(figures.rate("x_total"), Some(10.0));
        figures.push(Duration::from_secs(3), scrape("x_total 5"));
        figures.push(Duration::from_secs(4), scrape("x_total 6"));
        assert_eq!(figures.rates("x_total").collect::<Vec<_>>(), [10.0, 1.0]);
        (5..500).for_each(|at| figures.push(Duration::from_secs(at), scrape("x_total 6")));
        assert_eq!(figures.rates("x_total").count(), HISTORY - 1);
    }

    #[test]
    fn quantiles_are_of_what_was_observed_lately() {
        let mut figures = Figures::new(buckets([100, 100, 100]));
        assert_eq!(figures.quantile("d", 0.5), Some(0.005));
        figures.push(Duration::from_secs(1), buckets([100, 110, 110]));
        // Ten observations from 10 to 30 ms.
        assert_eq!(figures.quantile("d", 0.5).map(|value| (value * 1e6).round()), Some(20_000.0));
        figures.push(Duration::from_secs(2), buckets([100, 110, 120]));
        assert_eq!(figures.quantile("d", 0.99), Some(0.03));
        assert_eq!(figures.quantile("none", 0.5), None);
        (3..20).for_each(|at| figures.push(Duration::from_secs(at), buckets([100, 110, 120])));
        assert_eq!(figures.quantile("d", 0.99), None);
    }
}
