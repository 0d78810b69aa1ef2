//! A plan of repair in words, and what changed since the plan before.

use std::time::Duration;

use tidewire::Plan;

/// Describes a plan, and what changed since the plan `before` that was described last.
pub fn words(before: Option<&Plan>, plan: &Plan) -> String {
    match before {
        Some(before) if plan.nearest.is_none() => format!("{}; {plan}", change(before, plan)),
        _ => plan.to_string(),
    }
}

/// Describes how the repair changed, and which condition of the path changed most. Losses beside a long queue
/// never count (`docs/recovery.md` section 1), so the loss named here is not congestion.
fn change(before: &Plan, now: &Plan) -> String {
    let (a, b) = (before.conditions, now.conditions);
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let grew = |from: f64, to: f64| if to > from { "grew" } else { "fell" };
    let seconds = Duration::as_secs_f64;
    let loss = format!(
        "losses {} from {} to {} with no queue, so not congestion",
        grew(a.loss, b.loss),
        percent(a.loss),
        percent(b.loss)
    );
    let reasons = [
        (a.loss, b.loss, loss),
        (a.burst, b.burst, format!("bursts {} from {:.1} to {:.1} packets", grew(a.burst, b.burst), a.burst, b.burst)),
        (
            seconds(&a.rtt),
            seconds(&b.rtt),
            format!("the round trip {} from {} to {}", grew(seconds(&a.rtt), seconds(&b.rtt)), ms(a.rtt), ms(b.rtt)),
        ),
        (
            seconds(&b.interval),
            seconds(&a.interval),
            format!(
                "the flow {} from {:.0} to {:.0} symbols a second",
                grew(seconds(&b.interval), seconds(&a.interval)),
                1.0 / seconds(&a.interval),
                1.0 / seconds(&b.interval)
            ),
        ),
    ];
    let times = |from: f64, to: f64| (to.max(1e-9) / from.max(1e-9)).ln().abs();
    let most = reasons.into_iter().max_by(|x, y| times(x.0, x.1).total_cmp(&times(y.0, y.1)));
    format!(
        "repair {} to {}: {}",
        percent(before.share),
        percent(now.share),
        most.map_or_else(String::new, |reason| reason.2)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_proto::redundancy::plan::{Conditions, Target, plan};

    #[test]
    fn a_change_names_what_changed_most() {
        let target = Target { latency: Duration::from_millis(40), deliver: 0.99, max_overhead: 0.5 };
        let usual =
            Conditions { loss: 0.02, burst: 1.1, rtt: Duration::from_millis(60), interval: Duration::from_millis(1) };
        let to = |conditions| change(&plan(target, usual), &plan(target, conditions));
        let words = to(Conditions { loss: 0.1, ..usual });
        assert!(words.contains("losses grew from 2.0 % to 10.0 % with no queue, so not congestion"), "{words}");
        let words = to(Conditions { burst: 4.0, loss: 0.03, ..usual });
        assert!(words.contains("bursts grew from 1.1 to 4.0 packets"), "{words}");
        let words = to(Conditions { rtt: Duration::from_millis(20), ..usual });
        assert!(words.contains("the round trip fell from 60.0 ms to 20.0 ms"), "{words}");
        let words = to(Conditions { interval: Duration::from_millis(4), ..usual });
        assert!(words.contains("the flow fell from 1000 to 250 symbols a second"), "{words}");
    }
}
