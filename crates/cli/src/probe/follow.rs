//! Follows the packets of a phase: when each left, its length, and whether it arrived.
//!
//! A phase sets a [`Following`] as the trace of its endpoint and takes the packets at its end. Invariant:
//! times of all phases count from the beginning of the probe.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tidewire::{Time, Trace, TraceEvent};
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::trace::PacketContent;

/// Most packets that are followed in a phase. Chosen: 15 s at 100 Mbit/s, in 8 MB.
const MOST_PACKETS: usize = 1 << 17;

/// A packet that was followed.
#[derive(Clone, Copy, Debug)]
pub struct Followed {
    /// When it left, in seconds since the probe began.
    pub at: f64,
    number: u64,
    /// Length in bytes, IP and UDP headers included.
    pub bytes: u32,
    /// It was declared lost and did not arrive.
    pub lost: bool,
    /// It was lost, and known to be dropped at our own rate.
    pub at_own_rate: bool,
    /// The round trip that its acknowledgement gave, in seconds.
    pub rtt: Option<f64>,
}

/// Makes the [`Follower`] of the endpoint of a phase, whose clock is known when the endpoint begins.
#[derive(Debug)]
pub struct Following {
    began: Instant,
    follower: Mutex<Option<Arc<Follower>>>,
}

/// Follows the packets of one connection.
#[derive(Debug)]
pub struct Follower {
    /// What the clock of the connection showed when the probe began, in seconds.
    began: f64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    packets: Vec<Followed>,
    /// The newest packet that was acknowledged, and whether that was just now.
    newest: Option<u64>,
    is_new: bool,
}

impl Following {
    /// Follows the packets of an endpoint. The probe began at `began`.
    pub fn new(began: Instant) -> Self {
        Self { began, follower: Mutex::default() }
    }

    /// The packets so far.
    pub fn packets(&self) -> Vec<Followed> {
        let follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        follower.as_ref().map_or_else(Vec::new, |follower| follower.packets())
    }
}

impl Trace for Following {
    fn record(&self, _now: Time, _connection: ConnectionHandle, _event: &TraceEvent) {}

    fn of_endpoint(&self, now: Time) -> Option<Arc<dyn Trace>> {
        let follower = Arc::new(Follower::new(seconds(now) - self.began.elapsed().as_secs_f64()));
        *self.follower.lock().unwrap_or_else(PoisonError::into_inner) = Some(follower.clone());
        Some(follower)
    }
}

fn seconds(time: Time) -> f64 {
    time.since(Time::ZERO).as_secs_f64()
}

impl Follower {
    /// Follows a connection whose clock showed `began` seconds when the probe began.
    pub fn new(began: f64) -> Self {
        Self { began, state: Mutex::default() }
    }

    /// The packets so far, without those after the last one whose fate is known.
    pub fn packets(&self) -> Vec<Followed> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.packets.partition_point(|packet| state.newest.is_some_and(|newest| packet.number <= newest));
        state.packets[..known].to_vec()
    }
}

impl Trace for Follower {
    fn record(&self, now: Time, _connection: ConnectionHandle, event: &TraceEvent) {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match *event {
            // A probe of the packet size may be lost because it is too long.
            TraceEvent::PacketSent { number, bytes, content }
                if content != PacketContent::SizeProbe && state.packets.len() < MOST_PACKETS =>
            {
                let at = seconds(now) - self.began;
                state.packets.push(Followed { at, number, bytes, lost: false, at_own_rate: false, rtt: None });
            }
            TraceEvent::PacketLost { number, at_own_rate, .. } => {
                state.change(number, |packet| (packet.lost, packet.at_own_rate) = (true, at_own_rate));
            }
            TraceEvent::PacketAcked { number, was_lost } => {
                if was_lost {
                    state.change(number, |packet| (packet.lost, packet.at_own_rate) = (false, false));
                }
                if state.newest.is_none_or(|newest| newest < number) {
                    (state.newest, state.is_new) = (Some(number), true);
                }
            }
            // It follows the packets that a FEEDBACK acknowledged.
            TraceEvent::Rate { latest_rtt, .. } => {
                if let Some(newest) = state.newest.filter(|_| std::mem::take(&mut state.is_new)) {
                    state.change(newest, |packet| packet.rtt = Some(latest_rtt.as_secs_f64()));
                }
            }
            _ => {}
        }
    }
}

impl State {
    fn change(&mut self, number: u64, change: impl FnOnce(&mut Followed)) {
        if let Ok(index) = self.packets.binary_search_by_key(&number, |packet| packet.number) {
            change(&mut self.packets[index]);
        }
    }
}
