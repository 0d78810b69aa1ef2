//! The recorded path: a fate and a delay for each datagram.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tidewire_proto::Time;
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::trace::{PacketContent, Trace, TraceEvent};

use super::Recorded;
use super::back::Back;
use super::fates::Fates;
use super::gather::HEADERS;
use crate::duplex::DuplexLink;
use crate::link::Delivery;
use crate::pair::Parcel;

/// Tells what the packets carry that the near end sends: its trace.
#[derive(Debug, Default)]
pub(super) struct Contents(Mutex<VecDeque<(u64, PacketContent)>>);

impl Trace for Contents {
    fn record(&self, _: Time, _: ConnectionHandle, event: &TraceEvent) {
        if let TraceEvent::PacketSent { bytes, content, .. } = *event {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back((u64::from(bytes), content));
        }
    }
}

impl Contents {
    /// What the next datagram carries, which has a payload of `len` bytes. Datagrams of the handshake have no
    /// event.
    fn next(&self, len: usize) -> PacketContent {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_next = told.front().is_some_and(|(bytes, _)| *bytes == len as u64 + HEADERS);
        if is_next { told.pop_front().map_or(PacketContent::Control, |told| told.1) } else { PacketContent::Control }
    }
}

/// Both directions.
#[derive(Debug)]
pub(super) struct Channel<'a> {
    forward: Fates<'a>,
    contents: Arc<Contents>,
    back: Back<'a>,
    queueing: &'a [(Duration, Duration)],
    one_way: Duration,
    /// In order of arrival, toward the far and the near end.
    under_way: [VecDeque<Delivery<Parcel>>; 2],
    lost: u64,
}

impl<'a> Channel<'a> {
    /// The recorded path. `contents` is the trace of the near end.
    pub fn new(recorded: &'a Recorded, contents: Arc<Contents>, seed: u64) -> Self {
        Self {
            forward: Fates::new(&recorded.packets, &recorded.known, seed),
            contents,
            back: Back::new(&recorded.back, seed),
            queueing: &recorded.queueing,
            one_way: recorded.least_rtt / 2,
            under_way: [VecDeque::new(), VecDeque::new()],
            lost: 0,
        }
    }

    /// Number of packets that were lost forward.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// When the next datagram arrives.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.under_way.iter().filter_map(|way| way.front()).map(|delivery| delivery.at).min()
    }

    /// Lets datagrams arrive whose time has come.
    pub fn deliver(&mut self, now: Time, link: &mut DuplexLink<Parcel>) {
        let [forward, back] = &mut self.under_way;
        for (way, link) in [(forward, &mut link.forward), (back, &mut link.back)] {
            while way.front().is_some_and(|delivery| delivery.at <= now) {
                way.pop_front().into_iter().for_each(|delivery| link.hand(delivery));
            }
        }
    }

    /// Takes what was sent at `now`. Before the connection is made, nothing is lost and no queue is long.
    pub fn collect(&mut self, now: Time, since: Option<Duration>, link: &mut DuplexLink<Parcel>) {
        while let Some(sent) = link.forward.poll_departure() {
            let content = self.contents.next(sent.len);
            if since.is_some_and(|since| self.forward.take(since, content)) {
                self.lost += 1;
                continue;
            }
            let at = now + self.one_way + since.map_or(Duration::ZERO, |since| self.queueing_at(since));
            launch(&mut self.under_way[0], at, sent.payload);
        }
        while let Some(sent) = link.back.poll_departure() {
            if !since.is_some_and(|since| self.back.take(since + self.one_way)) {
                launch(&mut self.under_way[1], now + self.one_way, sent.payload);
            }
        }
    }

    /// The queueing delay of a packet that is sent at this time, between the measurements before and after.
    fn queueing_at(&self, since: Duration) -> Duration {
        let after = self.queueing.partition_point(|(at, _)| *at <= since);
        let before = after.checked_sub(1).and_then(|before| self.queueing.get(before));
        match (before, self.queueing.get(after)) {
            (Some(&(from, a)), Some(&(to, b))) => {
                let part = (since - from).as_secs_f64() / (to - from).as_secs_f64().max(1e-9);
                Duration::from_secs_f64(a.as_secs_f64() * (1.0 - part) + b.as_secs_f64() * part)
            }
            (Some(&(_, delay)), None) | (None, Some(&(_, delay))) => delay,
            (None, None) => Duration::ZERO,
        }
    }
}

/// Puts a datagram on its way. None overtakes another.
fn launch(way: &mut VecDeque<Delivery<Parcel>>, at: Time, payload: Parcel) {
    let at = way.back().map_or(at, |last| last.at.max(at));
    way.push_back(Delivery { payload, at, corruption: None, marked: false });
}
