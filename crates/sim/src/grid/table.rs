//! The grid as Markdown and JSON.

use core::fmt::Write;

use super::envelope::{Least, reached};
use super::figures::{Figures, Part};
use super::{Family, Row};

/// A table of one part of the runs, with one row per cell and a summary line.
pub fn markdown(rows: &[Row], part: Part) -> String {
    let mut text = String::from(
        "| cell | ours: mean, p99 ms / sent | best mean ms | of | ratio | best p99 ms | of | ratio | |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let Figures { sent_per_byte, mean_ms, p99_ms, .. } = *row.ours.part(part);
        let envelope = row.envelope(part);
        let ratios = row.ratios(part);
        let best = |least: Option<Least>, ratio: f64| match least {
            Some(least) => format!("{:.2} | {} | {ratio:.2}", least.value, named(least.family, least.number)),
            None => "- | nobody sent as little | -".to_owned(),
        };
        let (mean, p99) = (best(envelope.mean, ratios[0]), best(envelope.p99, ratios[1]));
        let missed = if reached(ratios) { "" } else { "missed" };
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {mean_ms:.2}, {p99_ms:.1} / {sent_per_byte:.3} | {mean} | {p99} | {missed} |",
            row.cell
        );
    }
    text.push_str(&summary(rows, part));
    text
}

/// How many cells reach the goals, and the worst ratios.
fn summary(rows: &[Row], part: Part) -> String {
    let all: Vec<[f64; 2]> = rows.iter().map(|row| row.ratios(part)).collect();
    let count = |of: &dyn Fn([f64; 2]) -> bool| all.iter().filter(|&&ratios| of(ratios)).count();
    let worst = |of: usize| {
        let row = rows.iter().max_by(|a, b| a.ratios(part)[of].total_cmp(&b.ratios(part)[of]));
        row.map_or_else(String::new, |row| format!("{:.2} ({})", row.ratios(part)[of], row.cell))
    };
    format!(
        "\n{} of {} cells reached (mean {}, p99 {}); worst mean ratio {}, worst p99 ratio {}\n",
        count(&reached),
        rows.len(),
        count(&|[mean, _]| reached([mean, 0.0])),
        count(&|[_, p99]| reached([0.0, p99])),
        worst(0),
        worst(1),
    )
}

fn named(family: Family, number: f64) -> String {
    match family {
        Family::Arq => family.to_string(),
        Family::Nack => format!("{family} {number:.1}"),
        _ => format!("{family} {number:.3}"),
    }
}

/// Every point of every cell, one JSON object per line. Ours has the family `adaptive`.
pub fn json(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let mut line = |family: &str, number: f64, measured: &super::Measured| {
            let figures = |part| {
                let Figures { sent_per_byte, mean_ms, p99_ms, goodput_bps } = *measured.part(part);
                // JSON has no infinity. A policy that delivered nothing has no delay.
                let ms = |value: f64| if value.is_finite() { format!("{value:.4}") } else { "null".to_owned() };
                let (mean, p99) = (ms(mean_ms), ms(p99_ms));
                format!(
                    "{{\"sent_per_byte\":{sent_per_byte:.5},\"mean_ms\":{mean},\"p99_ms\":{p99},\"goodput_bps\":{goodput_bps:.0}}}"
                )
            };
            let _ = writeln!(
                text,
                "{{\"cell\":\"{}\",\"family\":\"{family}\",\"number\":{number:.5},\"steady\":{},\"whole\":{}}}",
                row.cell,
                figures(Part::Steady),
                figures(Part::Whole)
            );
        };
        line("adaptive", row.cell.misjudged, &row.ours);
        row.points.iter().for_each(|point| line(&point.family.to_string(), point.number, &point.measured));
    }
    text
}
