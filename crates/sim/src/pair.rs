//! Two endpoints joined by a link, in virtual time.
//!
//! [`Pair`] is the driver and keeps the clock. It jumps from one event to the next, hands datagrams over, and
//! lets an [`Application`] act on both ends after every change. It uses the real codec and real cryptography,
//! but no socket and no thread. A run depends only on its configuration and seeds.

use core::fmt;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use tidewire_codec::SplitMix64;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{Event, Received};
use tidewire_proto::crypto::{Provider, Secret};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint, EndpointConfig};
use tidewire_proto::handshake::Credentials;
use tidewire_proto::path::Ecn;

use crate::clock::Clock;
use crate::duplex::{DuplexConfig, DuplexLink};
use crate::jobs::Jobs;
use crate::ledger::Ledger;
use crate::nonces::{Recorder, Sealed};
use crate::pcap::Captured;
use crate::rebinding::{Rebinding, Rebound};

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that connects. Its data goes forward.
    Near,
    /// The end that listens.
    Far,
}

impl End {
    /// The other end.
    pub fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

/// An application on top of the two endpoints.
pub trait Application {
    /// Called when something changed at `end`: `event` tells what; `None` means that the time of
    /// [`Self::poll_timeout`] has come. `now` is the virtual time, and so is what [`Self::poll_timeout`]
    /// says. What is handed to the endpoint is the time of its clock; see [`Pair::set_clock`].
    fn run(&mut self, now: Time, end: End, endpoint: &mut Endpoint, event: Option<(ConnectionHandle, Event)>);
    /// When `end` wants to run even if nothing happens.
    fn poll_timeout(&self, end: End) -> Option<Time>;
}

/// Largest UDP payload that the driver passes on.
const DATAGRAM: usize = 65_527;
/// Maximum number of steps at one time. A step delivers everything that is due and lets both ends answer
/// once, so more steps mean an endless loop.
const MOST_STEPS: u32 = 10_000;

/// When the virtual time of a run begins. Chosen: no clock of an end starts at zero.
pub(crate) const BEGINNING: Time = Time::from_millis(1);

struct Host {
    config: EndpointConfig,
    seed: [u8; 32],
    endpoint: Endpoint,
    address: SocketAddr,
    clock: Clock,
    /// When the endpoint or the application wants to be woken.
    wakes: Option<Time>,
    /// The machine of this end sleeps until this time.
    asleep_until: Time,
}

/// A datagram on the link.
#[derive(Clone, Debug)]
pub struct Parcel {
    from: SocketAddr,
    to: SocketAddr,
    ecn: Option<Ecn>,
    bytes: Vec<u8>,
}

impl Parcel {
    /// A value that depends on every bit of the datagram: its tag.
    pub(crate) fn digest(&self) -> u64 {
        self.bytes.last_chunk().map_or(0, |tag| u64::from_le_bytes(*tag))
    }

    /// The datagram, so that a network can change its bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Bytes of datagrams from and to the latest address of the near end, as the far end counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// Bytes delivered to the far end.
    pub received: u64,
    /// Bytes sent by the far end.
    pub sent: u64,
}

/// What a pair counted, both ends together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counted {
    /// Datagrams sent.
    pub datagrams: u64,
    /// Number of times that an endpoint was woken for its own timer.
    pub wakes: u64,
    /// Number of times that an endpoint's timer was not later than the moment at which it had just been woken
    /// and drained. It must be zero.
    pub overdue: u64,
    /// Hash of every datagram sent: time, sender, length and tag, which depends on every bit. Equal runs have
    /// equal hashes.
    pub fingerprint: u64,
}

/// Changes of the near end's address: how, when next, and how many there were.
#[derive(Default)]
struct Moves {
    next: Option<(Rebinding, Time)>,
    done: u16,
}

