//! The handshake of a pair: under loss, and with a wrong secret.

use core::net::SocketAddr;
use core::time::Duration;

use tidewire_figures::quantile;
use tidewire_proto::config::Config;
use tidewire_proto::connection::CloseReason;
use tidewire_proto::crypto::Secret;
use tidewire_sim::load::{Flow, Load};
use tidewire_sim::pair::{End, Pair};
use tidewire_sim::rebinding::Rebound;
use tidewire_sim::report::{Run, Trial};
use tidewire_sim::settings::Direction;

use super::{RTT, link};

#[test]
fn half_of_the_handshakes_under_30_percent_loss_take_one_round_trip() {
    let mut times: Vec<Duration> = (1..=500)
        .map(|seed| {
            let mut link = link(&[(Direction::Both, "loss", "30%")]);
            link.set_seed(seed);
            let mut run = Trial::new(link, vec![Flow::bulk(End::Near, 1_000)], seed).start();
            let began = run.began();
            run.until(began + Duration::from_secs(40));
            assert!(run.report().done, "seed {seed}: {:?}", run.report());
            run.load.began().unwrap().since(began)
        })
        .collect();
    times.sort();
    // Row H1 of docs/survival.md.
    let [p50, p99] = [0.5, 0.99].map(|q| quantile(&times, q).unwrap());
    assert!(p50 <= RTT.mul_f64(1.2), "median {p50:?}");
    assert!(p99 <= RTT + Duration::from_millis(750), "99 % {p99:?}");
}

#[test]
fn a_wrong_secret_is_not_answered() {
    let mut trial = Trial::new(link(&[]), Vec::new(), 1);
    trial.near = Config::builder().handshake_timeout(Duration::from_secs(10)).build().expect("in range");
    let secrets = [Secret::new([1; 32]), Secret::new([2; 32])];
    let mut pair = Pair::with_secrets(trial.near, trial.far, &trial.link, 1, secrets);
    let mut load = Load::new(&[Flow::bulk(End::Near, 1)], 1);
    pair.connect(&mut load);
    let until = pair.now() + Duration::from_secs(60);
    pair.run(&mut load, until, Load::is_over);
    assert_eq!(load.closed, [Some(CloseReason::NoAnswer), None]);
    assert_eq!(pair.link_mut().back.stats().offered, 0, "silence to strangers");
    let stats = pair.endpoint(End::Far).stats();
    assert!(stats.strangers > 0 && stats.strangers == stats.received, "{stats:?}");
}

/// Both ends write 20,000 bytes as soon as they can. Returns when each end had read all data of the other,
/// since the start.
fn both_speak(loss: &str, seed: u64, act: impl FnOnce(&mut Run)) -> [Duration; 2] {
    let mut link = link(&[(Direction::Both, "loss", loss)]);
    link.set_seed(seed);
    let flows = vec![Flow::bulk(End::Near, 20_000), Flow::bulk(End::Far, 20_000)];
    let mut run = Trial::new(link, flows, seed).start();
    let began = run.began();
    act(&mut run);
    let mut read = [None; 2];
    while read.contains(&None) {
        let at = run.pair.now() + Duration::from_millis(1);
        run.until(at);
        for (at, flow) in read.iter_mut().zip(run.load.progress()) {
            if flow.read == flow.flow.bytes {
                at.get_or_insert(run.pair.now().since(began));
            }
        }
        let report = run.report();
        assert!(report.errors.is_empty() && report.closed == [None, None], "{loss}, seed {seed}: {report:?}");
        assert!(run.pair.now() < began + Duration::from_secs(30), "{loss}, seed {seed}: {report:?}");
    }
    assert_eq!(run.pair.counted().overdue, 0);
    read.map(Option::unwrap)
}

/// H3 and S3: an address translator changes the client's port or address at any time of the handshake, also
/// between HELLO and first packet. No address gets more than three times its bytes before it is proven (the
/// pair counts), and each end can send soon.
#[test]
fn h3_the_first_packet_from_another_address_costs_little_time() {
    let seeds = if tidewire_testing::few_seeds() { 20 } else { 200 };
    for (loss, most) in
        [("0%", Duration::from_millis(600)), ("10%", Duration::from_secs(3)), ("30%", Duration::from_secs(6))]
    {
        for what in [Rebound::Port, Rebound::Host] {
            let (mut worst, mut clean) = ([Duration::ZERO; 2], [Duration::ZERO; 2]);
            for seed in 1..=seeds {
                // From before the first HELLO arrives until after the first packet does.
                let at = RTT.mul_f64(seed as f64 / seeds as f64 * 2.0);
                let moved = both_speak(loss, seed, |run| {
                    let at = run.began() + at;
                    run.until(at);
                    run.pair.rebind(what);
                });
                let still = both_speak(loss, seed, |_| {});
                worst = [worst[0].max(moved[0]), worst[1].max(moved[1])];
                clean = [clean[0].max(still[0]), clean[1].max(still[1])];
            }
            println!("{loss} lost, {what:?}: there after {:?}, back after {:?}; unmoved {clean:?}", worst[0], worst[1]);
            assert!(worst[0] <= most && worst[1] <= most, "{loss}, {what:?}: {worst:?}");
        }
    }
}

/// An attacker copies every datagram of the client, HELLOs too, and arrives first with every second one. The
/// session is established, no byte is lost, and the attacker gets at most three times what it sent.
#[test]
fn a_thief_that_copies_from_the_first_hello_on_delays_little() {
    let thief = SocketAddr::from(([203, 0, 113, 9], 4_000));
    let seeds = if tidewire_testing::few_seeds() { 20 } else { 200 };
    for loss in ["0%", "10%"] {
        let mut worst = Duration::ZERO;
        for seed in 1..=seeds {
            let mut stolen = 0;
            let read = both_speak(loss, seed, |run| {
                run.pair.copied_by(Some(thief));
                let at = run.began() + Duration::from_secs(5);
                run.until(at);
                stolen = run.pair.sent_to(thief);
            });
            worst = worst.max(read[0]).max(read[1]);
            assert!(stolen < 5_000, "{stolen} bytes to the thief");
        }
        println!("{loss} lost: both ends had read all after {worst:?}");
        assert!(worst <= Duration::from_secs(10), "{worst:?}");
    }
}
