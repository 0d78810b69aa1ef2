//! The side that listens: it makes one session per valid HELLO, and answers each copy of the HELLO with a
//! REPLY sent twice.
//!
//! The endpoint passes in each HELLO with its source address, and calls `poll_transmit` until it returns
//! nothing. A HELLO seen before gets the cached REPLY, not a second session. The limits apply to each source
//! address of a HELLO separately, so an attacker that copies a HELLO cannot use up the answers to the client.
//!
//! Memory is bounded by `MAX_CACHED` REPLYs of at most 150 bytes for 4 s each, with `MAX_SOURCES` addresses
//! each, and by `MAX_QUEUED` waiting copies. No address gets more bytes than it sent, because a HELLO is as
//! long as two REPLYs. Beyond [`FREE_HANDSHAKES`] per second the responder answers with a COOKIE, for which
//! it stores nothing.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zeroize::Zeroizing;

use super::cookie::{Cookies, Dice};
use super::noise::{self, EPHEMERAL_AND_TAG, Role};
use super::parameters::{Grease, HelloPayload, Parameters, ReplyPayload};
use super::prefixes::Prefixes;
use super::{
    Accepted, COPIES, COPY_GAP, Credentials, EARLY_REPLIES, FIRST_SECOND, FREE_HANDSHAKES, Keys, MAX_CACHED,
    MAX_COOKIES, MAX_QUEUED, MAX_SOURCES, MAX_UNAUTHORIZED, MAX_WAITING, REPLY_CACHED, Route,
};
use crate::Time;
use crate::counts::add_counts;
use crate::crypto::{MacKey, Provider, PublicKey};
use crate::wire::{
    COOKIE_LEN, ConnectionId, Datagram, HELLO_LEN, LONG_HEADER_LEN, LongHeader, LongKind, LongRepr, MAC_LEN, REPLY_MAX,
    Writer,
};

/// Maximum length of the parameters in a REPLY: 61 bytes.
const PAYLOAD_MAX: usize = REPLY_MAX - LONG_HEADER_LEN - EPHEMERAL_AND_TAG - MAC_LEN;

/// Identifies a HELLO by its mac1, which covers the whole HELLO.
type HelloHash = [u8; MAC_LEN];

// No address can get more bytes of REPLYs than it sent in HELLOs.
const _: () = assert!(COPIES as usize * REPLY_MAX <= HELLO_LEN);

/// Our part of a REPLY, used only if a HELLO is answered.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The parameters that we announce.
    pub parameters: Parameters,
    /// The connection id that the initiator will use for us.
    pub source: ConnectionId,
    /// Whether the destination id of the HELLO names one of our connections.
    pub known: bool,
}

/// A peer that proved to have a key that is not authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unauthorized {
    /// The peer's key.
    pub key: PublicKey,
    /// Source address of its HELLO. Anyone who saw that HELLO can have sent it again.
    pub from: SocketAddr,
}

/// Counts of the datagrams passed to [`Responder::handle_hello`] by result, and of the REPLYs. `received` is
/// the sum of the nine counts after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderStats {
    /// Datagrams passed in.
    pub received: u64,
    /// Not a HELLO of this version.
    pub malformed: u64,
    /// mac1 or the authentication was wrong. Such a sender gets no response.
    pub strangers: u64,
    /// Seen before. The cached REPLY was sent again.
    pub repeated: u64,
    /// Valid, but the responder was under load and the address was not proven. The answer was a COOKIE.
    pub unproven: u64,
    /// Valid and proven, but the responder was under load and the sender's network had made too many
    /// handshakes.
    pub limited: u64,
    /// mac1 was valid, but the Noise message was not.
    pub noise: u64,
    /// The Noise message was valid, but its parameters were not.
    pub parameters: u64,
    /// The Noise message was valid, but its key is not authorized.
    pub unauthorized: u64,
    /// Made a session.
    pub accepted: u64,
    /// REPLYs sent, copies included.
    pub replies: u64,
    /// Cached REPLYs removed early because `MAX_CACHED` others were newer.
    pub displaced: u64,
}

