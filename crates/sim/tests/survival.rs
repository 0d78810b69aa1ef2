//! Rows of the survival list (`docs/survival.md`) that the simulator can show: changed addresses, blackouts,
//! and feedback that is lost, dead or damaged. The number in a name is that of the row. Lying peers (S10),
//! copies (S14) and flapping (S17) are in `proto`'s `tests/hostile`.

use core::time::Duration;
use std::path::Path;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::CloseReason;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::{Flow, Load};
use tidewire_sim::pair::End;
use tidewire_sim::rebinding::{Rebinding, Rebound};
use tidewire_sim::report::{Run, Trial};
use tidewire_sim::settings::Direction;

const RTT: Duration = Duration::from_millis(60);

/// Bulk over 25 Mbit/s and 60 ms, changed by `settings`.
fn bulk(bytes: u64, seed: u64, settings: &[(Direction, &str, &str)]) -> Trial {
    let mut link = DuplexConfig::default();
    let base = [(Direction::Both, "rate", "25mbit"), (Direction::Both, "rtt", "60ms")];
    for (direction, key, text) in base.iter().chain(settings) {
        link.set(*direction, key, text, Path::new("")).unwrap();
    }
    link.set_seed(seed);
    Trial::new(link, vec![Flow::bulk(End::Near, bytes)], seed)
}

/// Number of seeds of the costly rows.
fn seeds() -> u64 {
    if tidewire_testing::few_seeds() { 1 } else { 3 }
}

/// Bytes per second that the application reads from now until `until`.
fn goodput(run: &mut Run, until: Time) -> f64 {
    let (from, before) = (run.pair.now(), run.load.read());
    run.until(until);
    (run.load.read() - before) as f64 / until.since(from).as_secs_f64()
}

/// The maximum number of bytes sent in any round trip from now until `until`.
fn largest_flight(run: &mut Run, until: Time) -> u64 {
    let mut most = 0;
    while run.pair.now() < until {
        let before = run.pair.link_mut().forward.stats().offered_bytes;
        let at = run.pair.now() + RTT;
        run.until(at);
        most = most.max(run.pair.link_mut().forward.stats().offered_bytes - before);
    }
    most
}

/// Measures the goodput before a silence in `direction`, and checks after it what S5 and S9 require.
fn silence(direction: Direction, blackout: &str, ends: Time, seed: u64) {
    let mut run = bulk(200_000_000, seed, &[(direction, "blackout", blackout)]).start();
    run.until(Time::from_millis(3_000));
    let before = goodput(&mut run, Time::from_millis(5_000));
    let window = run.stats(End::Near).rate.window;
    // The rest of the window and a second of probes are sent first, then one datagram per timeout.
    run.until(Time::from_millis(7_000));
    let first = run.pair.link_mut().forward.stats().offered;
    run.until(ends);
    let probes = run.pair.link_mut().forward.stats().offered - first;
    let seconds = ends.since(Time::from_millis(7_000)).as_secs();
    assert!((seconds / 2..=seconds + 2).contains(&probes), "{probes} datagrams in {seconds} s without an answer");
    let most = largest_flight(&mut run, ends + Duration::from_secs(2));
    assert!(most <= window, "{most} bytes in one round trip after the return, window {window} before");
    let after = goodput(&mut run, ends + Duration::from_secs(4));
    assert!(after >= 0.8 * before, "{after} bytes per second after the return, {before} before");
    assert!(run.load.errors.is_empty() && run.load.closed == [None, None], "{:?}", run.report());
}

/// The server's process dies in the middle of a bulk transfer and starts again with the same secret. The
/// client learns it from the new process within 3 s and a round trip, and a new connection has nothing of the
/// old one.
#[test]
fn s01_a_restarted_peer_is_noticed() {
    let mut worst = Duration::ZERO;
    for seed in 1..21 {
        let loss = if seed % 2 == 0 { "0%" } else { "10%" };
        let mut run = bulk(200_000_000, seed, &[(Direction::Both, "loss", loss)]).start();
        let restarts = Time::from_millis(2_000 + 13 * seed);
        run.until(restarts);
        run.pair.restart(End::Far);
        let mut at = restarts;
        while run.load.closed[0].is_none() {
            at += Duration::from_millis(1);
            assert!(!run.until(at) && at < restarts + Duration::from_secs(60), "seed {seed}");
        }
        assert_eq!(run.load.closed[0], Some(CloseReason::Forgotten));
        if loss == "0%" {
            worst = worst.max(at.since(restarts));
        }
        let far = run.pair.endpoint(End::Far).stats();
        assert!(far.unknown > 0 && far.hellos.accepted >= 1, "{far:?}");
        // The question itself makes no connection.
        assert_eq!(run.pair.endpoint(End::Far).connections().count(), 0);
        // A new connection carries all of its own bytes and no others; the oracle of the load checks each.
        let mut load = Load::new(&[Flow::bulk(End::Near, 1_000_000)], seed);
        run.pair.connect(&mut load);
        let until = run.pair.now() + Duration::from_secs(30);
        assert!(run.pair.run(&mut load, until, Load::is_over) && load.errors.is_empty(), "{:?}", load.errors);
    }
    println!("noticed after {worst:?} at most without loss");
    assert!(worst <= Duration::from_secs(3) + RTT, "{worst:?}");
}

