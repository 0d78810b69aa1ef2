//! Two hosts, a link without loss between them, and a stream that is checked byte by byte.

use std::collections::VecDeque;
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::StreamId;

use super::host::Host;

pub struct Flow {
    pub near: Host,
    pub far: Host,
    delay: Duration,
    forward: VecDeque<(Time, Vec<u8>)>,
    back: VecDeque<(Time, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    stream: Option<StreamId>,
    written: u64,
    /// Bytes that the far end has read.
    pub read: u64,
    /// Whether the far end reads.
    pub reads: bool,
}

impl Flow {
    pub fn new(config: Config, delay: Duration) -> Self {
        let (mut near, far) = (Host::new(config.clone(), 1), Host::new(config, 2));
        let (now, remote) = (near.now, far.address);
        let Host { endpoint, meter, handle, .. } = &mut near;
        *handle = Some(meter.run(|| endpoint.connect(now, remote)).expect("the secret is shared"));
        let [forward, back] = [VecDeque::new(), VecDeque::new()];
        let (spare, stream) = (Vec::new(), None);
        Self { near, far, delay, forward, back, spare, stream, written: 0, read: 0, reads: true }
    }

    /// One tick: arrivals, timers, the application at both ends, and sending. `seen` gets each datagram for
    /// the far end before the far end does.
    pub fn step(&mut self, tick: Duration, mut seen: impl FnMut(&[u8])) {
        let [near, far] = [self.near.address, self.far.address];
        for (to, from, queue) in [(&mut self.far, near, &mut self.forward), (&mut self.near, far, &mut self.back)] {
            to.wait(tick);
            while queue.front().is_some_and(|(at, _)| *at <= to.now) {
                let Some((_, mut datagram)) = queue.pop_front() else { break };
                if to.address == far {
                    seen(&datagram);
                }
                to.take(from, &mut datagram);
                self.spare.push(datagram);
            }
        }
        if self.stream.is_none() {
            self.stream = self.near.with(|connection| connection.open_stream().ok());
        }
        if let Some(stream) = self.stream {
            self.written = self.near.write(stream, self.written);
            if self.reads && self.far.handle.is_some() {
                self.read = self.far.read(stream, self.read);
            }
        }
        for (from, queue) in [(&mut self.near, &mut self.forward), (&mut self.far, &mut self.back)] {
            let arrives = from.now + self.delay;
            let spare = &mut self.spare;
            from.turn(|_, datagram| {
                let mut copy = spare.pop().unwrap_or_default();
                copy.clear();
                copy.extend_from_slice(datagram);
                queue.push_back((arrives, copy));
            });
        }
    }

    /// Asserts that both ends are alive and nothing was closed.
    pub fn assert_alive(&self) {
        assert_eq!((&self.near.closed, &self.far.closed), (&Vec::new(), &Vec::new()));
    }
}