add_counts!(ResponderStats {
    received,
    malformed,
    strangers,
    repeated,
    unproven,
    limited,
    noise,
    parameters,
    unauthorized,
    accepted,
    replies,
    displaced,
});

/// Why a HELLO made no session.
enum Dropped {
    Noise,
    Parameters,
    Unauthorized(PublicKey),
}

struct Cached {
    reply: Box<[u8]>,
    /// The initiator's connection id for the session of this REPLY.
    session: ConnectionId,
    /// Source addresses of the HELLO, at most [`MAX_SOURCES`]. The one that was silent longest comes first.
    sources: Vec<Source>,
}

/// One source address of a HELLO.
struct Source {
    route: Route,
    /// Arrival time of the first copy.
    first: Time,
    /// Copies of the REPLY queued so far, and how many of them are not sent yet.
    queued: u32,
    waiting: u32,
}

/// A copy of a REPLY that waits to be sent.
struct Copy {
    due: Time,
    hash: HelloHash,
    to: Route,
}

/// Copies of REPLYs that wait to be sent: first copies, which are due at once, and second copies. Both are in
/// order of time.
#[derive(Default)]
struct Copies {
    first: VecDeque<Copy>,
    second: VecDeque<Copy>,
}

/// Start of the current second, and the unproven HELLOs that Noise processed in it.
struct Second {
    since: Time,
    begun: u32,
}

/// Sessions whose REPLYs are sent to a second address.
#[derive(Default)]
struct Spread {
    /// The session of which this was just done.
    last: Option<ConnectionId>,
    /// For sessions of the cache that other shards have: what is set when this is done.
    elsewhere: BTreeMap<ConnectionId, Arc<AtomicBool>>,
}

/// All handshakes of one listener.
pub struct Responder {
    credentials: Credentials,
    keys: Keys,
    mac: MacKey,
    provider: Arc<dyn Provider>,
    rng: ChaCha20Rng,
    cache: BTreeMap<HelloHash, Cached>,
    copies: Copies,
    expiries: VecDeque<(Time, HelloHash)>,
    cookies: Cookies,
    prefixes: Prefixes,
    /// COOKIEs that wait to be sent.
    cookies_due: VecDeque<(Route, [u8; COOKIE_LEN])>,
    second: Second,
    /// Peers that were refused because of their keys, and not reported yet.
    refused: VecDeque<Unauthorized>,
    spread: Spread,
    stats: ResponderStats,
}

impl Responder {
    /// A responder. `seed` is 32 random bytes for this listener only.
    pub fn new(credentials: impl Into<Credentials>, provider: Arc<dyn Provider>, seed: [u8; 32]) -> Self {
        let credentials = credentials.into();
        let keys = credentials.to_listen();
        // Cookies use their own random stream, so that they do not change other random values.
        let mut cookie_seed = [0; 32];
        let mut rng = ChaCha20Rng::from_seed(seed);
        rng.set_stream(1);
        rng.fill_bytes(&mut cookie_seed);
        let mut prefix_seed = [0; 32];
        rng.fill_bytes(&mut prefix_seed);
        Self {
            credentials,
            mac: keys.mac(),
            keys,
            provider,
            rng: ChaCha20Rng::from_seed(seed),
            cache: BTreeMap::new(),
            copies: Copies::default(),
            expiries: VecDeque::new(),
            cookies: Cookies::new(cookie_seed),
            prefixes: Prefixes::new(prefix_seed),
            cookies_due: VecDeque::new(),
            second: Second { since: Time::ZERO, begun: 0 },
            refused: VecDeque::new(),
            spread: Spread::default(),
            stats: ResponderStats::default(),
        }
    }

    /// From now on the responder accepts these keys and no others. No effect with authentication `psk`.
    pub(crate) fn authorize(&mut self, keys: Arc<BTreeSet<PublicKey>>) {
        self.credentials.authorize(keys);
    }

