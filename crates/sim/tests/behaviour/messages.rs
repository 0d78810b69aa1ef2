//! Messages with deadlines over lossy links: each arrives correct, complete, in time and once, or was given
//! up.

use core::time::Duration;
use std::collections::BTreeMap;

use tidewire_codec::SplitMix64;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{Connection, Event, LaneConfig, LaneId};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};
use tidewire_proto::profile::{Delivery, Profile};
use tidewire_proto::redundancy::Redundancy;
use tidewire_proto::stats::Stats;
use tidewire_sim::pair::{Application, End, Pair};
use tidewire_sim::settings::Direction;

use super::link;

/// How late a message may arrive if it was sent in time and met random delay, or a queue that the sender had
/// not seen yet.
const LATE: Duration = Duration::from_millis(15);
/// Longest queue of the link. A sender that finds the rate by filling the queue knows about it a round trip
/// later.
const QUEUE: Duration = Duration::from_millis(60);

/// Round trip of the link.
const RTT: Duration = Duration::from_millis(60);

/// A sender of messages of random lengths on several lanes, and the oracle at the other end.
struct Feed {
    random: SplitMix64,
    handles: [Option<ConnectionHandle>; 2],
    lanes: Vec<LaneConfig>,
    /// Mean length of a message in bytes, and interval between two messages.
    mean: u64,
    interval: Duration,
    lifetime: Duration,
    next: Time,
    until: Time,
    /// Messages sent on each lane, and when each was.
    sent: Vec<Vec<(usize, Time)>>,
    /// Received messages by lane and number, with their delay.
    came: BTreeMap<(usize, usize), Duration>,
    newest: Vec<usize>,
    refused: u32,
    /// Whether there is bulk beside them.
    bulk: bool,
    read: u64,
    /// Messages are not taken for this long after the first was sent.
    deaf: Duration,
}

impl Feed {
    fn new(seed: u64, lanes: Vec<LaneConfig>) -> Self {
        Self {
            random: SplitMix64::new(seed),
            handles: [None; 2],
            sent: vec![Vec::new(); lanes.len()],
            newest: vec![0; lanes.len()],
            lanes,
            mean: 3_000,
            interval: Duration::from_millis(10),
            lifetime: Duration::from_millis(150),
            next: Time::ZERO,
            until: Time::NEVER,
            came: BTreeMap::new(),
            refused: 0,
            bulk: false,
            read: 0,
            deaf: Duration::ZERO,
        }
    }

    fn send(&mut self, now: Time, connection: &mut Connection) {
        if self.sent.iter().all(Vec::is_empty) && self.next == Time::ZERO {
            for (n, lane) in self.lanes.iter().enumerate() {
                assert_eq!(connection.open_lane(lane), Ok(LaneId(n as u32 + 1)));
            }
            self.until = now + Duration::from_secs(10);
            self.next = now;
        }
        while self.next <= now && now < self.until {
            self.next += self.interval;
            for lane in 0..self.lanes.len() {
                // Small messages, messages of several symbols, and sometimes a large one.
                let most = [self.mean / 4, self.mean, self.mean * 2, self.mean * 12]
                    [self.random.below(8) as usize % 4 * 3 / 4];
                let len = 8 + self.random.below(most) as usize;
                let number = self.sent[lane].len();
                match connection.send_message(now, LaneId(lane as u32 + 1), &body(lane, number, len), self.lifetime) {
                    Ok(()) => self.sent[lane].push((len, now)),
                    Err(_) => self.refused += 1,
                }
            }
        }
        if self.bulk {
            let id = tidewire_proto::connection::StreamId(0);
            if self.read == 0 && connection.write(id, b"x").is_err() {
                let _ = connection.open_stream();
            }
            while connection.write(id, &[9; 4_096]).is_ok() {}
        }
    }

