//! The table of floods: printed row by row, and with `--write` kept in `docs/data`.

use std::path::PathBuf;
use std::time::Duration;

use super::neighbour::Figures;

/// Share of a core that a flood may take beyond its control.
const SHARE: f64 = 0.25;
/// How much later an honest neighbour's pings may come back, at the 99th percentile.
const PING: Duration = Duration::from_millis(5);
/// What a neighbour's goodput is at least, as a part of that beside the control.
const BULK: f64 = 0.95;

/// A table with a row for each flood.
pub struct Rows {
    lines: Vec<String>,
    missed: usize,
}

impl Rows {
    /// Prints the heading. `what` names the first column, `rate` the second.
    pub fn new(what: &str, rate: &str) -> Self {
        println!("{what:44} {rate:>18}   core  control   above    ping p99  control  Mbit/s  of control");
        let heading = format!(
            "{what},{rate},share of a core,that of the control,above,neighbour's ping p99,beside the control,\
             its goodput,of that beside the control,"
        );
        Self { lines: vec![heading], missed: 0 }
    }

    /// Prints and keeps a row. `rate`: Mbit/s of the flood.
    pub fn add(&mut self, name: &str, rate: f64, with: Figures, control: Figures) {
        let (above, part) = (with.share - control.share, with.bulk / control.bulk);
        let (percent, ms) = (|share: f64| 100.0 * share, |time: Duration| time.as_secs_f64() * 1e3);
        let is_met = [above <= SHARE, with.ping <= control.ping + PING, part >= BULK];
        let missed = ["core", "ping", "goodput"].iter().zip(is_met).filter(|(_, met)| !met).map(|(what, _)| *what);
        let missed = missed.collect::<Vec<_>>().join(" and ");
        self.missed += usize::from(!missed.is_empty());
        println!(
            "{name:44} {rate:11.1} Mbit/s {:5.1} % {:6.1} % {:6.1} % {:8.2} ms {:5.2} ms {:7.1} {:11.2}  {missed}",
            percent(with.share),
            percent(control.share),
            percent(above),
            ms(with.ping),
            ms(control.ping),
            with.bulk / 1e6,
            part
        );
        self.lines.push(format!(
            "\"{name}\",{rate:.1} Mbit/s,{:.1} %,{:.1} %,{:.1} %,{:.2} ms,{:.2} ms,{:.1} Mbit/s,{part:.2},{missed}",
            percent(with.share),
            percent(control.share),
            percent(above),
            ms(with.ping),
            ms(control.ping),
            with.bulk / 1e6
        ));
    }

    /// Says how many rows miss their goals. Writes the table to `docs/data/NAME.csv` if asked to.
    pub fn end(self, name: &str, writes: bool) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!("{} of {} rows miss a goal; load average {}", self.missed, self.lines.len() - 1, load.trim());
        if writes {
            let manifest = std::env::var_os("CARGO_MANIFEST_DIR").expect("started by cargo run");
            let path = PathBuf::from(manifest).join("../../docs/data").join(name).with_extension("csv");
            std::fs::write(&path, self.lines.join("\n") + "\n").expect("writable");
        }
    }
}