    /// The keys of its handshakes.
    pub(crate) const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Counters since construction.
    pub const fn stats(&self) -> &ResponderStats {
        &self.stats
    }

    /// Handshakes answered in the last 4 s.
    pub fn half_open(&self) -> usize {
        self.cache.len()
    }

    /// Takes a long packet that came over a route. Returns `None` if the packet made no session: it got no
    /// response, a COOKIE, or the cached REPLY of a HELLO seen before.
    pub fn handle_hello(
        &mut self,
        now: Time,
        route: impl Into<Route>,
        datagram: &[u8],
        terms: &Terms,
    ) -> Option<Accepted> {
        self.handle_hello_on(now, route.into(), datagram, || (*terms, None))
    }

    /// The same as [`Self::handle_hello`], with terms that are asked for only if the HELLO makes a session,
    /// and with what is set when its REPLY is sent to a second address.
    pub(crate) fn handle_hello_on(
        &mut self,
        now: Time,
        route: Route,
        datagram: &[u8],
        terms: impl FnOnce() -> (Terms, Option<Arc<AtomicBool>>),
    ) -> Option<Accepted> {
        self.handle_timeout(now);
        self.stats.received += 1;
        let hello = match Datagram::parse(datagram) {
            Ok(Datagram::Long(hello)) if hello.kind == LongKind::Hello => hello,
            _ => {
                self.stats.malformed += 1;
                return None;
            }
        };
        if hello.auth != self.keys.auth() || !self.mac.verify(hello.authenticated, &hello.mac1) {
            self.stats.strangers += 1;
            return None;
        }
        if self.cache.contains_key(&hello.mac1) {
            self.stats.repeated += 1;
            self.queue(now, route, hello.mac1);
            return None;
        }
        if !self.is_free(now) {
            if !self.cookies.is_proof(now, route.remote, &hello) {
                self.stats.unproven += 1;
                self.demand_proof(now, route, &hello);
                return None;
            }
            if !self.prefixes.admit(now, route.remote) {
                self.stats.limited += 1;
                return None;
            }
        }
        let mut spread = None;
        let terms = || {
            let (terms, elsewhere) = terms();
            spread = elsewhere;
            terms
        };
        match self.answer(&hello, terms) {
            Ok((accepted, reply)) => {
                self.stats.accepted += 1;
                let session = accepted.local();
                self.keep(now, route, hello.mac1, Cached { reply, session, sources: Vec::new() });
                self.spread.elsewhere.extend(spread.map(|spread| (session, spread)));
                return Some(accepted);
            }
            Err(Dropped::Noise) => self.stats.noise += 1,
            Err(Dropped::Parameters) => self.stats.parameters += 1,
            Err(Dropped::Unauthorized(key)) => {
                self.stats.unauthorized += 1;
                if self.refused.len() < MAX_UNAUTHORIZED {
                    self.refused.push_back(Unauthorized { key, from: route.remote });
                }
            }
        }
        None
    }

    /// Whether a HELLO may be processed without a proof of its address, because there is no load.
    fn is_free(&mut self, now: Time) -> bool {
        if now >= self.second.since + FIRST_SECOND {
            (self.second.since, self.second.begun) = (now, 0);
        }
        let free = self.second.begun < FREE_HANDSHAKES;
        self.second.begun += u32::from(free);
        free
    }

    fn demand_proof(&mut self, now: Time, route: Route, hello: &LongHeader<'_>) {
        if self.cookies_due.len() >= MAX_COOKIES {
            return;
        }
        let mut dice = Dice { nonce: [0; _], source: ConnectionId([0; 8]), grease: self.rng.next_u32() as u8 };
        self.rng.fill_bytes(&mut dice.nonce);
        self.rng.fill_bytes(&mut dice.source.0);
        let packet = self.cookies.answer(now, route.remote, hello, &self.mac, &dice);
        self.cookies_due.push_back((route, packet));
    }

