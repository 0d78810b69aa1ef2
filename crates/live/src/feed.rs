//! The sending half: hands each datagram of the inputs to every receiver that is connected.
//!
//! Threads of [`super::input`] call [`Feed::send`]; each session of [`super::sender`] attaches its connection
//! and detaches it at the end. A datagram is a message of its own in a lane of its own, so that its bytes
//! stay together and its lifetime is its own. Invariant: datagrams of a receiver have consecutive numbers
//! from 0, also those that its lane had no room for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidewire::{Connection, Delivery, LaneConfig, LaneError, LaneId, MessageError, Outgoing};

use super::LATENCY;
use super::groups::Groups;
use super::wire::{HEAD, Head};

/// The one-way time is read again after this time. Chosen: it changes within a few round trips.
const PATH_CHECK: Duration = Duration::from_millis(100);

/// What happened to the datagrams of all inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Datagrams that came in.
    pub packets: u64,
    pub bytes: u64,
    /// Datagrams that came while no receiver was connected.
    pub unheard: u64,
    /// Datagrams that the lane of a receiver had no room for, or that were too long.
    pub refused: u64,
    /// Datagrams of `rtp://` that are no RTP packets. They are not sent.
    pub strange: u64,
    /// RTP packets that did not come in, by their sequence numbers.
    pub gaps: u64,
    /// RTP packets that came too late for their timestamps.
    pub late: u64,
}

/// A receiver.
#[derive(Debug)]
struct Outlet {
    connection: Connection,
    lane: LaneId,
    latency: Duration,
    lifetime: Duration,
    path_read: Option<Instant>,
    /// Datagrams of each program so far.
    sent: Vec<u64>,
}

/// Distributes datagrams; see the module.
#[derive(Debug)]
pub struct Feed {
    start: Instant,
    programs: usize,
    state: Mutex<State>,
    attached: Condvar,
}

#[derive(Debug, Default)]
struct State {
    outlets: Vec<(u64, Outlet)>,
    attached: u64,
    taken: Taken,
    /// The picture groups of each program; none if all datagrams are alike.
    groups: Vec<Groups>,
}

impl Feed {
    /// A feed for so many programs, without receivers. `protects` says whether key frames are important.
    pub fn new(programs: usize, protects: bool) -> Self {
        let groups = if protects { (0..programs).map(|_| Groups::default()).collect() } else { Vec::new() };
        let state = Mutex::new(State { groups, ..State::default() });
        Self { start: Instant::now(), programs, state, attached: Condvar::new() }
    }

    /// Sends a datagram of a program, which came in at `stamp`, to every receiver.
    pub fn send(&self, program: u8, stamp: Instant, datagram: &[u8]) {
        let waited = stamp.elapsed();
        // The stamp wraps after 71 minutes, as `docs/live.md` says.
        let stamp = stamp.saturating_duration_since(self.start).as_micros() as u32;
        let mut state = self.state();
        let State { outlets, taken, groups, .. } = &mut *state;
        let important = groups.get_mut(usize::from(program)).is_some_and(|groups| groups.is_important(datagram));
        taken.packets += 1;
        taken.bytes += datagram.len() as u64;
        taken.unheard += u64::from(outlets.is_empty());
        for (_, outlet) in outlets {
            let Some(sent) = outlet.sent.get_mut(usize::from(program)) else { continue };
            let head = Head { program, sequence: *sent as u32, stamp };
            *sent += 1;
            taken.refused += u64::from(!outlet.offer(head, datagram, important, waited));
        }
    }

    /// Counts a datagram that is no RTP packet where one should be.
    pub fn on_strange(&self) {
        self.state().taken.strange += 1;
    }

    /// Counts RTP packets that did not come in before one, and whether it came late.
    pub fn on_packet(&self, gap: u64, is_late: bool) {
        let mut state = self.state();
        state.taken.gaps += gap;
        state.taken.late += u64::from(is_late);
    }

    /// The least latency of the receivers; the default if there is none.
    pub fn latency(&self) -> Duration {
        self.state().outlets.iter().map(|(_, outlet)| outlet.latency).min().unwrap_or(LATENCY)
    }

    /// Adds a receiver that plays datagrams out this late. Returns the name to detach it by.
    ///
    /// # Errors
    /// See [`LaneError`].
    pub fn attach(&self, connection: &Connection, latency: Duration) -> Result<u64, LaneError> {
        let mut config = LaneConfig::default();
        config.delivery = Some(Delivery::AsComplete);
        let lane = connection.open_lane(&config)?;
        let outlet = Outlet {
            connection: connection.clone(),
            lane,
            latency,
            lifetime: latency,
            path_read: None,
            sent: vec![0; self.programs],
        };
        let mut state = self.state();
        state.attached += 1;
        let name = state.attached;
        state.outlets.push((name, outlet));
        self.attached.notify_all();
        Ok(name)
    }

    /// Waits for the first receiver. A file begins when somebody listens.
    pub fn wait_for_receiver(&self) {
        let state = self.state();
        drop(self.attached.wait_while(state, |state| state.attached == 0));
    }

    /// Removes a receiver, and returns how many datagrams of each program it was sent.
    pub fn detach(&self, name: u64) -> Vec<u64> {
        let mut state = self.state();
        let index = state.outlets.iter().position(|(other, _)| *other == name);
        index.map(|index| state.outlets.remove(index).1.sent).unwrap_or_default()
    }

    /// What came in so far.
    pub fn taken(&self) -> Taken {
        self.state().taken
    }

    pub fn connections(&self) -> Vec<Connection> {
        self.state().outlets.iter().map(|(_, outlet)| outlet.connection.clone()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlet {
    /// Gives a datagram that is so old to the lane. Returns false if the lane does not take it.
    fn offer(&mut self, head: Head, datagram: &[u8], important: bool, age: Duration) -> bool {
        if self.path_read.is_none_or(|read| read.elapsed() > PATH_CHECK) {
            // The receiver counts from the least one-way time, which is half of the least round trip if both
            // ways are alike.
            self.lifetime = self.latency + self.connection.stats().rtt.least / 2;
            self.path_read = Some(Instant::now());
        }
        let lifetime = self.lifetime.saturating_sub(age);
        let mut message = Some(head.message(datagram));
        let filled = self.connection.fill_lane(self.lane, HEAD + datagram.len(), || {
            let data = message.take()?;
            Some(Outgoing { data, lifetime, delivery: Delivery::AsComplete, important })
        });
        // Where the connection is over, its session detaches it.
        matches!(filled, Err(MessageError::NotConnected)) || (filled.is_ok() && message.is_none())
    }
}
