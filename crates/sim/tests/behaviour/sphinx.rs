//! The `sphinx` profiles: blocks, compensation, codes, and rate control by marks.

use tidewire_codec::Code;
use tidewire_figures::{ascending, quantile};
use tidewire_proto::config::Config;
use tidewire_proto::profile::{Profile, SPHINX_PRINTED, STREAM, sphinx};
use tidewire_proto::redundancy::{Answer, Redundancy, Trigger};
use tidewire_proto::stats::Stats;
use tidewire_sim::link::Loss;

use super::*;

const LT: Code = Code::Lt { c_milli: 100, delta_milli: 500 };

/// The paper's link: a round trip of 10 ms, and a queue that marks from 5 ms on.
fn papers_link(rate: &str, loss: &str) -> DuplexConfig {
    let mut link = DuplexConfig::default();
    for (direction, key, text) in [
        (Direction::Both, "rate", rate),
        (Direction::Both, "rtt", "10ms"),
        (Direction::Both, "queue", "20ms"),
        (Direction::Both, "mark", "5ms"),
        (Direction::Forward, "loss", loss),
    ] {
        link.set(direction, key, text, Path::new("")).unwrap();
    }
    link
}

fn trial(profile: Profile, link: DuplexConfig, bytes: u64) -> Trial {
    let mut trial = Trial::new(link, vec![Flow::bulk(End::Near, bytes)], 7);
    trial.near = Config::builder().profile(profile).build().expect("in range");
    trial.far = trial.near.clone();
    trial
}

fn sent(trial: &Trial) -> Stats {
    let report = trial.run();
    whole(&report);
    report.near
}

/// Goodput as a share of what a link of 100 Mbit/s delivers at 6 % loss.
fn share(profile: Profile) -> f64 {
    let report = trial(profile, papers_link("100mbit", "6%"), 60_000_000).run();
    whole(&report);
    report.goodput_bps / (100e6 * 0.94)
}

/// The goals are those of long runs (docs/sphinx.md section 9); this one is 7 s, start included.
#[test]
fn goodput_on_a_link_that_marks() {
    let shares = [SPHINX_PRINTED, sphinx(100), STREAM].map(share);
    let goals = [0.75, 0.84, 0.90];
    assert!(shares.iter().zip(goals).all(|(share, goal)| *share >= goal), "{shares:?}, asked {goals:?}");
}

#[test]
fn every_code_carries_every_byte_under_both_forms() {
    for form in [sphinx(64), SPHINX_PRINTED] {
        for code in
            [Code::SemiRandomLt { degree: 17 }, LT, Code::Cauchy, Code::Rlc, Code::Rlc16, Code::RsFft, Code::RaptorQ]
        {
            let stats = sent(&trial(Profile { code, ..form }, papers_link("50mbit", "gilbert:15%,3"), 3_000_000));
            assert_eq!(stats.packets.source == 0, !code.is_systematic(), "{code:?} {stats:?}");
            assert!(stats.packets.repair > 0, "{code:?}");
        }
    }
}