    /// Stores a REPLY for copies of its HELLO. If there are too many, it replaces the oldest. Under load all
    /// of them have proven addresses, and the oldest had the most time.
    fn keep(&mut self, now: Time, to: Route, hash: HelloHash, cached: Cached) {
        while self.cache.len() >= MAX_CACHED
            && let Some((_, oldest)) = self.expiries.pop_front()
        {
            self.forget(&oldest);
            self.stats.displaced += 1;
        }
        self.cache.insert(hash, cached);
        self.expiries.push_back((now + REPLY_CACHED, hash));
        self.queue(now, to, hash);
    }

    fn forget(&mut self, hash: &HelloHash) {
        if let Some(cached) = self.cache.remove(hash) {
            self.spread.elsewhere.remove(&cached.session);
        }
    }

    /// Queues two copies of a REPLY to the source address of its HELLO. Does nothing if enough copies wait
    /// for that address, or were queued in its first second.
    fn queue(&mut self, now: Time, to: Route, hash: HelloHash) {
        let Some(cached) = self.cache.get_mut(&hash) else { return };
        if cached.sources.iter().any(|source| source.route.remote != to.remote) {
            self.spread.last = Some(cached.session);
            if let Some(spread) = self.spread.elsewhere.get(&cached.session) {
                spread.store(true, Ordering::Release);
            }
        }
        let source = cached.source(now, to);
        let early = now < source.first + FIRST_SECOND && source.queued + COPIES > EARLY_REPLIES;
        if early || source.waiting + COPIES > MAX_WAITING || self.copies.first.len() >= MAX_QUEUED {
            return;
        }
        // A flood of copies can take the second REPLY from other peers, but not the first.
        let copies = if self.copies.second.len() < MAX_QUEUED { COPIES } else { 1 };
        source.queued += copies;
        source.waiting += copies;
        self.copies.first.push_back(Copy { due: now, hash, to });
        if copies == COPIES {
            self.copies.second.push_back(Copy { due: now + COPY_GAP, hash, to });
        }
    }

    /// The session whose REPLY was just sent to more than one address. A peer that uses it has not proven its
    /// address. Returned once per HELLO passed in.
    pub(crate) fn take_spread(&mut self) -> Option<ConnectionId> {
        self.spread.last.take()
    }

    /// Runs Noise over a HELLO with a valid mac1.
    fn answer(
        &mut self,
        hello: &LongHeader<'_>,
        terms: impl FnOnce() -> Terms,
    ) -> Result<(Accepted, Box<[u8]>), Dropped> {
        let mut seed = Zeroizing::new([0; 32]);
        let mut grease: Grease = [0; _];
        self.rng.fill_bytes(seed.as_mut());
        self.rng.fill_bytes(&mut grease);
        let mut noise = noise::state(&self.provider, Role::Responder, hello.suite, &self.keys, hello.clear, &seed);
        let mut payload = [0; HELLO_LEN];
        let len = noise.read_message(hello.noise, &mut payload).map_err(|_| Dropped::Noise)?;
        let peer_key = noise.get_remote_static().and_then(|key| key.try_into().ok()).map(PublicKey::new);
        if let Some(key) = peer_key.filter(|key| !self.credentials.authorizes(key)) {
            return Err(Dropped::Unauthorized(key));
        }
        let said = HelloPayload::parse(&payload[..len]).map_err(|_| Dropped::Parameters)?;
        let aead = said.offer.choose(self.provider.aes_hardware()).ok_or(Dropped::Parameters)?;

        let Terms { parameters, source, known } = terms();
        let mut payload = [0; PAYLOAD_MAX];
        let mut w = Writer::new(&mut payload);
        let says = ReplyPayload { parameters, aead, source, known };
        says.emit(&grease, &mut w).expect("the largest parameters fit a REPLY");
        let payload = w.written();
        let mut reply = [0; REPLY_MAX];
        let noise_len = payload.len() + EPHEMERAL_AND_TAG;
        let header = LongRepr {
            kind: LongKind::Reply,
            grease: self.rng.next_u32() as u8,
            destination: hello.source,
            source,
            auth: hello.auth,
            suite: hello.suite,
            noise_len: noise_len as u16,
        };
        header.emit(&mut Writer::new(&mut reply)).expect("a REPLY has room for its header");
        // This fails for an ephemeral key that gives no shared secret.
        noise.write_message(payload, &mut reply[LONG_HEADER_LEN..]).map_err(|_| Dropped::Noise)?;
        let end = LONG_HEADER_LEN + noise_len;
        let mac = self.mac.tag(&reply[..end]);
        reply[end..end + MAC_LEN].copy_from_slice(&mac);

        let (theirs, ours) = noise.dangerously_get_raw_split();
        let accepted = Accepted {
            ours: Zeroizing::new(ours),
            theirs: Zeroizing::new(theirs),
            aead,
            peer: said.parameters,
            peer_key,
            local: source,
            remote: hello.source,
        };
        Ok((accepted, reply[..end + MAC_LEN].into()))
    }

