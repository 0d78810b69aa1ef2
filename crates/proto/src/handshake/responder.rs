//! The side that listens: answers every right HELLO once, with a REPLY sent twice.
//!
//! The endpoint hands in each HELLO with the address it came from, and drains `poll_transmit`. A HELLO seen before gets
//! the cached REPLY, not a second session. What bounds it: `MAX_CACHED` entries of at most 150 bytes for 5 s each, each
//! with at most four copies waiting; and no address gets more than three bytes for one (checked per entry; a HELLO is as
//! long as its two copies).

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zeroize::Zeroizing;

use super::noise::{self, NOISE_OVERHEAD, Role};
use super::parameters::{Grease, HelloPayload, Parameters, ReplyPayload};
use super::{
    AMPLIFICATION, COPIES, COPY_GAP, EARLY_REPLIES, FIRST_SECOND, MAX_CACHED, MAX_WAITING, REPLY_CACHED, Session,
};
use crate::Time;
use crate::crypto::{MacKey, Provider, Secret};
use crate::wire::{
    ConnectionId, Datagram, HELLO_LEN, LONG_HEADER_LEN, LongHeader, LongKind, LongRepr, MAC_LEN, REPLY_MAX, Writer,
};

/// Room for parameters in a REPLY: 61 bytes.
const PAYLOAD_MAX: usize = REPLY_MAX - LONG_HEADER_LEN - NOISE_OVERHEAD - MAC_LEN;

/// A HELLO is known by its mac1, which is over all of it.
type HelloHash = [u8; MAC_LEN];

/// A HELLO that was right and new.
#[derive(Debug)]
pub struct Accepted {
    /// Half open: live once the first packet opens under it.
    pub session: Session,
}

/// What became of the datagrams handed to [`Responder::handle_hello`], and what was sent. `received` is the sum of the
/// seven after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderStats {
    /// Datagrams handed in.
    pub received: u64,
    /// No HELLO of this version.
    pub malformed: u64,
    /// mac1 was wrong: no secret, no answer.
    pub strangers: u64,
    /// Seen before; the cached REPLY goes out again.
    pub repeated: u64,
    /// Right, but `MAX_CACHED` handshakes were half open.
    pub full: u64,
    /// mac1 was right, the Noise message was not.
    pub noise: u64,
    /// The Noise message was right, its parameters were not.
    pub parameters: u64,
    /// Became a session.
    pub accepted: u64,
    /// REPLYs sent, copies included.
    pub replies: u64,
    /// REPLYs not sent because the address had sent too little.
    pub capped: u64,
}

/// Why a HELLO made no session.
enum Dropped {
    Noise,
    Parameters,
}

struct Cached {
    reply: Box<[u8]>,
    to: SocketAddr,
    created: Time,
    /// Copies queued so far, and those of them not sent yet.
    queued: u32,
    waiting: u32,
    /// Bytes from and to the address `to`.
    received: usize,
    sent: usize,
}

/// All handshakes of one listener.
pub struct Responder {
    secret: Secret,
    mac: MacKey,
    provider: Arc<dyn Provider>,
    rng: ChaCha20Rng,
    cache: BTreeMap<HelloHash, Cached>,
    /// First copies, due at once, and second ones; both in order of time.
    first: VecDeque<(Time, HelloHash)>,
    second: VecDeque<(Time, HelloHash)>,
    expiries: VecDeque<(Time, HelloHash)>,
    stats: ResponderStats,
}

impl Responder {
    /// `seed`: 32 random bytes for this listener alone.
    pub fn new(secret: &Secret, provider: Arc<dyn Provider>, seed: [u8; 32]) -> Self {
        Self {
            secret: secret.clone(),
            mac: MacKey::new(secret),
            provider,
            rng: ChaCha20Rng::from_seed(seed),
            cache: BTreeMap::new(),
            first: VecDeque::new(),
            second: VecDeque::new(),
            expiries: VecDeque::new(),
            stats: ResponderStats::default(),
        }
    }

    /// Counters since construction.
    pub const fn stats(&self) -> &ResponderStats {
        &self.stats
    }

    /// Handshakes answered in the last 5 s.
    pub fn half_open(&self) -> usize {
        self.cache.len()
    }

    /// Takes a long packet that came `from` an address. `parameters` and `source` (what the initiator shall call us) are
    /// used only if a session comes of it. None: silence, or a HELLO seen before, whose REPLY goes out again.
    pub fn handle_hello(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
        parameters: &Parameters,
        source: ConnectionId,
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
        if !self.mac.verify(hello.authenticated, &hello.mac1) {
            self.stats.strangers += 1;
            return None;
        }
        if self.cache.contains_key(&hello.mac1) {
            self.stats.repeated += 1;
            self.repeat(now, from, hello.mac1);
            return None;
        }
        if self.cache.len() >= MAX_CACHED {
            self.stats.full += 1;
            return None;
        }
        match self.answer(&hello, parameters, source) {
            Ok((session, reply)) => {
                self.stats.accepted += 1;
                let cached =
                    Cached { reply, to: from, created: now, queued: 0, waiting: 0, received: HELLO_LEN, sent: 0 };
                self.cache.insert(hello.mac1, cached);
                self.expiries.push_back((now + REPLY_CACHED, hello.mac1));
                self.queue(now, hello.mac1);
                Some(Accepted { session })
            }
            Err(Dropped::Noise) => {
                self.stats.noise += 1;
                None
            }
            Err(Dropped::Parameters) => {
                self.stats.parameters += 1;
                None
            }
        }
    }

