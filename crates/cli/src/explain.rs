//! Says in words what the transport does for a target that the user gave (`--latency`), when it begins to, and when that changes.
//!
//! The connecting verbs keep a [`Watch`] beside their connection. Nothing is said without a target, nor of a plan much like the one before.

use std::time::Duration;

use tidewire::{Connection, Plan};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::report::{Console, Event};

/// How often the plan is looked at: it is made anew four times a second at most.
const INTERVAL: Duration = Duration::from_millis(500);

/// Watches a connection until it is dropped.
#[derive(Debug)]
pub struct Watch(JoinHandle<()>);

impl Watch {
    /// Begins to.
    pub fn begin(connection: Connection, console: Console) -> Self {
        Self(tokio::spawn(async move {
            let mut ticks = interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut said: Option<Plan> = None;
            loop {
                ticks.tick().await;
                if let Some(plan) = connection.stats().plan.filter(|plan| is_news(said.as_ref(), plan)) {
                    say(&plan, &console);
                    said = Some(plan);
                }
            }
        }))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn is_news(said: Option<&Plan>, plan: &Plan) -> bool {
    said.is_none_or(|said| !said.is_like(plan))
}

fn say(plan: &Plan, console: &Console) {
    let words = plan.to_string();
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
        // Not what was asked for: said whatever else is silenced, but where lines are JSON.
        Some(_) if !console.json() => console.warn(&format!("tidewire: {words}")),
        _ => console.say(&words),
    }
}
