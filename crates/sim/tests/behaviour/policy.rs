//! POLICY: the listening end codes as the connecting end's user chose, whatever is lost on the way.

use tidewire_codec::Code;
use tidewire_proto::config::Config;
use tidewire_proto::profile::{Profile, STREAM, block};
use tidewire_proto::redundancy::Redundancy;
use tidewire_proto::stats::Stats;
use tidewire_sim::link::Loss;
use tidewire_sim::report::Run;

use super::*;

/// Datagrams of a trace of losses: more than the connecting end sends.
const TRACE: usize = 100_000;

/// The far end sends a megabyte at once, and the near end asks for `profile`. `lost` are the numbers of the
/// near end's lost datagrams.
fn download(profile: Profile, lost: &[usize]) -> Trial {
    let mut trial = Trial::new(link(&[]), vec![Flow::bulk(End::Far, 1_000_000)], 7);
    trial.near = Config::builder().profile(profile).asks_peer(true).build().expect("in range");
    trial.link.forward.loss = Loss::Trace((0..TRACE).map(|n| lost.contains(&n)).collect());
    trial
}

fn finish(trial: &Trial) -> (Run, Stats) {
    let mut run = trial.start();
    let end = run.began() + trial.limit;
    assert!(run.until(end));
    whole(&run.report());
    let stats = run.stats(End::Far);
    (run, stats)
}

/// Repairs per 100 source symbols.
fn share(stats: &Stats) -> u64 {
    100 * stats.packets.repair / stats.packets.source
}

fn every_5() -> Profile {
    Profile { redundancy: Redundancy::every(5.0), ..STREAM }
}

#[test]
fn the_far_end_codes_as_the_near_end_asks() {
    let unasked = finish(&Trial::new(link(&[]), vec![Flow::bulk(End::Far, 1_000_000)], 7)).1;
    assert!(!unasked.policy_followed && share(&unasked) < 10, "{unasked:?}");
    for profile in [every_5(), block(32, 8), Profile { code: Code::Rlc16, ..block(32, 8) }] {
        let stats = finish(&download(profile, &[])).1;
        assert!(stats.policy_followed && (23..=27).contains(&share(&stats)), "{profile:?}: {stats:?}");
    }
}

#[test]
fn a_choice_of_the_far_ends_own_stays() {
    let mut trial = download(every_5(), &[]);
    trial.far = Config::builder().follows_peer(false).build().expect("in range");
    let stats = finish(&trial).1;
    assert!(!stats.policy_followed && share(&stats) < 10, "{stats:?}");
    let mut trial = download(every_5(), &[]);
    trial.far = Config::builder().profile(block(32, 16)).build().expect("in range");
    let stats = finish(&trial).1;
    assert!(!stats.policy_followed && share(&stats) > 45, "{stats:?}");
}

/// The near end's datagrams 0 and 1 are the HELLOs, 2 and 3 the copies of POLICY.
#[test]
fn one_lost_copy_changes_nothing() {
    for lost in [2, 3] {
        for profile in [every_5(), block(32, 8)] {
            let stats = finish(&download(profile, &[lost])).1;
            assert!(stats.policy_followed && (23..=27).contains(&share(&stats)), "{lost} {profile:?}: {stats:?}");
        }
    }
}

/// The far end's data is then sent before it receives any POLICY.
#[test]
fn what_comes_after_data_changes_the_redundancy_but_not_the_layout() {
    let late = finish(&download(every_5(), &[2, 3])).1;
    assert!(late.policy_followed && (15..=27).contains(&share(&late)), "{late:?}");
    let blocks = finish(&download(block(32, 8), &[2, 3])).1;
    assert!(!blocks.policy_followed && share(&blocks) < 10, "{blocks:?}");
    // Until a copy arrives.
    let later = finish(&download(every_5(), &[2, 3, 5, 6, 7, 8, 9, 10])).1;
    assert!(later.policy_followed, "{later:?}");
}

#[test]
fn it_is_asked_for_over_lossy_links_too() {
    for seed in 1..=8 {
        let mut trial = Trial::new(
            link(&[(Direction::Forward, "loss", "20%"), (Direction::Back, "loss", "10%")]),
            vec![Flow::bulk(End::Far, 300_000)],
            seed,
        );
        trial.link.set_seed(seed);
        trial.near = Config::builder().profile(every_5()).asks_peer(true).build().expect("in range");
        let stats = finish(&trial).1;
        assert!(stats.policy_followed, "seed {seed}: {stats:?}");
    }
}