/// Called with each datagram that an end sends or receives.
pub type Tap = Box<dyn FnMut(Time, &Captured<'_>) + Send>;

/// Datagrams that are handed over more than once, or to somebody else too.
struct Copying {
    /// Number of copies of each datagram.
    copies: usize,
    /// Address of an attacker that sends the far end a copy of every datagram.
    thief: Option<SocketAddr>,
    /// Who watches the datagrams of one end.
    tap: Option<(End, Tap)>,
}

impl Copying {
    fn show(&mut self, at: Time, end: End, captured: &Captured<'_>) {
        if let Some((_, tap)) = self.tap.as_mut().filter(|(tapped, _)| *tapped == end) {
            tap(at, captured);
        }
    }
}

/// Two endpoints and their link; see the module.
pub struct Pair {
    now: Time,
    near: Host,
    far: Host,
    link: DuplexLink<Parcel>,
    /// Cipher provider of both ends, also after a restart.
    nonces: Arc<Recorder>,
    buffer: Vec<u8>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    rebinding: Moves,
    exchanged: Exchanged,
    counted: Counted,
    /// Steps since the clock last moved.
    steps: u32,
    copying: Copying,
    ledger: Ledger,
    /// Delays of coding jobs, if they are not immediate.
    jobs: Option<Jobs>,
    /// Both ends look at socket and timers only at multiples of this, if they are busy.
    turns: Option<Duration>,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("now", &self.now)
            .field("datagrams", &self.counted.datagrams)
            .finish_non_exhaustive()
    }
}

impl Pair {
    /// Creates endpoints with these settings, and a link. All randomness is derived from `seed` and the seeds
    /// of the link.
    pub fn new(near: Config, far: Config, link: &DuplexConfig, seed: u64) -> Self {
        let secret = || Secret::new([7; 32]);
        Self::with_secrets(near, far, link, seed, [secret(), secret()])
    }

    /// The same with given secrets for the near and the far end.
    pub fn with_secrets(
        near: Config,
        far: Config,
        link: &DuplexConfig,
        seed: u64,
        [near_secret, far_secret]: [Secret; 2],
    ) -> Self {
        let nonces = Arc::<Recorder>::default();
        let side = |connection, secret, listen, end: u8| {
            let (credentials, provider) = (Credentials::Psk(secret), Arc::clone(&nonces) as _);
            let config = EndpointConfig { credentials, listen, connection, provider };
            let mut bytes = [end; 32];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            let address = SocketAddr::from((Ipv4Addr::new(10, 0, 0, end), 7_700));
            let endpoint = Endpoint::new(config.clone(), bytes);
            let clock = Clock::default();
            Host { config, seed: bytes, endpoint, address, clock, wakes: None, asleep_until: Time::ZERO }
        };
        Self {
            now: BEGINNING,
            near: side(near, near_secret, false, 1),
            far: side(far, far_secret, true, 2),
            link: DuplexLink::new(link),
            nonces,
            buffer: vec![0; DATAGRAM],
            spare: Vec::new(),
            rebinding: Moves::default(),
            exchanged: Exchanged::default(),
            counted: Counted::default(),
            steps: 0,
            copying: Copying { copies: 1, thief: None, tap: None },
            ledger: Ledger::default(),
            jobs: None,
            turns: None,
        }
    }

    /// Begins the run at `now` instead of at [`BEGINNING`], before the first step.
    pub(crate) fn begin_at(&mut self, now: Time) {
        self.now = now;
    }

    /// What was counted so far.
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What the clock of `end` shows now.
    pub fn local(&self, end: End) -> Time {
        match end {
            End::Near => self.near.clock.local(self.now),
            End::Far => self.far.clock.local(self.now),
        }
    }

    /// Gives `end` this clock. Call it before [`Self::connect`], with an application that knows the clock.
    pub fn set_clock(&mut self, end: End, clock: Clock) {
        self.side(end).clock = clock;
    }

    /// Gives `end` these ciphers, such as those of a peer that lies in what it seals. Call it before anything
    /// arrived there.
    pub fn set_provider(&mut self, end: End, provider: Arc<dyn Provider>) {
        let side = self.side(end);
        side.config.provider = provider;
        side.endpoint = Endpoint::new(side.config.clone(), side.seed);
    }

    /// What the packet keys of both ends sealed.
    pub fn sealed(&self) -> Sealed {
        self.nonces.sealed()
    }

