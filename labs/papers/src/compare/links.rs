//! The links on which the profiles are compared.
//!
//! The first four are those of the README's goals or near them, on which the default was developed. The other
//! four were chosen for this comparison before its first run, and no code was changed for them since.

use std::path::Path;

use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::settings::Direction::{self, Back, Both, Forward};

/// A link by its settings, as a scenario file has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// What it is like, for the table.
    pub name: &'static str,
    /// Its rate.
    pub kbit: u64,
    /// What it loses of the data, from 0 to 1, and the mean burst.
    pub loss: f64,
    pub burst: Option<f64>,
    /// All settings but these.
    settings: &'static [(Direction, &'static str, &'static str)],
}

/// All links, in the order of the table.
pub(super) const LINKS: [Link; 8] = [
    link("25 Mbit/s, 60 ms, no loss", 25_000, 0.0, None, &[(Both, "rtt", "60ms")]),
    link("25 Mbit/s, 60 ms, 2 %", 25_000, 0.02, None, &[(Both, "rtt", "60ms")]),
    link("25 Mbit/s, 60 ms, 10 % x 4", 25_000, 0.1, Some(4.0), &[(Both, "rtt", "60ms")]),
    link("50 Mbit/s, 10 ms, 5 %", 50_000, 0.05, None, &[(Both, "rtt", "10ms")]),
    link(
        "7 Mbit/s, 133 ms, 3.1 % x 2.3, feedback 3 %, short queue",
        7_000,
        0.031,
        Some(2.3),
        &[(Both, "rtt", "133ms"), (Both, "queue", "47ms"), (Back, "loss", "3%")],
    ),
    link(
        "83 Mbit/s, 31 ms, 0.6 % x 11, queue 9 ms",
        83_000,
        0.006,
        Some(11.0),
        &[(Both, "rtt", "31ms"), (Both, "queue", "9ms")],
    ),
    link(
        "2.2 Mbit/s, 590 ms, 1.7 %, back 200 kbit/s",
        2_200,
        0.017,
        None,
        &[(Both, "rtt", "590ms"), (Back, "rate", "200kbit")],
    ),
    link(
        "16 Mbit/s, 45 ms, 4 %, jitter, reordering, duplicates",
        16_000,
        0.04,
        None,
        &[
            (Both, "rtt", "45ms"),
            (Forward, "jitter", "6ms"),
            (Forward, "reorder", "3%,4ms"),
            (Forward, "duplicate", "1%"),
        ],
    ),
];

const fn link(
    name: &'static str,
    kbit: u64,
    loss: f64,
    burst: Option<f64>,
    settings: &'static [(Direction, &'static str, &'static str)],
) -> Link {
    Link { name, kbit, loss, burst, settings }
}

impl Link {
    /// Bits per second that the link delivers, IP headers included.
    pub(super) fn delivers(&self) -> f64 {
        self.kbit as f64 * 1e3 * (1.0 - self.loss)
    }

    /// The link as the simulator takes it. Its queue is one round trip unless the settings say otherwise.
    pub(super) fn duplex(&self, seed: u64) -> DuplexConfig {
        let mut duplex = DuplexConfig::default();
        let mut set = |direction, key, text: &str| {
            duplex.set(direction, key, text, Path::new("")).expect("a setting of this file, which a test reads");
        };
        set(Both, "rate", &format!("{}kbit", self.kbit));
        let percent = 100.0 * self.loss;
        let loss = self.burst.map_or(format!("{percent}%"), |burst| format!("gilbert:{percent}%,{burst}"));
        set(Forward, "loss", &loss);
        self.settings.iter().for_each(|&(direction, key, text)| set(direction, key, text));
        duplex.set_seed(seed);
        duplex
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_one_of_a_link() {
        for link in LINKS {
            assert!(link.duplex(1).forward.delay.as_millis() >= 5, "{}", link.name);
            assert!(link.delivers() > 0.0 && link.name.len() < 60);
        }
    }
}
