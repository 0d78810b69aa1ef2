//! The recorded path: a fate and a delay for each datagram.

use core::time::Duration;
use std::collections::VecDeque;

use tidewire_proto::Time;

use super::{NEAR, Recorded, Sent};
use crate::duplex::DuplexLink;
use crate::link::Delivery;
use crate::pair::Parcel;

/// Recorded fates, taken in their order.
#[derive(Debug)]
pub(super) struct Fates<'a> {
    all: &'a [Sent],
    next: usize,
}

impl<'a> Fates<'a> {
    pub fn new(all: &'a [Sent]) -> Self {
        Self { all, next: 0 }
    }

    /// Whether a packet is lost that is sent this long after the connection was made.
    pub fn take(&mut self, since: Duration) -> bool {
        let from = self.all.partition_point(|sent| sent.at + NEAR < since);
        let to = self.all.partition_point(|sent| sent.at <= since + NEAR);
        if from >= to {
            // Nothing was sent then, so nothing is known. The fate of the packet before is the best guess.
            return from.checked_sub(1).and_then(|last| self.all.get(last)).is_some_and(|sent| sent.lost);
        }
        // Behind the end, the fates nearby are met again.
        if self.next < from || self.next >= to {
            self.next = from;
        }
        let lost = self.all[self.next].lost;
        self.next += 1;
        lost
    }
}

/// Both directions.
#[derive(Debug)]
pub(super) struct Channel<'a> {
    forward: Fates<'a>,
    back: Fates<'a>,
    queueing: &'a [(Duration, Duration)],
    one_way: Duration,
    /// In order of arrival, toward the far and the near end.
    under_way: [VecDeque<Delivery<Parcel>>; 2],
    lost: u64,
}

impl<'a> Channel<'a> {
    pub fn new(recorded: &'a Recorded) -> Self {
        Self {
            forward: Fates::new(&recorded.fates),
            back: Fates::new(&recorded.back),
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
            if since.is_some_and(|since| self.forward.take(since)) {
                self.lost += 1;
                continue;
            }
            let at = now + self.one_way + since.map_or(Duration::ZERO, |since| self.queueing_at(since));
            launch(&mut self.under_way[0], at, sent.payload);
        }
        while let Some(sent) = link.back.poll_departure() {
            if !since.is_some_and(|since| self.back.take(since)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(all: &[(u64, bool)]) -> Vec<Sent> {
        all.iter().map(|&(ms, lost)| Sent { at: Duration::from_millis(ms), lost }).collect()
    }

    #[test]
    fn fates_come_in_their_order_and_from_nearby() {
        let all = sent(&[(0, false), (1, true), (2, true), (500, false), (501, true)]);
        let mut fates = Fates::new(&all);
        let mut take = |ms| fates.take(Duration::from_millis(ms));
        // Three near the start, and then the same again.
        assert_eq!([0, 0, 0, 1, 1, 1].map(&mut take), [false, true, true, false, true, true]);
        // An outage keeps its place whatever was sent before.
        assert_eq!([500, 501, 502].map(&mut take), [false, true, false]);
        // In between nothing was sent: as the packet before.
        assert!(take(300) && !Fates::new(&[]).take(Duration::ZERO));
    }
}
