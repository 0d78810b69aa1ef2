//! Losses over a long path, with a peer that allows short spans only. A report then covers few of the symbols
//! in flight, but all losses of a round trip are repaired in the next one.

use core::time::Duration;

use tidewire_proto::config::Config;
use tidewire_sim::link::Loss;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

use super::link;

const BYTES_PER_SECOND: f64 = 200e6 / 8.0;
const RTT: Duration = Duration::from_millis(100);

/// Part of the rate that is read in each round trip after one in which every n-th packet was lost. The ends
/// allow spans of `near` and `far` symbols.
fn read_after_losses(near: u16, far: u16, nth: usize) -> Vec<f64> {
    let links = link(&[(Direction::Both, "rate", "200mbit"), (Direction::Both, "rtt", "100ms")]);
    let mut trial = Trial::new(links, vec![Flow::bulk(End::Near, u64::MAX / 4)], 7);
    [trial.near, trial.far] = [near, far].map(|span| Config::builder().max_span(span).build().unwrap());
    let mut run = trial.start();
    let mut at = run.began() + Duration::from_secs(2);
    run.until(at);
    let every: Vec<bool> = (0..nth).map(|n| n == 0).collect();
    run.pair.link_mut().forward.set_loss(&Loss::Trace(every.into()));
    at += RTT;
    run.until(at);
    run.pair.link_mut().forward.set_loss(&Loss::None);
    let mut read = run.load.read();
    let each = (0..8).map(|_| {
        at += RTT;
        run.until(at);
        let before = core::mem::replace(&mut read, run.load.read());
        (read - before) as f64 / (BYTES_PER_SECOND * RTT.as_secs_f64())
    });
    let parts = each.collect();
    assert!(run.load.errors.is_empty() && run.load.closed == [None, None], "{:?}", run.load.closed);
    println!("spans of {near} and {far}, one of {nth} lost: {parts:.2?}");
    parts
}

/// After one of ten: the second round trip delivers what is sent again in the first. After one of two the
/// sender also slows down. When each report was answered by itself, 0.19 to 0.41 of the rate were read after
/// one of ten, 0.04 to 0.50 after one of two.
#[test]
fn issue_39_all_losses_of_a_round_trip_are_repaired_at_once_however_short_the_spans() {
    for (near, far) in [(256, 1), (256, 8), (8, 256)] {
        for (nth, rounds, least) in [(10, 2, 0.8), (2, 7, 0.4)] {
            let parts = read_after_losses(near, far, nth);
            let mean = parts[..rounds].iter().sum::<f64>() / rounds as f64;
            assert!(mean >= least, "spans of {near} and {far}, one of {nth} lost: {mean:.2} of the rate");
        }
    }
}
