//! One point of a figure or cell of a table, and files of rows.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidewire_figures::csv;

/// The source of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// A formula.
    Model,
    /// The formula that the paper prints, if another one is correct.
    Printed,
    /// Simulation without a protocol: one packet per slot, perfect feedback and coding.
    Ideal,
    /// The real protocol and code, over the emulated link in virtual time.
    Code,
    /// The real protocol over real sockets and the emulated link in real time.
    Lab,
    /// Kernel TCP over the same link.
    KernelTcp,
}

/// A point. A value that does not apply is `None`: empty in CSV, absent in JSON. Delays are in milliseconds,
/// unless the paper's axis is slots.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Curve of the figure.
    pub curve: String,
    /// Source of the value.
    pub how: How,
    /// Loss rate.
    pub loss: f64,
    /// Mean burst of Gilbert losses; `None` for independent losses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<f64>,
    /// Parameter of the figure: block size, spacing, or the lower end of a bin of a histogram.
    pub parameter: f64,
    /// Source symbols per packet; for kernel TCP, bytes delivered per byte sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The figure's ordinate: mean in-order delay, operations, or fraction of symbols.
    pub value: f64,
    /// Quantiles of the delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// See [`Self::p50`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
}

impl Row {
    /// A point with only the required values.
    pub fn new(curve: impl Into<String>, how: How, loss: f64, parameter: f64, value: f64) -> Self {
        Self { curve: curve.into(), how, loss, burst: None, parameter, rate: None, value, p50: None, p99: None }
    }
}

/// Writes `rows` as `NAME.csv` and `NAME.json` into `folder`.
///
/// # Errors
/// Errors of the file system.
pub fn write(folder: &Path, name: &str, rows: &[Row]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(format!("{name}.csv")), table(rows))?;
    fs::write(folder.join(format!("{name}.json")), json(rows)? + "\n")
}

/// A JSON array with one element per line.
pub(crate) fn json(elements: &[impl Serialize]) -> io::Result<String> {
    let lines: Vec<String> = elements.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    Ok(format!("[\n{}\n]", lines.join(",\n")))
}

pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::from("curve,how,loss,burst,parameter,rate,value,p50,p99\n");
    for row in rows {
        let how = match row.how {
            How::Model => "model",
            How::Printed => "printed",
            How::Ideal => "ideal",
            How::Code => "code",
            How::Lab => "lab",
            How::KernelTcp => "kernel-tcp",
        };
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| short(value).to_string());
        let numbers = [Some(row.loss), row.burst, Some(row.parameter), row.rate, Some(row.value), row.p50, row.p99];
        let [loss, burst, parameter, rate, value, p50, p99] = numbers.map(number);
        text += &csv::line([&*row.curve, how, &loss, &burst, &parameter, &rate, &value, &p50, &p99]);
    }
    text
}

/// Rounds to six digits, so that rounding differences between machines do not show.
fn short(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_apply_is_empty() {
        let row = Row { rate: Some(0.8), ..Row::new("streaming", How::Code, 0.1, 5.0, 1.234_567_89) };
        assert_eq!(table(&[row]).lines().nth(1), Some("streaming,code,0.1,,5,0.8,1.23457,,"));
        let row = Row::new("block:32,8", How::Model, 0.0, 1.0, 2.0);
        assert_eq!(table(&[row]).lines().nth(1), Some("\"block:32,8\",model,0,,1,,2,,"));
    }
}