/// Streams in both directions, so that each end is sometimes the one that only answers: bulk, records of
/// 1,200 bytes every 10 ms, or both.
fn moving(from: End, work: &str, loss: &str, seed: u64) -> Run {
    let mut trial = bulk(0, seed, &[(Direction::Both, "loss", loss)]);
    trial.flows = match work {
        "bulk" => vec![Flow::bulk(from, 400_000_000)],
        "records" => vec![Flow::paced(from, 400_000_000, 120_000)],
        _ => vec![Flow::bulk(from, 400_000_000), Flow::paced(from.other(), 400_000_000, 120_000)],
    };
    trial.start()
}

/// The longest time until `until` in which the first flow delivers nothing.
fn longest_stall(run: &mut Run, until: Time) -> Duration {
    let tick = Duration::from_millis(1);
    let (mut read, mut since, mut longest) = (0, run.pair.now(), Duration::ZERO);
    while run.pair.now() < until {
        let at = run.pair.now() + tick;
        run.until(at);
        let now_read = run.load.progress().next().map_or(0, |flow| flow.read);
        if now_read > read {
            (read, since) = (now_read, at);
        }
        longest = longest.max(at.since(since));
    }
    longest
}

/// The load checks the bytes. Data in the ring at the end is not lost.
#[test]
fn s02_another_port_every_five_seconds() {
    for (from, work) in
        [End::Near, End::Far].into_iter().flat_map(|from| ["bulk", "records", "both"].map(|work| (from, work)))
    {
        for seed in 1..=seeds() {
            let mut run = moving(from, work, "0%", seed);
            run.until(Time::from_millis(2_000 + 7 * seed));
            run.pair.rebind_every(Some(Rebinding { what: Rebound::Port, every: Duration::from_secs(5) }));
            let stall = longest_stall(&mut run, Time::from_millis(19_000));
            let moves = run.stats(End::Far).moves;
            println!("{from:?} sends {work}, seed {seed}: {stall:?} of stall, {moves} moves");
            assert_eq!((moves, run.pair.rebound(), &run.load.errors), (3, 3, &Vec::new()));
            // One tick more, because time advances in steps.
            assert!(stall <= RTT * 2 + Duration::from_millis(51), "{from:?} sends {work}, seed {seed}: {stall:?}");
        }
    }
}

/// IPv4 to IPv6 and back, with or without the knowledge of the near end.
#[test]
fn s03_another_address() {
    for what in [Rebound::Roams, Rebound::Host] {
        for (from, seed) in
            [End::Near, End::Far].into_iter().flat_map(|from| (1..=seeds()).map(move |seed| (from, seed)))
        {
            let mut run = moving(from, "bulk", "0%", seed);
            run.until(Time::from_millis(3_000));
            for nth in 1..=4 {
                run.pair.rebind(what);
                let (began, mut proven) = (run.pair.now(), None);
                while run.pair.now() < began + Duration::from_secs(3) {
                    let at = run.pair.now() + Duration::from_millis(1);
                    run.until(at);
                    if run.stats(End::Far).moves == nth {
                        proven.get_or_insert(at);
                    }
                    let exchanged = run.pair.exchanged();
                    let bounded = proven.is_some() || exchanged.sent <= 3 * exchanged.received;
                    assert!(bounded, "{exchanged:?} before the address is proven");
                }
                let took = proven.expect("followed").since(began);
                println!("{what:?}, {from:?} sends, seed {seed}: followed after {took:?}");
                // Data sent when the address is proven arrives half a round trip later. If an end is not told
                // about its new address, it is found with its next FEEDBACK, a sixteenth of a round trip
                // later, or with the repeated one. A probe for more rate queues a thirtieth of a round trip.
                let unaware = if what == Rebound::Roams { Duration::ZERO } else { Duration::from_millis(29) };
                assert!(took <= RTT * 3 / 2 + RTT / 30 + unaware + Duration::from_millis(2), "{took:?}");
            }
            let after = goodput(&mut run, Time::from_millis(20_000));
            assert!(run.load.errors.is_empty() && after >= 0.8 * 25e6 / 8.0, "{after} bytes per second");
        }
    }
}