    /// The link, for its counts, or for changes during a run.
    pub fn link_mut(&mut self) -> &mut DuplexLink<Parcel> {
        &mut self.link
    }

    /// Hands over every datagram this many times in a row, in addition to copies made by the link.
    pub fn copies(&mut self, copies: usize) {
        self.copying.copies = copies;
    }

    /// From now on an attacker sends the far end a copy of each datagram of the near end, from the attacker's
    /// own address. Half of the copies arrive before the original, half after it. Datagrams to the attacker
    /// are dropped.
    pub fn copied_by(&mut self, thief: Option<SocketAddr>) {
        self.copying.thief = thief;
    }

    /// From now on `tap` gets each datagram that `end` sends, and each that arrives there, before the end
    /// handles it.
    pub fn tap(&mut self, end: End, tap: Tap) {
        self.copying.tap = Some((end, tap));
    }

    /// From now on the result of each coding job arrives after a random time of at most `most`. Without this
    /// call results arrive at once. An endpoint has jobs only if its [`Config::workers`] is not 0.
    pub fn delay_jobs(&mut self, seed: u64, most: Duration) {
        self.jobs = Some(Jobs::new(seed, most));
    }

    /// Number of results of jobs that were delayed.
    pub fn delayed_jobs(&self) -> u64 {
        self.jobs.as_ref().map_or(0, Jobs::count)
    }

    /// Bytes of UDP payload that the far end sent to an address.
    pub fn sent_to(&self, address: SocketAddr) -> usize {
        self.ledger.sent(address)
    }

    /// From now on the near end's address changes on this schedule, or stays.
    pub fn rebind_every(&mut self, rebinding: Option<Rebinding>) {
        self.rebinding.next = rebinding.map(|rebinding| (rebinding, self.now + rebinding.every));
    }

    /// Changes the near end's address now.
    pub fn rebind(&mut self, what: Rebound) {
        self.rebinding.done = self.rebinding.done.wrapping_add(1);
        self.near.address = what.next(self.near.address, self.rebinding.done);
        self.exchanged = Exchanged::default();
        if what == Rebound::Roams {
            let now = self.local(End::Near);
            self.near.endpoint.handle_address_change(now);
            self.wake(End::Near);
        }
    }

    /// Number of changes of the near end's address.
    pub fn rebound(&self) -> u16 {
        self.rebinding.done
    }

    /// Bytes exchanged between the far end and the latest address of the near end.
    pub fn exchanged(&self) -> Exchanged {
        self.exchanged
    }

    /// From now on both directions use the queues of `other`'s link; see
    /// [`Link::share_queue`](crate::link::Link::share_queue).
    pub fn share_queues(&mut self, other: &Self) {
        self.link.forward.share_queue(&other.link.forward);
        self.link.back.share_queue(&other.link.back);
    }

    /// Ends the process of `end` without a CLOSE and starts it again with the same settings and address.
    pub fn restart(&mut self, end: End) {
        let side = self.side(end);
        // Use different randomness than before.
        side.seed[31] ^= 0x80;
        side.endpoint = Endpoint::new(side.config.clone(), side.seed);
        side.wakes = None;
        self.jobs.iter_mut().for_each(|jobs| jobs.forget(end));
        self.ledger = Ledger::default();
    }

    /// Puts the machine of `end` to sleep until `until`. Datagrams that arrive meanwhile are lost, and its
    /// timers fire when it wakes. Its clock does not stop.
    pub fn suspend(&mut self, end: End, until: Time) {
        self.side(end).asleep_until = until;
    }

    /// From now on both ends look at socket and timers only every `turn`, as on busy hosts. Applications act
    /// and datagrams leave first in a turn. Then the ends handle the datagrams that arrived since the turn
    /// before, each with its time of arrival.
    pub fn take_turns(&mut self, turn: Duration) {
        self.turns = Some(turn);
    }

    /// Looks at `end` in the next step, because it was changed from outside.
    pub fn wake(&mut self, end: End) {
        self.side(end).wakes = Some(self.now);
    }

    /// The endpoint of one end.
    pub fn endpoint(&mut self, end: End) -> &mut Endpoint {
        &mut self.side(end).endpoint
    }

