//! The share of the link that one CUBIC flow of the kernel gets through the tunnel, beside one without.

use super::{LINK, LOSSES, RATE_BPS, add_row, event, flow, number, pairs, run_network};
use crate::context::Context;
use std::path::Path;

/// The least share of C(1 - p) through the tunnel.
const GOAL: f64 = 0.80;
/// When the measured flows begin, and when the run ends. A flow through the tunnel of [`WARM_UP`], three
/// seconds at the rate of the link, comes before.
const TIMES: (u32, u32) = (8, 38);
const WARM_UP: &str = "bytes = \"8MB\"";

/// Measures each loss. Both flows run at once, over links of their own.
pub fn measure(_: &Context, binary: &Path, _: bool) -> Result<(String, bool), String> {
    let (begin, end) = TIMES;
    let mut text = String::new();
    add_row(&mut text, "| loss | CUBIC alone | through the tunnel | repairs per source symbol | marked | dropped |");
    add_row(&mut text, "| --- | --- | --- | --- | --- | --- |");
    let mut holds = true;
    for (title, loss, lost) in LOSSES {
        let (tunnel, alone) = (("t", true), ("u", false));
        let start = format!("start = \"{begin}s\"");
        let scenario = [
            format!("seed = 1\ntime = \"{end}s\"\n"),
            pairs(&format!("{LINK}loss = \"{loss}\"\n"), &[tunnel, alone]),
            flow("warm-up", "cubic", tunnel, WARM_UP),
            flow("through", "cubic", tunnel, &start),
            flow("alone", "cubic", alone, &start),
        ];
        let events = run_network(binary, &scenario.concat())?;
        let share = |name: &str| {
            let bps = number(&event(&events, "network_flow", name)?["goodput_bps"]);
            Ok::<_, String>(bps / (RATE_BPS * (1.0 - lost)))
        };
        let (through, alone) = (share("through")?, share("alone")?);
        let near = &event(&events, "network_tunnel", "t")?["ends"][0];
        let repairs = (number(&near["repair"]) + number(&near["feedback_repair"])) / number(&near["source"]);
        let dropped: f64 = near["dropped"].as_object().into_iter().flatten().map(|(_, count)| number(count)).sum();
        let held = through >= GOAL;
        let verdict = if held { "ok" } else { "**MISSED**" };
        add_row(
            &mut text,
            &format!(
                "| {title} | {alone:.2} | {through:.2} >= {GOAL} {verdict} | {repairs:.2} | {} | {dropped} |",
                near["marked"]
            ),
        );
        holds &= held;
    }
    Ok((text, holds))
}
