//! Three or two hundred streams on one connection: one that nobody reads, bulk on the others, and key strokes
//! beside them.

use core::time::Duration;

use tidewire_figures::quantile;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{Connection, Event, StreamId, WriteError};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};
use tidewire_sim::pair::{Application, End, Pair};
use tidewire_sim::settings::Direction;

use super::link;

const ONE_WAY: Duration = Duration::from_millis(30);
/// The stream that nobody reads, and the stream of the key strokes.
const UNREAD: usize = 0;
const KEYS: usize = 1;
/// The last part of a run, in which delays count.
const STEADY: Duration = Duration::from_secs(18);
const KEY_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Crowd {
    count: usize,
    handles: [Option<ConnectionHandle>; 2],
    streams: Vec<StreamId>,
    written: Vec<u64>,
    read: Vec<u64>,
    next_key: Time,
    /// A key stroke that could not be written yet: when it was made.
    held: Option<Time>,
    delays: Vec<Duration>,
}

impl Crowd {
    fn write(&mut self, now: Time, connection: &mut Connection) {
        while self.streams.len() < self.count {
            self.streams.push(connection.open_stream().expect("allowed"));
        }
        if now >= self.next_key {
            self.next_key = now + KEY_INTERVAL;
            self.held.get_or_insert(now);
        }
        // Bulk streams first.
        for (index, &id) in self.streams.iter().enumerate().filter(|&(index, _)| index != KEYS) {
            while let Ok(taken) = connection.write(id, &[7; 4_096]) {
                self.written[index] += taken as u64;
            }
        }
        if let Some(struck) = self.held {
            match connection.write(self.streams[KEYS], &struck.0.to_be_bytes()) {
                Ok(taken) => {
                    assert_eq!(taken, 8);
                    self.held = None;
                }
                Err(WriteError::Blocked) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn read(&mut self, now: Time, connection: &mut Connection) {
        for (index, &id) in self.streams.iter().enumerate().filter(|&(index, _)| index != UNREAD) {
            let mut bytes = [0; 4_096];
            while let Ok(n) = connection.read(now, id, &mut bytes) {
                self.read[index] += n as u64;
                let keys = bytes[..n].chunks(8).filter(|_| index == KEYS);
                self.delays.extend(keys.map(|key| now.since(Time(u64::from_be_bytes(key.try_into().expect("whole"))))));
            }
        }
    }
}

impl Application for Crowd {
    fn run(&mut self, now: Time, end: End, endpoint: &mut Endpoint, event: Option<(ConnectionHandle, Event)>) {
        if let Some((handle, Event::Connected)) = event {
            self.handles[end as usize] = Some(handle);
        }
        let Some(connection) = self.handles[end as usize].and_then(|handle| endpoint.connection_mut(handle)) else {
            return;
        };
        match end {
            End::Near => self.write(now, connection),
            End::Far => self.read(now, connection),
        }
    }

    fn poll_timeout(&self, end: End) -> Option<Time> {
        (end == End::Near && self.handles[0].is_some()).then_some(self.next_key)
    }
}

/// Twenty seconds of `count` streams.
fn run(count: usize, loss: &str) -> Crowd {
    let config = Config::builder().max_streams(count as u64).build().expect("in range");
    let mut pair = Pair::new(config.clone(), config, &link(&[(Direction::Forward, "loss", loss)]), 3);
    let mut crowd = Crowd { count, written: vec![0; count], read: vec![0; count], ..Crowd::default() };
    pair.connect(&mut crowd);
    let until = pair.now() + Duration::from_secs(20);
    pair.run(&mut crowd, until - STEADY, |_| false);
    // While the rate is being found, key strokes wait in the queue that this causes.
    crowd.delays.clear();
    pair.run(&mut crowd, until, |_| false);
    crowd.delays.sort();
    crowd
}

impl Crowd {
    fn p99(&self) -> Duration {
        assert!(self.delays.len() > 850, "{}", self.delays.len());
        quantile(&self.delays, 0.99).expect("they are many")
    }
}

#[test]
fn a_key_stroke_beside_a_bulk_stream_waits_five_milliseconds() {
    let crowd = run(3, "0%");
    assert!(crowd.read[KEYS + 1] > 50_000_000, "{} bytes in 20 s at 25 Mbit/s", crowd.read[KEYS + 1]);
    assert!(crowd.p99() <= ONE_WAY + Duration::from_millis(5), "p99 {:?}", crowd.p99());
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn two_hundred_streams_share_evenly_and_a_key_stroke_waits_for_none_of_them() {
    for (loss, most) in [("0%", Duration::from_millis(6)), ("5%", Duration::from_millis(80))] {
        let crowd = run(200, loss);
        let window = Config::default().stream_window();
        assert!(crowd.written[UNREAD] <= window, "{}", crowd.written[UNREAD]);
        let read = &crowd.read[KEYS + 1..];
        let (least, most_read) = (read.iter().min().unwrap(), read.iter().max().unwrap());
        let sum: u64 = read.iter().sum();
        assert!(sum > 40_000_000, "{sum} bytes in 20 s at 25 Mbit/s, {loss} lost");
        assert!(most_read - least < sum / 198 / 10, "{least} to {most_read}");
        let p99 = crowd.p99();
        println!("{loss}: key strokes p99 {p99:?}, {sum} bytes, each {least} to {most_read}");
        assert!(p99 < ONE_WAY + most, "{loss} lost: p99 {p99:?}");
    }
}
