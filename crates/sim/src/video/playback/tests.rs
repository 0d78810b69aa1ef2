//! The playback buffer against cases that were computed by hand, and its sums over random arrivals.

use proptest::prelude::*;

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// 8,000 bits per second: a byte is a millisecond.
const A_BYTE_A_MILLISECOND: Content = Content::Rate { bits_per_second: 8_000 };

fn rules(startup: u64, resume: u64) -> PlaybackRules {
    PlaybackRules { startup: ms(startup), resume: ms(resume), sample_every: ms(100) }
}

/// A playback that starts with 200 ms and resumes with 100 ms, after these arrivals of (milliseconds, bytes).
fn after(arrivals: &[(u64, u64)]) -> Playback {
    let mut playback = Playback::new(A_BYTE_A_MILLISECOND, rules(200, 100));
    arrivals.iter().for_each(|&(at, bytes)| playback.on_bytes(ms(at), bytes));
    playback
}

/// What was seen, in milliseconds: (first start, played, buffered, stalls, stalled).
fn seen(playback: &Playback, at: u64) -> (Option<u128>, u128, u128, u64, u128) {
    let seen = playback.viewing(ms(at));
    let first_start = seen.first_start.map(|at| at.as_millis());
    (first_start, seen.played.as_millis(), seen.buffered().as_millis(), seen.stalls, seen.stalled.as_millis())
}

#[test]
fn cases_computed_by_hand() {
    for (arrivals, at, want) in [
        (&[][..], 1_000, (None, 0, 0, 0, 0)),
        // Not enough to start.
        (&[(10, 199)], 1_000, (None, 0, 199, 0, 0)),
        (&[(10, 200)], 10, (Some(10), 0, 200, 0, 0)),
        (&[(10, 150), (40, 50)], 100, (Some(40), 60, 140, 0, 0)),
        // The buffer is empty at 210 ms, and a stall begins when time passes.
        (&[(10, 200)], 210, (Some(10), 200, 0, 0, 0)),
        (&[(10, 200)], 211, (Some(10), 200, 0, 1, 1)),
        (&[(10, 200), (210, 1)], 211, (Some(10), 201, 0, 0, 0)),
        // 60 ms are too little to resume.
        (&[(10, 200), (250, 60)], 300, (Some(10), 200, 60, 1, 90)),
        (&[(10, 200), (250, 60), (280, 40)], 300, (Some(10), 220, 80, 1, 70)),
        // Two stalls: from 210 to 280 ms and from 380 to 500 ms.
        (&[(10, 200), (250, 60), (280, 40), (500, 300)], 600, (Some(10), 400, 200, 2, 190)),
        // Times do not go back.
        (&[(10, 200), (50, 0), (20, 10)], 40, (Some(10), 40, 170, 0, 0)),
    ] {
        assert_eq!(seen(&after(arrivals), at), want, "{arrivals:?} at {at}");
    }
}

#[test]
fn an_end_is_no_stall() {
    let mut playback = after(&[(10, 200), (300, 50)]);
    playback.finish(ms(330));
    // 120 ms of stall, and 50 ms are played although 100 ms were asked for.
    assert_eq!(seen(&playback, 1_000), (Some(10), 250, 0, 1, 120));
    assert_eq!((playback.viewing(ms(379)).ended, playback.viewing(ms(380)).ended), (None, Some(ms(380))));
    assert_eq!(playback.viewing(ms(9_000)).ended, Some(ms(380)));

    let mut short = after(&[(10, 20)]);
    short.finish(ms(15));
    assert_eq!(seen(&short, 1_000), (Some(15), 20, 0, 0, 0));
    let mut empty = after(&[]);
    empty.finish(ms(15));
    assert_eq!((seen(&empty, 20), empty.viewing(ms(20)).ended), ((Some(15), 0, 0, 0, 0), Some(ms(15))));
}

#[test]
fn frames_count_when_they_are_whole_and_the_last_one_is_the_end() {
    let trace = FrameTrace::parse("0 300\n40 100\n80 50\n").unwrap();
    let mut playback = Playback::new(Content::Trace(Arc::new(trace)), rules(40, 40));
    let mut received = |at, bytes| {
        playback.on_bytes(ms(at), bytes);
        seen(&playback, at)
    };
    assert_eq!(received(5, 299), (None, 0, 0, 0, 0));
    assert_eq!(received(10, 1), (Some(10), 0, 40, 0, 0));
    assert_eq!(received(60, 99), (Some(10), 40, 0, 1, 10));
    assert_eq!(received(70, 1), (Some(10), 40, 40, 1, 20));
    assert_eq!(received(80, 50), (Some(10), 50, 70, 1, 20));
    // Bytes behind the last frame are no content.
    assert_eq!(received(90, 1_000), (Some(10), 60, 60, 1, 20));
    let viewing = playback.viewing(ms(500));
    assert_eq!((viewing.ended, viewing.played, viewing.stalls), (Some(ms(150)), ms(120), 1));
}

