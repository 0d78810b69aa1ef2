//! Explains the planned repair to the user when the plan begins and when it changes.
//!
//! The verbs that connect keep an [`Explainer`] beside their connection. A plan that is much like the one
//! before is not reported. Without a target of the user (`--latency`), only the event of `--json` is written.

use std::time::Duration;

use serde::Serialize;
use tidewire::{Connection, Plan};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use tidewire_command::report::Console;
use tidewire_dashboard::words;

/// Time between looks at the plan. The transport makes a new plan at most four times a second.
const INTERVAL: Duration = Duration::from_millis(500);

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// The repair planned for the target of `--latency`, or why the target cannot be met. Written for the
    /// first plan and for each plan that differs from the one before.
    Explain {
        /// Proactive repairs per source symbol.
        repair: f64,
        /// Predicted fraction of source symbols later than the target.
        late: f64,
        /// Whether the target can be met.
        feasible: bool,
        /// If it cannot: the latency that can be kept for the fraction asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        feasible_latency_ms: Option<f64>,
        /// If it cannot: the fraction that can keep the latency asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        feasible_deliver: Option<f64>,
        /// If it cannot: the limit of proactive repair that would suffice, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        feasible_max_overhead: Option<f64>,
        /// The same as a sentence.
        words: &'a str,
    },
}

/// Explains the plans of a connection until it is dropped.
#[derive(Debug)]
pub struct Explainer(JoinHandle<()>);

impl Explainer {
    /// Reports the plan of `connection` to `console`, and each plan that differs enough from the last.
    pub fn begin(connection: Connection, console: Console) -> Self {
        Self(tokio::spawn(async move {
            let mut ticks = interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut said: Option<Plan> = None;
            loop {
                ticks.tick().await;
                if let Some(plan) = connection.stats().plan.filter(|plan| is_news(said.as_ref(), plan)) {
                    say(said.as_ref(), &plan, &console);
                    said = Some(plan);
                }
            }
        }))
    }
}

impl Drop for Explainer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn is_news(said: Option<&Plan>, plan: &Plan) -> bool {
    said.is_none_or(|said| !said.is_like(plan))
}

fn say(before: Option<&Plan>, plan: &Plan, console: &Console) {
    let words = words(before, plan);
    console.event(&Event::Explain {
        repair: plan.share,
        late: plan.late,
        feasible: plan.nearest.is_none(),
        feasible_latency_ms: plan.nearest.map(|nearest| nearest.latency.as_secs_f64() * 1e3),
        feasible_deliver: plan.nearest.map(|nearest| nearest.deliver),
        feasible_max_overhead: plan.nearest.and_then(|nearest| nearest.max_overhead),
        words: &words,
    });
    match plan.nearest {
        // The target cannot be met, so this is reported even if other output is silenced.
        Some(_) if !console.json() => console.warn(&format!("tidewire: {words}")),
        _ if plan.stated => console.say(&words),
        _ => {}
    }
}