/// Sixty packets of the fifth block are lost and nothing else, so one block is stuck while others pass.
/// Under the paper's literal rule ("more than two blocks") nothing is resent until a later block is decoded;
/// under the other reading and at once it is resent earlier. Each symbol is resent once.
#[test]
fn a_single_stuck_block_is_resent_under_every_trigger() {
    let printed = |blocks| Trigger::Symbols { blocks, symbols: 3 };
    let mut waits = Vec::new();
    for trigger in [Trigger::Settled, printed(1), printed(2), Trigger::Blocks] {
        let redundancy = Redundancy { answer: Answer::Icm(trigger), ..SPHINX_PRINTED.redundancy };
        let mut trial = trial(Profile { redundancy, ..SPHINX_PRINTED }, papers_link("50mbit", "0%"), 3_000_000);
        let lost = |n: usize| (450..510).contains(&n);
        trial.link.forward.loss = Loss::Trace((0..100_000).map(lost).collect());
        let report = trial.run();
        whole(&report);
        let stats = &report.near;
        assert!((50..120).contains(&stats.packets.feedback_repair), "{trigger}: {stats:?}");
        waits.push((trigger.to_string(), report.far.delay.max()));
    }
    assert!(waits.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{waits:?}");
    assert!(waits[0].1 < waits[3].1, "{waits:?}");
}

/// Three of five FEEDBACKs are lost, and then all of them for a while: later ones name the same packets.
#[test]
fn lost_feedback_is_inferred_from_later_feedback() {
    for profile in [sphinx(100), SPHINX_PRINTED, Profile { code: LT, ..SPHINX_PRINTED }] {
        let mut trial = trial(profile, papers_link("50mbit", "6%"), 3_000_000);
        trial.link.set(Direction::Back, "loss", "60%", Path::new("")).unwrap();
        trial.link.set(Direction::Back, "blackout", "300ms..600ms", Path::new("")).unwrap();
        let stats = sent(&trial);
        assert!(stats.packets.feedback_repair < stats.packets.sent / 4, "{stats:?}");
    }
}

/// A link that does not mark and has a queue shorter than 10 ms: losses of the queue are taken for
/// congestion, so the queue drops few packets.
#[test]
fn without_marks_losses_of_the_queue_lower_the_window() {
    for (queue, most) in [("3ms", 0.2), ("20ms", 0.02)] {
        let mut link = papers_link("50mbit", "0%");
        link.set(Direction::Both, "mark", "none", Path::new("")).unwrap();
        link.set(Direction::Both, "queue", queue, Path::new("")).unwrap();
        let report = trial(sphinx(100), link, 20_000_000).run();
        whole(&report);
        let dropped = report.forward.queue_dropped as f64 / report.forward.offered as f64;
        assert!(dropped < most && report.goodput_bps > 35e6, "{queue}: {dropped} {}", report.goodput_bps);
    }
}

/// Blocks of 100 kB at 65 % of the rate: 99 % of them arrive within the one-way time, their own time on the
/// link and 1.25 round trips, at 6 % loss.
#[test]
fn blocks_are_complete_within_a_round_trip_and_a_quarter() {
    for (rate, mbit) in [("100mbit", 100.0), ("200mbit", 200.0)] {
        let mut trial = trial(sphinx(100), papers_link(rate, "6%"), 0);
        let paced = Flow::paced(End::Near, 60_000_000, (mbit * 0.65e6 / 8.0) as u64);
        trial.flows = vec![Flow { record: 100_000, ..paced }];
        let mut run = trial.start();
        let end = run.began() + trial.limit;
        assert!(run.until(end));
        // Without the start, in which the window grows.
        let settled = run.load.arrivals().iter().filter(|arrival| arrival.made > Duration::from_secs(1));
        let delays = ascending(settled.map(|arrival| 1e3 * arrival.delay().as_secs_f64()));
        let (p99, bound) = (quantile(&delays, 0.99).unwrap(), 5.0 + 100_000.0 * 8e-3 / mbit + 12.5);
        assert!(p99 <= bound, "{rate}: {p99:.1} ms, at most {bound:.1}");
    }
}

/// One block is stuck, since nothing is repaired or answered. The blocks after it are decoded, and the sender
/// frees each with the next FEEDBACK.
#[test]
fn a_decoded_block_frees_its_memory_while_a_lower_one_is_stuck() {
    let redundancy = Redundancy { answer: Answer::Open, ..sphinx(50).redundancy };
    let mut trial = trial(Profile { redundancy, ..sphinx(50) }, papers_link("20mbit", "0%"), 1_000_000);
    trial.near = trial.near.to_builder().max_overhead(0.0).build().expect("in range");
    trial.link.forward.loss = Loss::Trace((0..100_000).map(|n| (60..64).contains(&n)).collect());
    let mut run = trial.start();
    // The lost symbols are in the first or second block. Only a silence brings it again, and there is none
    // while the other 14 blocks are sent.
    run.until(run.began() + Duration::from_millis(300));
    let delivered = run.load.read();
    assert!(delivered < 200_000, "{delivered} bytes were read; {:?}", run.stats(End::Near));
    let handle = run.load.handle(End::Near).expect("connected");
    let memory = run.pair.endpoint(End::Near).connection(handle).expect("open").memory();
    // Acknowledged 20 ms ago at most: 50 kB, and the blocks that are stuck or not full: 150 kB.
    assert!(memory < 300_000, "{memory} bytes of {} sent", run.stats(End::Near).bytes.app_sent);
    assert!(run.until(run.began() + Duration::from_secs(20)));
    whole(&run.report());
}