    /// The next peer that was refused because of its key.
    pub fn poll_unauthorized(&mut self) -> Option<Unauthorized> {
        self.refused.pop_front()
    }

    /// Writes the next due COOKIE or REPLY into `out`, and returns its route and its length. If `out` has
    /// less than [`REPLY_MAX`] bytes, the packet stays due.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<(Route, usize)> {
        let out = out.get_mut(..REPLY_MAX)?;
        if let Some((to, packet)) = self.cookies_due.pop_front() {
            out[..COOKIE_LEN].copy_from_slice(&packet);
            return Some((to, COOKIE_LEN));
        }
        loop {
            let copy = pop_due(&mut self.copies.second, now).or_else(|| pop_due(&mut self.copies.first, now))?;
            let Some(cached) = self.cache.get_mut(&copy.hash) else { continue };
            if let Some(source) = cached.sources.iter_mut().find(|source| source.route == copy.to) {
                source.waiting = source.waiting.saturating_sub(1);
            }
            let len = cached.reply.len();
            self.stats.replies += 1;
            out[..len].copy_from_slice(&cached.reply);
            return Some((copy.to, len));
        }
    }

    /// Time at which a copy is due or an entry expires.
    pub fn poll_timeout(&self) -> Option<Time> {
        let copies = [&self.copies.first, &self.copies.second]
            .into_iter()
            .filter_map(|queue| queue.front())
            .map(|copy| copy.due);
        copies.chain(self.expiries.front().map(|(at, _)| *at)).min()
    }

    /// Removes what has expired. Early calls are harmless.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(&(at, hash)) = self.expiries.front()
            && at <= now
        {
            self.expiries.pop_front();
            self.forget(&hash);
        }
    }
}

impl Cached {
    /// The entry of a source address. A new entry replaces the one that was silent longest if there are too
    /// many.
    fn source(&mut self, now: Time, route: Route) -> &mut Source {
        let known = self.sources.iter().position(|source| source.route == route);
        let silent = known.is_none() && self.sources.len() >= MAX_SOURCES;
        let place = known.or(silent.then_some(0));
        let before = place.map(|place| self.sources.remove(place)).filter(|_| known.is_some());
        if before.is_none() {
            // Nearly all HELLOs come from one address.
            self.sources.reserve_exact(1);
        }
        self.sources.push(before.unwrap_or(Source { route, first: now, queued: 0, waiting: 0 }));
        let newest = self.sources.len() - 1;
        &mut self.sources[newest]
    }
}

/// Returns the first copy of a queue if it is due.
fn pop_due(queue: &mut VecDeque<Copy>, now: Time) -> Option<Copy> {
    queue.front().filter(|copy| copy.due <= now)?;
    queue.pop_front()
}

impl core::fmt::Debug for Responder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Responder")
            .field("half_open", &self.cache.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