    /// A HELLO seen before is answered again.
    fn repeat(&mut self, now: Time, from: SocketAddr, hash: HelloHash) {
        let Some(cached) = self.cache.get_mut(&hash) else { return };
        if cached.to != from {
            // Replayed from elsewhere: neither the answer nor its budget may follow. An initiator whose address changed meanwhile starts anew.
            return;
        }
        cached.received += HELLO_LEN;
        self.queue(now, hash);
    }

    /// Queues two copies, unless enough wait already or were queued in the first second.
    fn queue(&mut self, now: Time, hash: HelloHash) {
        let Some(cached) = self.cache.get_mut(&hash) else { return };
        let early = now < cached.created + FIRST_SECOND && cached.queued + COPIES > EARLY_REPLIES;
        if early || cached.waiting + COPIES > MAX_WAITING {
            return;
        }
        cached.queued += COPIES;
        cached.waiting += COPIES;
        self.first.push_back((now, hash));
        self.second.push_back((now + COPY_GAP, hash));
    }

    /// Runs Noise over a HELLO whose mac1 is right.
    fn answer(
        &mut self,
        hello: &LongHeader<'_>,
        parameters: &Parameters,
        source: ConnectionId,
    ) -> Result<(Session, Box<[u8]>), Dropped> {
        let mut seed = Zeroizing::new([0; 32]);
        let mut grease: Grease = [0; _];
        self.rng.fill_bytes(seed.as_mut());
        self.rng.fill_bytes(&mut grease);
        let mut noise = noise::state(Role::Responder, hello.suite, &self.secret, hello.clear, &seed);
        let mut payload = [0; HELLO_LEN];
        let len = noise.read_message(hello.noise, &mut payload).map_err(|_| Dropped::Noise)?;
        let said = HelloPayload::parse(&payload[..len]).map_err(|_| Dropped::Parameters)?;
        let aead = said.offer.choose(self.provider.aes_hardware()).ok_or(Dropped::Parameters)?;

        let mut payload = [0; PAYLOAD_MAX];
        let mut w = Writer::new(&mut payload);
        let says = ReplyPayload { parameters: *parameters, aead, source };
        says.emit(&grease, &mut w).expect("the largest parameters fit a REPLY");
        let payload = w.written();
        let mut reply = [0; REPLY_MAX];
        let noise_len = payload.len() + NOISE_OVERHEAD;
        let header = LongRepr {
            kind: LongKind::Reply,
            grease: self.rng.next_u32() as u8,
            destination: hello.source,
            source,
            suite: hello.suite,
            noise_len: noise_len as u16,
        };
        header.emit(&mut Writer::new(&mut reply)).expect("a REPLY has room for its header");
        // Fails for an ephemeral key that gives no shared secret.
        noise.write_message(payload, &mut reply[LONG_HEADER_LEN..]).map_err(|_| Dropped::Noise)?;
        let end = LONG_HEADER_LEN + noise_len;
        let mac = self.mac.tag(&reply[..end]);
        reply[end..end + MAC_LEN].copy_from_slice(&mac);

        let (theirs, ours) = noise.dangerously_get_raw_split();
        let (theirs, ours) = (Zeroizing::new(theirs), Zeroizing::new(ours));
        let ids = (source, hello.source);
        let session = Session::new(&self.provider, aead, (&ours, &theirs), said.parameters, ids);
        Ok((session, reply[..end + MAC_LEN].into()))
    }

    /// Writes the next REPLY that is due into `out`; returns where it goes and its length. Nothing is lost if `out` has
    /// less than [`REPLY_MAX`] bytes.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<(SocketAddr, usize)> {
        let out = out.get_mut(..REPLY_MAX)?;
        loop {
            let hash = pop_due(&mut self.second, now).or_else(|| pop_due(&mut self.first, now))?;
            let Some(cached) = self.cache.get_mut(&hash) else { continue };
            cached.waiting = cached.waiting.saturating_sub(1);
            let len = cached.reply.len();
            if cached.sent + len > AMPLIFICATION * cached.received {
                self.stats.capped += 1;
                continue;
            }
            cached.sent += len;
            self.stats.replies += 1;
            out[..len].copy_from_slice(&cached.reply);
            return Some((cached.to, len));
        }
    }

    /// When a copy is due or an entry expires.
    pub fn poll_timeout(&self) -> Option<Time> {
        [&self.first, &self.second, &self.expiries]
            .into_iter()
            .filter_map(|queue| queue.front())
            .map(|(at, _)| *at)
            .min()
    }

    /// Forgets what has expired. Early calls are harmless.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(hash) = pop_due(&mut self.expiries, now) {
            self.cache.remove(&hash);
        }
    }
}

/// The first of a queue in order of time, if its time has come.
fn pop_due(queue: &mut VecDeque<(Time, HelloHash)>, now: Time) -> Option<HelloHash> {
    queue.front().filter(|(at, _)| *at <= now)?;
    queue.pop_front().map(|(_, hash)| hash)
}

impl core::fmt::Debug for Responder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Responder")
            .field("half_open", &self.cache.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