/// A fast and long path: 100 Mbit/s and 100 ms.
fn long_fat(from: End) -> Run {
    let mut trial = bulk(0, 1, &[(Direction::Both, "rate", "100mbit"), (Direction::Both, "rtt", "100ms")]);
    trial.flows = vec![Flow::bulk(from, 400_000_000)];
    let mut run = trial.start();
    run.until(Time::from_millis(3_000));
    run
}

/// `behaviour/roam.rs` has the table of rates and round trips.
#[test]
fn s03_another_address_keeps_the_goodput_of_a_long_path() {
    for (what, from) in
        [Rebound::Roams, Rebound::Host].into_iter().flat_map(|what| [(what, End::Near), (what, End::Far)])
    {
        let mut run = long_fat(from);
        run.pair.rebind(what);
        run.until(Time::from_millis(4_500));
        let after = goodput(&mut run, Time::from_millis(5_500));
        println!("{what:?}, {from:?} sends: {after:.0} bytes per second in the second after 1.5 s");
        assert!(run.load.errors.is_empty() && after >= 0.8 * 100e6 / 8.0, "{what:?}, {from:?} sends: {after}");
    }
}

/// IP packets beyond 1,280 bytes are lost, and within five round trips of the moment that the sender knows
/// it, the path is full: nine tenths of the rate without headers.
#[test]
fn s04_a_narrower_path_is_filled_with_the_symbols_of_before() {
    for from in [End::Near, End::Far] {
        let mut run = long_fat(from);
        limit(&mut run, 1_280);
        while run.stats(from).datagram_size == 1_472 {
            let at = run.pair.now() + Duration::from_millis(1);
            run.until(at);
        }
        let known = run.pair.now();
        run.until(known + Duration::from_millis(500));
        let after = goodput(&mut run, known + Duration::from_millis(1_500));
        println!("{from:?} sends: known at {known:?}, then {after:.0} bytes per second");
        assert!(run.load.errors.is_empty() && after >= 0.9 * 0.93 * 100e6 / 8.0, "{from:?} sends: {after}");
    }
}

/// IP packets beyond 1,280 bytes are lost from some time on, or beyond a little less if the records would
/// still pass. The load checks the bytes.
#[test]
#[ignore = "slow: seconds of processor time"]
fn s04_a_black_hole_for_long_packets() {
    for (from, work) in
        [End::Near, End::Far].into_iter().flat_map(|from| ["bulk", "records", "both"].map(|work| (from, work)))
    {
        for (loss, seed) in ["0%", "10%"].into_iter().flat_map(|loss| (1..=seeds()).map(move |seed| (loss, seed))) {
            let mut run = moving(from, work, loss, seed);
            run.until(Time::from_millis(3_000));
            assert_eq!(run.stats(from).datagram_size, 1_472);
            let mtu = if work == "records" { 1_250 } else { 1_280 };
            limit(&mut run, mtu);
            let stall = longest_stall(&mut run, Time::from_millis(20_000));
            let size = run.stats(from).datagram_size;
            println!("{from:?} sends {work}, {loss} lost, seed {seed}: {stall:?} of stall, then {size} bytes");
            assert!(stall <= Duration::from_secs(3), "{from:?} sends {work}, {loss} lost, seed {seed}: {stall:?}");
            assert!((1_200..=mtu as u16 - 28).contains(&size), "{size}");
            if work == "bulk" {
                assert!(size > 1_252 - 20, "{size} bytes after the search");
                let after = goodput(&mut run, Time::from_millis(24_000));
                assert!(after >= 0.7 * 25e6 / 8.0, "{after} bytes per second");
            }
            assert_eq!((&run.load.errors, &run.load.closed), (&Vec::new(), &[None, None]));
        }
    }
}

/// From now on longer IP packets are lost in both directions.
fn limit(run: &mut Run, mtu: usize) {
    let link = run.pair.link_mut();
    link.forward.set_mtu(Some(mtu));
    link.back.set_mtu(Some(mtu));
}

#[test]
fn s05_a_blackout_of_thirty_seconds() {
    for seed in 1..4 {
        silence(Direction::Both, "5s..35s", Time::from_millis(35_000), seed);
    }
}

