//! Fresh keys during a transfer (wire.md section 3.1): both ends use them, without any effect on the data.

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::rebinding::{Rebinding, Rebound};
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

use super::link;

/// Streams in both directions over loss and reordering, with fresh keys each second, key updates each 200
/// packets and another port each 1.3 s. The load checks each byte.
#[test]
fn fresh_keys_cost_no_byte() {
    let seeds = if tidewire_testing::few_seeds() { 3 } else { 30 };
    for (loss, reorder) in [("0%", "none"), ("10%", "5%,20ms"), ("30%", "5%,20ms")] {
        let (mut exchanges, mut updates) = ([0; 2], 0);
        let mut seconds = [0.0; 2];
        for (seed, fresh) in (1..=seeds).flat_map(|seed| [true, false].map(|fresh| (seed, fresh))) {
            let mut link = link(&[(Direction::Both, "loss", loss), (Direction::Both, "reorder", reorder)]);
            link.set_seed(seed);
            let flows = vec![Flow::bulk(End::Near, 3_000_000), Flow::paced(End::Far, 600_000, 100_000)];
            let mut trial = Trial::new(link, flows, seed);
            if fresh {
                let near = Config::builder().fresh_keys_after(Duration::from_secs(1)).packets_per_key(200);
                trial.near = near.build().expect("in range");
                trial.far = Config::builder().packets_per_key(150 + seed).build().expect("in range");
                trial.rebinding = Some(Rebinding { what: Rebound::Port, every: Duration::from_millis(1_300) });
            }
            let mut run = trial.start();
            run.until(Time::from_millis(60_000));
            let report = run.report();
            assert!(report.done && report.closed == [None, None], "{loss}, seed {seed}: {report:?}");
            assert_eq!(report.counted.overdue, 0, "{loss}, seed {seed}");
            seconds[usize::from(fresh)] += report.seconds;
            if fresh {
                exchanges = [exchanges[0] + report.near.fresh_keys, exchanges[1] + report.far.fresh_keys];
                updates += report.near.key_updates + report.far.key_updates;
                assert!(report.near.fresh_keys >= 3 && report.far.fresh_keys >= 2, "{loss}, seed {seed}: {report:?}");
            }
        }
        println!(
            "{loss} lost: {exchanges:?} exchanges, {updates} updates; {:.1} s, {:.1} with neither them nor moves",
            seconds[1], seconds[0]
        );
    }
}
