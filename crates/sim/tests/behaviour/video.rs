//! A video over a link that loses 2 % of the packets, with a round trip of 10 ms: the reader's buffer over
//! time.

use core::ops::RangeInclusive;
use core::time::Duration;

use tidewire_figures::quantile;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::{Run, Trial};
use tidewire_sim::settings::Direction;
use tidewire_sim::video::{FrameTrace, Synthetic, Video, Viewing};

use super::{link, whole};

/// Duration of the video's content.
const CONTENT: Duration = Duration::from_secs(60);

/// A video of 8 Mbit/s.
fn frames(seed: u64) -> FrameTrace {
    Synthetic::new(8_000_000, seed).trace(CONTENT).unwrap()
}

fn seeds() -> RangeInclusive<u64> {
    1..=if tidewire_testing::few_seeds() { 1 } else { 5 }
}

/// Carries the video over a link of `rate` until everything was read. Returns when that was, since the
/// connection was made, and what a viewer has seen long after that.
fn carry(video: Video, rate: &str, seed: u64) -> (Run, Duration, Viewing) {
    let settings = [("rate", rate), ("rtt", "10ms"), ("loss", "2%")];
    let mut link = link(&settings.map(|(key, text)| (Direction::Both, key, text)));
    link.set_seed(seed);
    let mut run = Trial::new(link, vec![Flow::video(End::Near, video)], seed).start();
    run.until(run.began() + Duration::from_secs(600));
    whole(&run.report());
    let took = run.pair.now().since(run.load.began().unwrap());
    let viewing = run.load.viewing(0, run.pair.now() + 2 * CONTENT).unwrap();
    (run, took, viewing)
}

#[test]
fn at_one_and_a_half_times_its_rate_a_video_never_stalls() {
    for seed in seeds() {
        let (_, took, viewing) = carry(Video::best_effort(frames(seed)), "12mbit", seed);
        let started = viewing.first_start.unwrap();
        println!("best effort, seed {seed}: arrived after {took:?}, started at {started:?}");
        assert_eq!((viewing.stalls, viewing.stalled, viewing.played), (0, Duration::ZERO, CONTENT), "seed {seed}");
        assert_eq!(viewing.ended, Some(started + CONTENT));
        // The buffer grows until the last byte: what is left then is what was not yet played.
        let fullest = viewing.samples.iter().map(|sample| sample.buffered).max().unwrap();
        let left = started + CONTENT - took;
        assert!(fullest.abs_diff(left) < Duration::from_millis(200), "seed {seed}: {fullest:?} {left:?}");
    }
}

#[test]
fn a_live_video_is_never_far_ahead_and_each_frame_is_measured() {
    for seed in seeds() {
        let trace = frames(seed);
        let (run, took, viewing) = carry(Video::live(trace.clone()), "12mbit", seed);
        assert_eq!((viewing.stalls, viewing.played), (0, CONTENT), "seed {seed}");
        // The startup and the frames of a round trip at most.
        let fullest = viewing.samples.iter().map(|sample| sample.buffered).max().unwrap();
        assert!(fullest <= Duration::from_millis(2_050), "seed {seed}: {fullest:?}");
        let arrivals = run.load.arrivals();
        let made = arrivals.iter().map(|frame| frame.made);
        assert!(made.eq(trace.frames().iter().map(|frame| frame.at)), "seed {seed}");
        let mut delays: Vec<Duration> = arrivals.iter().map(tidewire_sim::load::Arrival::delay).collect();
        delays.sort();
        let (middle, longest) = (quantile(&delays, 0.5).unwrap(), delays[delays.len() - 1]);
        println!("live, seed {seed}: arrived after {took:?}, frames after {middle:?}, at most {longest:?}");
        // A frame of 30 kB takes 20 ms of the link, a key frame 100 ms.
        assert!(longest < Duration::from_millis(400), "seed {seed}: {longest:?}");
    }
}

#[test]
fn at_four_fifths_of_its_rate_a_video_stands_still_for_the_missing_time() {
    for seed in seeds() {
        let (_, took, viewing) = carry(Video::best_effort(frames(seed)), "6.4mbit", seed);
        let (started, ended) = (viewing.first_start.unwrap(), viewing.ended.unwrap());
        println!(
            "seed {seed}: arrived after {took:?}, started at {started:?}, {} stalls of {:?}",
            viewing.stalls, viewing.stalled
        );
        // The link carries 0.8 seconds of content each second and loses 2 % of it. Headers and repairs take 4
        // to 12 % of the rest.
        let carried = CONTENT.as_secs_f64() / (0.8 * 0.98) / took.as_secs_f64();
        assert!((0.88..0.96).contains(&carried), "seed {seed}: {carried}");
        // Two seconds of content have to be there at the start.
        let first = 2.0 * took.as_secs_f64() / CONTENT.as_secs_f64();
        assert!((first - started.as_secs_f64()).abs() < 0.15, "seed {seed}: {first} {started:?}");
        // Playback ends with the last byte, or later by at most the content with which it resumed, a second.
        assert_eq!((started + CONTENT + viewing.stalled, viewing.played), (ended, CONTENT), "seed {seed}");
        let missing = took - started - CONTENT;
        let more = viewing.stalled.checked_sub(missing).unwrap();
        assert!(more <= Duration::from_millis(1_050), "seed {seed}: {:?} {missing:?}", viewing.stalled);
        // A second of content lasts 3.6 s while 0.72 more arrive each second, and comes in 1.4 s: 14 stalls
        // after the first 10 s. Where a key frame is awaited, the buffer is empty earlier.
        assert!((13..=19).contains(&viewing.stalls), "seed {seed}: {}", viewing.stalls);
    }
}
