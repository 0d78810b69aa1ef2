//! The handshake over a pair: under loss, and with a secret that is not the other's.

use core::time::Duration;

use tidewire_proto::connection::CloseReason;
use tidewire_proto::crypto::Secret;
use tidewire_sim::load::{Flow, Load};
use tidewire_sim::pair::{End, Pair};
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

use super::{RTT, link};

#[test]
fn half_of_the_handshakes_under_30_percent_loss_take_one_round_trip() {
    let mut times: Vec<Duration> = (1..=500)
        .map(|seed| {
            let mut link = link(&[(Direction::Both, "loss", "30%")]);
            link.set_seed(seed);
            let mut run = Trial::new(link, vec![Flow::bulk(End::Near, 1_000)], seed).start().unwrap();
            let began = run.began();
            run.until(began + Duration::from_secs(40));
            assert!(run.report().done, "seed {seed}: {:?}", run.report());
            run.load.began().unwrap().since(began)
        })
        .collect();
    times.sort();
    // RELIABILITY H1.
    assert!(times[250] <= RTT.mul_f64(1.2), "median {:?}", times[250]);
    assert!(times[495] <= RTT + Duration::from_millis(750), "99 % {:?}", times[495]);
}

#[test]
fn a_wrong_secret_is_not_answered() {
    let mut trial = Trial::new(link(&[]), Vec::new(), 1);
    trial.near.handshake_timeout = Duration::from_secs(10);
    let secrets = [Secret::new([1; 32]), Secret::new([2; 32])];
    let mut pair = Pair::with_secrets(trial.near, trial.far, &trial.link, 1, secrets).unwrap();
    let mut load = Load::new(&[Flow::bulk(End::Near, 1)], 1);
    pair.connect(&mut load);
    let until = pair.now() + Duration::from_secs(60);
    pair.run(&mut load, until, Load::is_over);
    assert_eq!(load.closed, [Some(CloseReason::NoAnswer), None]);
    assert_eq!(pair.link_mut().back.stats().offered, 0, "silence to strangers");
    let stats = *pair.endpoint(End::Far).stats();
    assert!(stats.strangers > 0 && stats.strangers == stats.received, "{stats:?}");
}