    fn take(&mut self, now: Time, connection: &mut Connection) {
        let hears = self.sent[0].first().is_none_or(|&(_, first)| now >= first + self.deaf);
        while let Some(message) = hears.then(|| connection.take_message()).flatten() {
            let lane = message.lane.0 as usize - 1;
            let number = u64::from_be_bytes(message.data[..8].try_into().expect("eight bytes")) as usize;
            let &(len, at) = self.sent[lane].get(number).expect("a message that was sent");
            assert!(message.data == body(lane, number, len), "message {number} of lane {lane} is another");
            assert_eq!(self.came.insert((lane, number), now.since(at)), None, "message {number} of lane {lane} again");
            if self.lanes[lane].delivery == Some(Delivery::InOrder) {
                assert!(number == 0 || number > self.newest[lane], "{number} after {}", self.newest[lane]);
            }
            self.newest[lane] = number;
        }
        let mut bytes = [0; 4_096];
        while let Ok(n) = connection.read(now, tidewire_proto::connection::StreamId(0), &mut bytes) {
            self.read += n as u64;
        }
    }
}

impl Application for Feed {
    fn run(&mut self, now: Time, end: End, endpoint: &mut Endpoint, event: Option<(ConnectionHandle, Event)>) {
        match event {
            Some((handle, Event::Connected)) => self.handles[end as usize] = Some(handle),
            Some((_, Event::Closed(reason))) => panic!("closed: {reason}"),
            _ => {}
        }
        let Some(connection) = self.handles[end as usize].and_then(|handle| endpoint.connection_mut(handle)) else {
            return;
        };
        match end {
            End::Near => self.send(now, connection),
            End::Far => self.take(now, connection),
        }
    }

    fn poll_timeout(&self, end: End) -> Option<Time> {
        (end == End::Near && self.handles[0].is_some() && self.next < self.until).then_some(self.next)
    }
}

/// The bytes of a message: its number, then bytes that depend on their place.
fn body(lane: usize, number: usize, len: usize) -> Vec<u8> {
    let mut bytes = (number as u64).to_be_bytes().to_vec();
    bytes.extend((8..len).map(|at| ((at * 31) ^ (number * 7) ^ (lane << 5)) as u8));
    bytes
}

fn lane(in_order: bool, redundancy: Option<&str>) -> LaneConfig {
    let mut lane = LaneConfig::default();
    lane.delivery = in_order.then_some(Delivery::InOrder);
    lane.redundancy = redundancy.map(|text| text.parse::<Redundancy>().expect("a policy"));
    lane
}

/// Runs for ten seconds of messages and two more. Returns the statistics of both ends.
fn run(feed: &mut Feed, settings: &[(Direction, &str, &str)], seed: u64) -> [Stats; 2] {
    run_with(feed, &Config::default(), settings, seed)
}

fn run_with(feed: &mut Feed, config: &Config, settings: &[(Direction, &str, &str)], seed: u64) -> [Stats; 2] {
    let mut link = link(settings);
    link.set_seed(seed);
    let mut pair = Pair::new(config.clone(), config.clone(), &link, seed);
    pair.connect(feed);
    let until = pair.now() + Duration::from_secs(14);
    pair.run(feed, until, |_| false);
    assert_eq!(pair.counted().overdue, 0);
    [End::Near, End::Far].map(|end| {
        let handle = feed.handles[end as usize].expect("connected");
        pair.endpoint(end).connection(handle).expect("alive").stats()
    })
}