    /// Starts to connect the near end to the far end.
    pub fn connect(&mut self, application: &mut dyn Application) -> ConnectionHandle {
        let handle = self
            .near
            .endpoint
            .connect(self.near.clock.local(self.now), self.far.address)
            .expect("both ends have a secret");
        self.settle(End::Near, application);
        handle
    }

    fn side(&mut self, end: End) -> &mut Host {
        match end {
            End::Near => &mut self.near,
            End::Far => &mut self.far,
        }
    }

    /// Runs until `until`, or until nothing is left to happen, or `done` returns true before a step. Returns
    /// whether `done` did.
    ///
    /// Also stops if time stands still, for example because an end asks again and again to be woken at once.
    pub fn run<A: Application>(&mut self, application: &mut A, until: Time, done: impl Fn(&A) -> bool) -> bool {
        loop {
            if done(application) {
                return true;
            }
            let Some(next) = self.next_moment().filter(|&next| next <= until) else {
                self.now = self.now.max(until);
                return false;
            };
            self.steps = if next > self.now { 0 } else { self.steps + 1 };
            if self.steps > MOST_STEPS {
                return false;
            }
            self.now = self.now.max(next);
            self.step(application);
        }
    }

    /// When the next event happens.
    pub fn next_moment(&self) -> Option<Time> {
        let [near, far] = [&self.near, &self.far].map(|side| side.wakes.map(|at| at.max(side.asleep_until)));
        let jobs = self.jobs.as_ref().and_then(Jobs::poll_timeout);
        let next = [self.link.poll_timeout(), near, far, jobs].into_iter().flatten().min()?;
        // If nothing else happens, a change of address has no effect.
        let next = self.rebinding.next.map_or(next, |(_, at)| at.min(next));
        Some(self.turns.map_or(next, |turn| Time(next.0.next_multiple_of(turn.as_nanos() as u64))))
    }

    /// Handles everything that happens at `now`.
    fn step(&mut self, application: &mut dyn Application) {
        if let Some((rebinding, _)) = self.rebinding.next.filter(|&(_, at)| at <= self.now) {
            self.rebind(rebinding.what);
            self.rebind_every(Some(rebinding));
        }
        for end in [End::Near, End::Far] {
            if self.turns.is_some() {
                self.settle(end, application);
            }
            let mut touched = self.deliver(end);
            touched |= self.take_results(end);
            let (now, local) = (self.now, self.local(end));
            let side = self.side(end);
            let woken = side.wakes.is_some_and(|at| at.max(side.asleep_until) <= now);
            if woken {
                side.endpoint.handle_timeout(local);
                self.counted.wakes += 1;
                touched = true;
            }
            if touched {
                self.settle(end, application);
            }
            let own = self.side(end).endpoint.poll_timeout();
            self.counted.overdue += u64::from(woken && own.is_some_and(|(at, _)| at <= local));
        }
    }

    /// Hands over what the link has delivered to `end` by now.
    fn deliver(&mut self, end: End) -> bool {
        let now = self.now;
        let mut any = false;
        loop {
            let near = self.near.address;
            let (link, side) = match end {
                End::Near => (&mut self.link.back, &mut self.near),
                End::Far => (&mut self.link.forward, &mut self.far),
            };
            let Some(delivery) = link.poll_delivery(now) else { return any };
            let (at, Parcel { from, to, ecn, mut bytes }) = (delivery.at, delivery.payload);
            let ecn = ecn.map(|own| if delivery.marked { Ecn::Ce } else { own });
            if to != side.address || now < side.asleep_until {
                self.spare.push(bytes);
                continue;
            }
            if let Some(corruption) = delivery.corruption {
                corruption.apply(&mut bytes);
            }
            self.copying.show(at, end, &Captured { from, to, ecn, datagram: &bytes });
            if from == near {
                self.exchanged.received += bytes.len() as u64;
            }
            let mut hand = |from, datagram: &mut [u8]| {
                match end {
                    End::Near => self.ledger.on_delivered(to),
                    End::Far => self.ledger.on_received(from, datagram.len()),
                }
                let at = side.clock.local(at);
                side.endpoint.handle_datagram(Received { at, from, to: None, ecn, datagram });
            };
            let thief = self.copying.thief.filter(|_| end == End::Far);
            // A bit of the tag is as random as a coin.
            let first = bytes.last().is_some_and(|byte| byte & 1 == 1);
            if let Some(thief) = thief.filter(|_| first) {
                hand(thief, &mut bytes.clone());
            }
            for _ in 1..self.copying.copies {
                hand(from, &mut bytes.clone());
            }
            if let Some(thief) = thief.filter(|_| !first) {
                hand(from, &mut bytes.clone());
                hand(thief, &mut bytes);
            } else {
                hand(from, &mut bytes);
            }
            self.spare.push(bytes);
            any = true;
        }
    }

