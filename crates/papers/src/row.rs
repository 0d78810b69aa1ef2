//! One point of a figure or cell of a table, and files of them.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// A formula.
    Model,
    /// The formula that the paper prints, where another is right.
    Printed,
    /// Simulation without a protocol: one packet a slot, perfect feedback and coding.
    Ideal,
    /// The real protocol and code, over the emulated link in virtual time.
    Code,
    /// The same over real sockets, and the emulated link in real time.
    Lab,
    /// The kernel's TCP over that link.
    KernelTcp,
}

/// A point. What does not apply is `None`, empty in CSV and absent in JSON. Delays in milliseconds, except
/// where the paper's axis is slots.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Curve of the figure.
    pub curve: String,
    /// Where it comes from.
    pub how: How,
    /// Loss rate.
    pub loss: f64,
    /// Mean burst of Gilbert losses; none for independent ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<f64>,
    /// Parameter of the figure: block size, spacing, or the lower end of a histogram's bin.
    pub parameter: f64,
    /// Source symbols over all packets; of the kernel's TCP, bytes delivered over bytes sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The figure's ordinate: mean in-order delay, operations, or fraction of symbols.
    pub value: f64,
    /// Quantiles of the delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// See [`Self::p50`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
}

impl Row {
    /// A point with no more than it must have.
    pub fn new(curve: impl Into<String>, how: How, loss: f64, parameter: f64, value: f64) -> Self {
        Self { curve: curve.into(), how, loss, burst: None, parameter, rate: None, value, p50: None, p99: None }
    }
}

/// Writes `rows` as `NAME.csv` and `NAME.json` into `folder`.
///
/// # Errors
/// What the file system says.
pub fn write(folder: &Path, name: &str, rows: &[Row]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(format!("{name}.csv")), csv(rows))?;
    fs::write(folder.join(format!("{name}.json")), json(rows)? + "\n")
}

/// An array with an element a line.
pub(crate) fn json(elements: &[impl Serialize]) -> io::Result<String> {
    let lines: Vec<String> = elements.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    Ok(format!("[\n{}\n]", lines.join(",\n")))
}

pub(crate) fn csv(rows: &[Row]) -> String {
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
        // Writing to a string does not fail.
        let _ = writeln!(text, "{},{how},{}", row.curve, numbers.map(number).join(","));
    }
    text
}

/// Six digits, so that a difference in rounding between machines does not show.
fn short(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_apply_is_empty() {
        let row = Row { rate: Some(0.8), ..Row::new("streaming", How::Code, 0.1, 5.0, 1.234_567_89) };
        assert_eq!(csv(&[row]).lines().nth(1), Some("streaming,code,0.1,,5,0.8,1.23457,,"));
    }
}