/// Checks that every message arrived or was given up, and that the counts of both ends agree.
fn settle(feed: &Feed, [near, far]: &[Stats; 2], late: Duration, what: &str) {
    let sent: usize = feed.sent.iter().map(Vec::len).sum();
    let came = feed.came.len();
    assert_eq!((near.messages.sent as usize, far.messages.delivered as usize), (sent, came), "{what}");
    assert!(sent - came <= near.messages.expired as usize, "{what}: {came} of {sent}, {:?}", near.messages);
    // The receiver skips no more than the sender gave up. The sender may not know that later data arrived.
    assert!(far.symbols.expired <= near.messages.expired_symbols, "{what}: {:?} {:?}", near.messages, far.symbols);
    assert_eq!(far.symbols.delivered, far.symbols.direct + far.symbols.repaired + far.symbols.resent);
    // A message in order may wait until the receiver learns that an earlier one was given up, and that
    // information may be lost too.
    for (&(lane, number), &took) in &feed.came {
        let word = if feed.lanes[lane].delivery.is_some() { Duration::from_secs(1) } else { Duration::ZERO };
        assert!(took <= feed.lifetime + late + word, "{what}: {number} of lane {lane} came after {took:?}");
    }
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn what_comes_is_whole_right_in_time_and_once_whatever_is_lost() {
    for seed in 0..40 {
        let lanes = vec![lane(false, None), lane(true, None), lane(false, Some("none")), lane(true, Some("every:4"))];
        let mut feed = Feed::new(seed, lanes);
        feed.mean = [300, 2_000, 6_000][seed as usize % 3];
        feed.lifetime = Duration::from_millis([40, 80, 200][seed as usize / 3 % 3]);
        let loss = ["0%", "3%", "10%", "30%"][seed as usize % 4];
        let settings = [
            (Direction::Both, "loss", loss),
            (Direction::Both, "reorder", "3%,8ms"),
            (Direction::Both, "duplicate", "2%"),
        ];
        let stats = run(&mut feed, &settings, seed);
        // Where so much is lost, the sender learns late that it fills the queue, and a repair for later
        // messages may complete one a round trip after its time.
        let late = if loss == "30%" { QUEUE + RTT } else { LATE };
        settle(&feed, &stats, late, &format!("seed {seed}, {loss} lost"));
        let sent: usize = feed.sent.iter().map(Vec::len).sum();
        assert!(feed.came.len() > sent / 10, "seed {seed}: {} of {sent} came", feed.came.len());
    }
}

#[test]
fn with_time_for_a_repair_nearly_all_come_and_without_loss_all_do() {
    for (loss, least) in [("0%", 1.0), ("5%", 0.995), ("10%", 0.99)] {
        let mut feed = Feed::new(1, vec![lane(true, None), lane(false, None)]);
        feed.mean = 1_500;
        feed.lifetime = Duration::from_millis(200);
        let stats = run(&mut feed, &[(Direction::Both, "loss", loss)], 1);
        settle(&feed, &stats, LATE, loss);
        let sent: usize = feed.sent.iter().map(Vec::len).sum();
        let share = feed.came.len() as f64 / sent as f64;
        println!("{loss}: {share:.4} of {sent} came");
        assert!(sent > 1_900 && share >= least, "{loss}: {share:.4} of {sent}");
    }
}

/// Each profile carries messages in both orders of delivery, and gives up what is late.
#[test]
fn every_profile_carries_messages() {
    for named in Profile::NAMED {
        let profile: Profile = named.name.parse().expect(named.name);
        let config = Config::builder().profile(profile).build().expect("a named profile");
        let mut feed = Feed::new(5, vec![lane(true, None), lane(false, None)]);
        (feed.mean, feed.lifetime) = (1_500, Duration::from_millis(400));
        let stats = run_with(&mut feed, &config, &[(Direction::Both, "loss", "5%")], 5);
        settle(&feed, &stats, LATE, named.name);
        let sent: usize = feed.sent.iter().map(Vec::len).sum();
        let share = feed.came.len() as f64 / sent as f64;
        println!("{}: {share:.4} of {sent} came", named.name);
        assert!(sent > 1_900 && share >= 0.95, "{}: {share:.4} of {sent}", named.name);
    }
}

/// Combinations instead of the symbols of messages, with answers and without: what is too late is given up,
/// and what comes is whole.
#[test]
fn messages_leave_as_combinations() {
    for seed in 0..if tidewire_testing::few_seeds() { 4 } else { 40 } {
        let redundancies =
            ["pipeline:16,1.25", "pipeline:16,1.25,open", "pipeline:64,min,open", "pipeline:8,1.5,systematic"];
        let lanes: Vec<_> = redundancies.iter().map(|text| lane(seed % 8 < 4, Some(text))).collect();
        let mut feed = Feed::new(seed, lanes);
        feed.mean = [300, 2_000, 6_000][seed as usize % 3];
        feed.lifetime = Duration::from_millis([60, 200][seed as usize / 3 % 2]);
        let loss = ["0%", "3%", "10%", "30%"][seed as usize % 4];
        let settings = [(Direction::Both, "loss", loss), (Direction::Both, "reorder", "3%,8ms")];
        let stats = run(&mut feed, &settings, seed);
        settle(&feed, &stats, LATE, &format!("seed {seed}, {loss} lost"));
        let came = |lane: usize| {
            let came = feed.came.range((lane, 0)..(lane + 1, 0)).count();
            came as f64 / feed.sent[lane].len() as f64
        };
        let shares = [0, 1, 2, 3].map(came);
        println!("seed {seed}, {loss}, {:?}: {shares:.3?}", feed.lifetime);
        let least = [0.99, 0.9, 0.6, 0.05][seed as usize % 4];
        assert!(shares[0] >= least && shares[1] >= least - 0.1, "seed {seed}, {loss}: {shares:.3?}");
    }
}

#[test]
fn more_than_the_link_carries_is_given_up_and_bulk_keeps_its_half() {
    // 40 Mbit/s of messages and bulk on a link of 25.
    let mut feed = Feed::new(1, vec![lane(false, None)]);
    (feed.mean, feed.interval, feed.bulk) = (12_000, Duration::from_millis(2), true);
    let stats = run(&mut feed, &[(Direction::Both, "loss", "2%")], 1);
    settle(&feed, &stats, QUEUE, "overload");
    let bytes: usize = feed.came.keys().map(|&(lane, number)| feed.sent[lane][number].0).sum();
    println!("{bytes} of messages, {} of bulk, {:?}", feed.read, stats[0].messages);
    assert!(bytes > 5_000_000 && feed.read > 8_000_000, "{bytes} of messages, {} of bulk", feed.read);
}

#[test]
fn a_blackout_costs_the_messages_of_its_time_and_no_more() {
    for in_order in [false, true] {
        let mut feed = Feed::new(1, vec![lane(in_order, None)]);
        feed.mean = 1_500;
        let stats = run(&mut feed, &[(Direction::Both, "blackout", "3s..4s")], 1);
        settle(&feed, &stats, LATE, "blackout");
        let lost = feed.sent[0].len() - feed.came.len();
        println!("in order {in_order}: {lost} of {}", feed.sent[0].len());
        assert!((60..180).contains(&lost), "{lost} of 100 a second");
    }
}

/// Row S7 of the survival list: an application that takes nothing for a minute finds the newest messages, at
/// most 1 MiB. The others were dropped and counted, and neither the sender nor a stream beside them was held
/// up.
#[test]
fn s07_messages_that_nobody_takes_are_dropped_and_counted() {
    let mut feed = Feed::new(1, vec![lane(false, None)]);
    (feed.bulk, feed.deaf) = (true, Duration::from_secs(9));
    let [near, far] = run(&mut feed, &[(Direction::Both, "loss", "2%")], 1);
    let sent = feed.sent[0].len();
    println!("{} of {sent} came, {} of bulk, {:?}", feed.came.len(), feed.read, far.messages);
    let kept: usize = feed.came.keys().map(|&(_, number)| feed.sent[0][number].0).sum();
    assert!(far.messages.dropped > 100 && kept < (1 << 20) + 1_000_000, "{kept} bytes, {:?}", far.messages);
    assert!(feed.came.len() + far.messages.dropped as usize + near.messages.expired as usize >= sent);
    assert!(feed.newest[0] + 1 == sent && feed.read > 20_000_000, "{} of bulk", feed.read);
}