    /// Hands over the results of jobs that are due.
    fn take_results(&mut self, end: End) -> bool {
        let (now, mut any) = (self.now, false);
        while let Some((handle, done)) = self.jobs.as_mut().and_then(|jobs| jobs.poll(now, end)) {
            let local = self.local(end);
            self.side(end).endpoint.handle_job(local, handle, done);
            any = true;
        }
        any
    }

    /// Takes the jobs of one end. Returns whether a result is available already.
    fn take_jobs(&mut self, end: End) -> bool {
        let (now, mut any) = (self.now, false);
        while let Some((handle, job)) = self.side(end).endpoint.poll_job() {
            let done = job.run();
            match &mut self.jobs {
                Some(jobs) => jobs.hold(now, (end, handle, done)),
                None => {
                    let local = self.local(end);
                    self.side(end).endpoint.handle_job(local, handle, done);
                    any = true;
                }
            }
        }
        any
    }

    /// Drains one end as the driving contract requires: datagrams, jobs, then events, until none are left;
    /// then its timer.
    fn settle(&mut self, end: End, application: &mut dyn Application) {
        let now = self.now;
        let side = self.side(end);
        application.run(now, end, &mut side.endpoint, None);
        loop {
            self.transmit(end);
            if self.take_jobs(end) {
                continue;
            }
            let side = self.side(end);
            let Some(event) = side.endpoint.poll_event() else { break };
            application.run(now, end, &mut side.endpoint, Some(event));
        }
        let side = self.side(end);
        let own = side.endpoint.poll_timeout().map(|(at, _)| side.clock.moment(at));
        side.wakes = [own, application.poll_timeout(end)].into_iter().flatten().min();
    }

    fn transmit(&mut self, end: End) {
        loop {
            let (link, side) = match end {
                End::Near => (&mut self.link.forward, &mut self.near),
                End::Far => (&mut self.link.back, &mut self.far),
            };
            let now = side.clock.local(self.now);
            let Some(transmit) = side.endpoint.poll_transmit(now, 1, &mut self.buffer) else { return };
            if end == End::Far {
                self.ledger.on_sent(transmit.destination, transmit.len);
            }
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(&self.buffer[..transmit.len]);
            self.counted.datagrams += 1;
            self.counted.fingerprint = digest(self.counted.fingerprint, self.now, end, &bytes);
            let (from, to) = (side.address, transmit.destination);
            if to == self.near.address {
                self.exchanged.sent += transmit.len as u64;
            }
            self.copying.show(self.now, end, &Captured { from, to, ecn: transmit.ecn, datagram: &bytes });
            let parcel = Parcel { from, to, ecn: transmit.ecn, bytes };
            link.send_from(self.now, transmit.len, transmit.ecn.is_some(), parcel);
        }
    }
}

/// Adds a datagram to the hash of a run. Its tag, the last bytes, depends on every bit of it.
fn digest(before: u64, now: Time, end: End, datagram: &[u8]) -> u64 {
    let tag = datagram.last_chunk().map_or(0, |tag| u64::from_le_bytes(*tag));
    [now.0, end as u64, datagram.len() as u64, tag]
        .into_iter()
        .fold(before, |hash, value| (hash.rotate_left(5) ^ value).wrapping_mul(SplitMix64::STEP))
}