#[test]
fn samples_show_the_buffer_between_arrivals() {
    let playback = after(&[(0, 50), (100, 250), (450, 250)]);
    let samples = |at| {
        let viewing = playback.viewing(ms(at));
        viewing.samples.iter().map(|s| (s.at.as_millis(), s.buffered.as_millis())).collect::<Vec<_>>()
    };
    // What arrives at 100 ms counts at 100 ms. 300 ms of content last until 400 ms.
    let until_now = [(0, 50), (100, 300), (200, 200), (300, 100), (400, 0), (450, 250)];
    assert_eq!(samples(450), until_now);
    assert_eq!(samples(620)[5..], [(500, 200), (600, 100), (620, 80)]);
}

#[test]
fn samples_are_bounded_whatever_the_time() {
    let mut playback = Playback::new(A_BYTE_A_MILLISECOND, PlaybackRules { sample_every: ms(0), ..rules(0, 0) });
    playback.on_bytes(ms(0), 10_000_000);
    assert_eq!(playback.buffered(ms(1_000_000)), ms(9_000_000));
    let samples = playback.viewing(ms(1_000_000)).samples;
    assert!((MOST_SAMPLES / 2..=MOST_SAMPLES).contains(&samples.len()), "{}", samples.len());
    // 2^8 intervals of a millisecond, and the last sample is of the end.
    let (last, even) = samples.split_last().unwrap();
    assert!(
        (0..).zip(even).all(|(n, sample)| sample.at == ms(256 * n) && sample.buffered == ms(10_000_000) - sample.at)
    );
    assert_eq!(last.at, ms(1_000_000));

    let end = playback.viewing(Duration::MAX);
    assert!(end.samples.len() <= MOST_SAMPLES && end.stalls == 1);
    playback.on_bytes(Duration::MAX, u64::MAX);
    playback.on_bytes(Duration::MAX, u64::MAX);
    playback.finish(Duration::MAX);
    assert_eq!(playback.viewing(Duration::MAX).stalls, 1);
}

proptest! {
    /// Steps: time since the last one in microseconds, and bytes. A byte is a millisecond of content.
    #[test]
    fn content_and_time_add_up(
        steps in prop::collection::vec((0..400_000u64, 0..400u64), 1..100),
        (startup, resume) in (0..500u64, 0..500u64),
        is_trace: bool,
    ) {
        let frames = (0..200).map(|n| super::super::Frame { at: ms(10 * n), bytes: 10 });
        let trace = Content::Trace(Arc::new(FrameTrace::new(frames).unwrap()));
        let content = if is_trace { trace } else { A_BYTE_A_MILLISECOND };
        let mut playback = Playback::new(content.clone(), rules(startup, resume));
        let (mut now, mut bytes) = (Duration::ZERO, 0);
        for (gap, arrives) in steps {
            let before = playback.viewing(now);
            now += Duration::from_micros(gap);
            let level = playback.buffered(now);
            let after = playback.viewing(now);
            // It stalls only when the buffer is empty, and plays no faster than time passes.
            prop_assert!(after.stalls == before.stalls || level.is_zero());
            prop_assert!(after.stalls <= before.stalls + 1);
            prop_assert!(after.played - before.played <= Duration::from_micros(gap));
            playback.on_bytes(now, arrives);
            bytes += arrives;
            let seen = playback.viewing(now);
            prop_assert_eq!(seen.received, content.time(bytes));
            prop_assert_eq!(seen.played + seen.buffered(), seen.received);
            prop_assert_eq!(seen.samples.last().unwrap().buffered, seen.buffered());
            // Since the start it either plays or stands still, until the end.
            let running = seen.ended.unwrap_or(now).checked_sub(seen.first_start.unwrap_or(now)).unwrap();
            prop_assert_eq!(seen.played + seen.stalled, running);
            prop_assert!(seen.first_start.is_some() || seen.buffered() < ms(startup) || seen.received.is_zero());
        }
        // Everything is played at last.
        playback.finish(now);
        let end = playback.viewing(now + Duration::from_secs(100));
        prop_assert_eq!(end.played, end.received);
        prop_assert!(end.ended.is_some());
    }
}
