//! Requirements of a run: `goodput>=20mbit,p95<=40ms`.

use std::fmt;
use std::str::FromStr;

use tidewire_figures::milliseconds;
use tidewire_units::{Probability, Rate, parse_duration};

use tidewire_command::report::{Delay, Summary};

/// A bound of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    figure: Figure,
    at_least: bool,
    /// In the unit of the summary.
    bound: f64,
    text: String,
}

/// Figures that can be required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Goodput,
    Mean,
    P50,
    P95,
    P99,
    P999,
    Max,
    Loss,
    Overhead,
}

const FIGURES: [(&str, Figure); 9] = [
    ("goodput", Figure::Goodput),
    ("mean", Figure::Mean),
    ("p50", Figure::P50),
    ("p95", Figure::P95),
    ("p99", Figure::P99),
    ("p999", Figure::P999),
    ("max", Figure::Max),
    ("loss", Figure::Loss),
    ("overhead", Figure::Overhead),
];

impl Requirement {
    /// The measured value in the unit of the summary; `None` if it was not measured.
    pub fn measured(&self, summary: &Summary) -> Option<f64> {
        let delay = summary.records.map_or_else(Delay::default, |records| records.delay_ms);
        match self.figure {
            Figure::Goodput => Some(summary.goodput_bps),
            Figure::Mean => delay.mean,
            Figure::P50 => delay.p50,
            Figure::P95 => delay.p95,
            Figure::P99 => delay.p99,
            Figure::P999 => delay.p999,
            Figure::Max => delay.max,
            Figure::Loss => summary.loss,
            Figure::Overhead => summary.overhead,
        }
    }

    /// Whether the bound is met. A figure that was not measured does not meet it.
    pub fn is_met(&self, summary: &Summary) -> bool {
        let met = |value: f64| if self.at_least { value >= self.bound } else { value <= self.bound };
        self.measured(summary).is_some_and(met)
    }

    /// `value` in the unit of the figure, or that it was not measured.
    pub fn describe(&self, value: Option<f64>) -> String {
        match (value, self.figure) {
            (None, _) => "not measured".into(),
            (Some(value), Figure::Goodput) => tidewire_command::report::rate(value),
            (Some(value), Figure::Loss | Figure::Overhead) => format!("{:.2} %", 100.0 * value),
            (Some(value), _) => format!("{value:.2} ms"),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let names: Vec<_> = FIGURES.iter().map(|(name, _)| *name).collect();
            format!(
                "`{text}` is no requirement; write for example goodput>=20mbit,p95<=40ms (figures: {})",
                names.join(" ")
            )
        };
        let text = text.trim();
        let (name, at_least, bound) = match (text.split_once(">="), text.split_once("<=")) {
            (Some((name, bound)), _) => (name, true, bound),
            (None, Some((name, bound))) => (name, false, bound),
            (None, None) => return Err(wrong()),
        };
        let known = FIGURES.iter().find(|(known, _)| *known == name.trim());
        let figure = known.ok_or_else(wrong)?.1;
        let bound = match figure {
            Figure::Goodput => bound.parse::<Rate>().map_err(|error| error.to_string())?.bits_per_second() as f64,
            Figure::Loss | Figure::Overhead => bound.parse::<Probability>().map_err(|error| error.to_string())?.value(),
            _ => milliseconds(parse_duration(bound).map_err(|error| error.to_string())?),
        };
        Ok(Self { figure, at_least, bound, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_command::records::Records;

    #[test]
    fn bounds_are_read_and_judged() {
        let records = Records {
            delivered: 1,
            bytes_each: 1_200,
            delay_ms: Delay { p95: Some(40.0), ..Delay::default() },
            steady_delay_ms: Delay::default(),
            one_way_ms: None,
        };
        let summary = Summary { records: Some(records), loss: Some(0.1), ..Summary::new(2_500_000, 1.0, 3_000_000) };
        for (text, met) in [
            ("goodput>=20mbit", true),
            ("goodput >= 20.1mbit", false),
            ("goodput<=20mbit", true),
            ("p95<=40ms", true),
            ("p95<=39.9ms", false),
            ("p95>=50ms", false),
            ("p99<=1h", false),
            ("loss<=10%", true),
            ("overhead<=19%", false),
            ("overhead<=20.1%", true),
        ] {
            assert_eq!(text.parse::<Requirement>().unwrap().is_met(&summary), met, "{text}");
        }
        for text in ["", "p95", "p95<40ms", "speed>=1mbit", "p95<=40", "goodput>=40ms", "loss<=0.1"] {
            assert!(text.parse::<Requirement>().is_err(), "{text}");
        }
    }
}