/// A machine sleeps longer than the idle timeout, or shorter. In the first case the connection ends at both
/// ends with a reason and is made again; in the second it continues. The wall clock has no effect:
/// clippy.toml of codec, proto and sim forbids to read it, and the runtime's clock is monotonic.
#[test]
fn s06_ten_minutes_of_sleep() {
    for (end, seconds) in [End::Near, End::Far].into_iter().flat_map(|end| [30, 600].map(|seconds| (end, seconds))) {
        for (from, seed) in
            [End::Near, End::Far].into_iter().flat_map(|from| (1..=seeds()).map(move |seed| (from, seed)))
        {
            let mut trial = bulk(0, seed, &[(Direction::Both, "loss", "2%")]);
            (trial.flows, trial.limit) = (vec![Flow::bulk(from, 20_000_000)], Duration::from_secs(3_600));
            let mut run = trial.start();
            run.until(Time::from_millis(2_000 + 13 * seed));
            let wakes = run.pair.now() + Duration::from_secs(seconds);
            run.pair.suspend(end, wakes);
            run.until(wakes - Duration::from_nanos(1));
            let fired = run.pair.counted().wakes;
            run.until(wakes);
            let fired = run.pair.counted().wakes - fired;
            let what = format!("{end:?} sleeps {seconds} s, {from:?} sends, seed {seed}");
            assert!(fired <= 100 && run.pair.counted().overdue == 0, "{what}: {fired} timers fired");
            let over = run.until(wakes + Duration::from_secs(120));
            let closed = &run.load.closed;
            println!("{what}: {fired} timers fired, closed {closed:?}");
            if seconds < 60 {
                assert!(run.load.is_done() && *closed == [None, None], "{what}: {closed:?} {:?}", run.load.errors);
                continue;
            }
            assert!(over && closed.iter().flatten().count() == 2 && run.load.errors.is_empty(), "{what}: {closed:?}");
            let mut load = Load::new(&[Flow::bulk(from, 1_000_000)], seed);
            run.pair.connect(&mut load);
            let until = run.pair.now() + Duration::from_secs(30);
            assert!(run.pair.run(&mut load, until, Load::is_over) && load.is_done(), "{what}: {:?}", load.errors);
        }
    }
}

/// Unread data stays in the reader's credit and in the sender's ring, and only probes are sent until the
/// reader continues. `behaviour/messages.rs` tests messages that nobody takes.
#[test]
fn s07_a_reader_that_stalls_for_a_minute() {
    for (from, loss) in [End::Near, End::Far].into_iter().flat_map(|from| ["0%", "10%"].map(|loss| (from, loss))) {
        let mut trial = bulk(0, 1, &[(Direction::Both, "loss", loss)]);
        trial.flows = vec![Flow { deaf: Duration::from_secs(60), ..Flow::bulk(from, 20_000_000) }];
        let mut run = trial.start();
        run.until(Time::from_millis(5_000));
        let written = |run: &Run| run.load.progress().next().map_or(0, |flow| flow.written);
        let full = written(&run);
        let window = Config::default().stream_window();
        assert!(full <= window, "{full} bytes were taken of a stream whose window is {window}");
        let before = run.pair.counted().datagrams;
        run.until(Time::from_millis(60_000));
        let (after, datagrams) = (written(&run), run.pair.counted().datagrams - before);
        println!("{from:?} sends, {loss} lost: {full} bytes, and {datagrams} datagrams in 55 s");
        assert_eq!((after, run.load.read()), (full, 0));
        // Probes for credit, their answers, and the acknowledgements of the answers.
        assert!(datagrams <= 20 * 55, "{datagrams} datagrams while nobody reads");
        assert!(run.until(Time::from_millis(75_000)) && run.load.is_done(), "{:?}", run.report());
    }
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn s08_half_of_the_feedback_lost() {
    for loss in ["0%", "10%"] {
        let mean = |back| {
            let rates = (1..6).map(|seed| {
                let settings = [(Direction::Forward, "loss", loss), (Direction::Back, "loss", back)];
                let report = bulk(24_000_000, seed, &settings).run();
                assert!(report.done, "{report:?}");
                report.goodput_bps
            });
            rates.sum::<f64>() / 5.0
        };
        let (all, half) = (mean("0%"), mean("50%"));
        println!("forward loss {loss}: {half:.0} bit/s with half of the feedback, {all:.0} with all of it");
        assert!(half >= 0.9 * all, "forward loss {loss}: {half} with half of the feedback, {all} with all");
    }
}

#[test]
fn s09_a_dead_way_back_for_ten_seconds() {
    for seed in 1..4 {
        silence(Direction::Back, "5s..15s", Time::from_millis(15_000), seed);
    }
}

/// Every second datagram on the way back is damaged, as behind a router that corrects the checksum. All of
/// them are dropped, without any other effect.
#[test]
fn s10_damaged_feedback_is_dropped() {
    let report = bulk(24_000_000, 1, &[(Direction::Back, "corrupt", "50%")]).run();
    assert!(report.done && report.closed == [None, None], "{report:?}");
    assert!(report.back.corrupted > 1_000, "{}", report.back.corrupted);
    // A changed bit of the connection id makes it a datagram of a stranger; any other change fails the tag.
    let strangers = report.endpoints[0].unknown + report.endpoints[0].malformed;
    let dropped = report.near.packets.dropped + strangers;
    // The second copy of the REPLY may be one more.
    assert!((report.back.corrupted..=report.back.corrupted + 1).contains(&dropped), "{report:?}");
    assert!(report.goodput_bps > 0.8 * 25e6, "{}", report.goodput_bps);
}
