//! Live video as `tidewire live` sends it: each datagram of seven transport packets is a message with a
//! deadline, and is of no use after it. How many are missing, and what that costs, on the links of
//! `docs/live.md`.

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{Connection, Event, LaneConfig, LaneId, Outgoing};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};
use tidewire_proto::profile::Delivery;
use tidewire_sim::pair::{Application, End, Pair};
use tidewire_sim::settings::Direction;

use super::link;

/// Seven packets of 188 bytes, and the head of a message.
const DATAGRAM: usize = 7 * 188;
const HEAD: usize = 10;
/// Interval of datagrams at 6 Mbit/s.
const INTERVAL: Duration = Duration::from_nanos(1_754_667);
/// Half of the round trip of the link.
const ONE_WAY: Duration = Duration::from_millis(30);
/// Start-up, in which loss and rate are not known yet.
const SETTLED: Duration = Duration::from_secs(3);

/// A sender at a constant rate, and a player.
struct Player {
    handles: [Option<ConnectionHandle>; 2],
    latency: Duration,
    begun: Option<Time>,
    until: Time,
    next: Time,
    /// When each datagram was sent, and whether it came in time.
    sent: Vec<(Time, bool)>,
}

impl Player {
    fn new(latency: Duration) -> Self {
        Self { handles: [None; 2], latency, begun: None, until: Time::NEVER, next: Time::ZERO, sent: Vec::new() }
    }

    fn send(&mut self, now: Time, connection: &mut Connection) {
        if self.begun.is_none() {
            let mut config = LaneConfig::default();
            config.delivery = Some(Delivery::AsComplete);
            assert_eq!(connection.open_lane(&config), Ok(LaneId(1)));
            (self.begun, self.next) = (Some(now), now);
        }
        while self.next <= now && now < self.until {
            self.next += INTERVAL;
            let mut data = vec![self.sent.len() as u8; HEAD + DATAGRAM];
            data[..8].copy_from_slice(&(self.sent.len() as u64).to_be_bytes());
            let lifetime = self.latency + connection.stats().rtt.least / 2;
            let mut message = Some(Outgoing { data, lifetime, delivery: Delivery::AsComplete });
            connection.fill_lane(now, LaneId(1), HEAD + DATAGRAM, || message.take()).expect("connected");
            self.sent.push((now, false));
        }
    }

    fn take(&mut self, now: Time, connection: &mut Connection) {
        while let Some(message) = connection.take_message() {
            let number = u64::from_be_bytes(message.data[..8].try_into().expect("eight bytes")) as usize;
            let (at, came) = &mut self.sent[number];
            *came |= now <= *at + ONE_WAY + self.latency;
        }
    }
}

impl Application for Player {
    fn run(&mut self, now: Time, end: End, endpoint: &mut Endpoint, event: Option<(ConnectionHandle, Event)>) {
        match event {
            Some((handle, Event::Connected)) => self.handles[end as usize] = Some(handle),
            Some((_, Event::Closed(reason))) => panic!("closed: {reason}"),
            _ => {}
        }
        let handle = self.handles[end as usize];
        let Some(connection) = handle.and_then(|handle| endpoint.connection_mut(handle)) else { return };
        match end {
            End::Near => self.send(now, connection),
            End::Far => self.take(now, connection),
        }
    }

    fn poll_timeout(&self, end: End) -> Option<Time> {
        (end == End::Near && self.handles[0].is_some() && self.next < self.until).then_some(self.next)
    }
}

/// Datagrams that were missing, of how many, and bytes sent per byte of them.
#[derive(Default)]
struct Outcome {
    missing: u64,
    of: u64,
    wire: u64,
    app: u64,
}

impl Outcome {
    fn share(&self) -> f64 {
        self.missing as f64 / self.of as f64
    }

    fn cost(&self) -> f64 {
        self.wire as f64 / self.app as f64
    }
}

/// Plays `seconds` of video over a link with this loss.
fn play(loss: &str, latency: u64, seconds: u64, seed: u64, outcome: &mut Outcome) {
    let latency = Duration::from_millis(latency);
    let mut link = link(&[(Direction::Forward, "loss", loss)]);
    link.set_seed(seed);
    let config = Config::builder().latency(Some(latency)).deliver(0.9999).message_memory(32 << 20).build();
    let mut pair = Pair::new(config.expect("in range"), Config::default(), &link, seed);
    let mut player = Player::new(latency);
    pair.connect(&mut player);
    let until = pair.now() + Duration::from_secs(seconds);
    player.until = until;
    pair.run(&mut player, until + Duration::from_secs(1), |_| false);
    let handle = player.handles[0].expect("connected");
    let stats = pair.endpoint(End::Near).connection(handle).expect("alive").stats();
    let begun = player.begun.expect("sent");
    let settled: Vec<_> = player.sent.iter().filter(|(at, _)| *at >= begun + SETTLED).collect();
    outcome.missing += settled.iter().filter(|(_, came)| !came).count() as u64;
    outcome.of += settled.len() as u64;
    outcome.wire += stats.bytes.wire_sent;
    outcome.app += (player.sent.len() * DATAGRAM) as u64;
    let packets = stats.packets;
    let per_source = |count: u64| 100.0 * count as f64 / packets.source as f64;
    println!(
        "  seed {seed}: repair {:.1} %, answers {:.1} %",
        per_source(packets.repair),
        per_source(packets.feedback_repair)
    );
}

/// Asserted is what holds; `docs/live.md` has the goals beside it, of which two rows miss theirs.
#[test]
fn a_deadline_is_kept_at_a_stated_cost() {
    let seeds = if std::env::var_os("TIDEWIRE_QUICK").is_some() { 1 } else { 5 };
    let bounds =
        [("5%", 80, 1e-4, 1.33), ("10%", 80, 1e-4, 1.45), ("gilbert:5%,4", 80, 6e-3, 1.62), ("5%", 30, 1e-3, 1.50)];
    let mut missed = Vec::new();
    for (loss, latency, most, cost) in bounds {
        let mut outcome = Outcome::default();
        (1..=seeds).for_each(|seed| play(loss, latency, 63, seed, &mut outcome));
        let line = format!(
            "{loss}, one way + {latency} ms: missing {} of {} ({:.1e}), sent/app {:.3}",
            outcome.missing,
            outcome.of,
            outcome.share(),
            outcome.cost()
        );
        println!("{line}");
        if outcome.share() > most || outcome.cost() > cost {
            missed.push(line);
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
