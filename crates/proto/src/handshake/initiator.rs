//! The side that connects: it sends HELLOs until a valid REPLY arrives.
//!
//! The endpoint drives it: call `poll_transmit` until it returns nothing, wait for `poll_timeout`, and pass
//! in every REPLY addressed to `source`. All HELLOs are the same bytes, except for mac2 once a COOKIE came.
//! An invalid REPLY, whatever is wrong with it, changes nothing: the next REPLY can still succeed.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use snow::HandshakeState;
use zeroize::Zeroizing;

use super::flights::Flights;
use super::noise::{self, Role};
use super::parameters::{Grease, HelloPayload, Offer, ParameterError, Parameters, ReplyPayload};
use super::{Accepted, Keys, Session, cookie};
use crate::Time;
use crate::crypto::{KeyLog, MacKey, Provider, PublicKey, Sealer};
use crate::wire::{
    ConnectionId, Datagram, HELLO_LEN, LONG_HEADER_LEN, LongHeader, LongKind, LongRepr, MAC_LEN, REPLY_MAX, Suite,
    Writer,
};

/// Maximum length of the Noise message in a HELLO.
const NOISE_MAX: usize = HELLO_LEN - LONG_HEADER_LEN - 2 * MAC_LEN;

/// Why a REPLY made no session. The handshake continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// Not an answer to this HELLO: another packet type, or another id, authentication or suite.
    #[error("the packet is no answer to this hello")]
    NotForUs,
    /// mac1 or the tag of a COOKIE is wrong. Its sender does not know the secret, or not the HELLO.
    #[error("the answer was made without the secret or the key")]
    Mac,
    /// The Noise message does not open.
    #[error("the reply's noise message does not open")]
    Noise,
    /// The responder's parameters are invalid.
    #[error("the reply's {0}")]
    Parameters(ParameterError),
    /// The responder chose an AEAD that was not offered, or its sealed source id differs from the one in the
    /// header.
    #[error("the reply's sealed part contradicts its header or the offer")]
    Binding,
    /// The handshake already made a session, and this is the second copy.
    #[error("the handshake is over")]
    Finished,
}

/// One handshake on the side that connects.
pub struct Initiator {
    keys: Keys,
    mac: MacKey,
    provider: Arc<dyn Provider>,
    source: ConnectionId,
    suite: Suite,
    offer: Offer,
    payload: Vec<u8>,
    /// Seed of the Noise state, from which the state can be rebuilt.
    seed: Zeroizing<[u8; 32]>,
    noise: HandshakeState,
    hello: [u8; HELLO_LEN],
    flights: Flights,
    finished: bool,
    known: bool,
    key_log: Option<Arc<dyn KeyLog>>,
}

impl Initiator {
    /// Prepares the HELLO, due at `now`. `source` is the connection id that the responder will use for us.
    /// `seed` is 32 random bytes for this handshake only. Values of `parameters` outside their range are
    /// clamped to it.
    pub fn new(
        keys: impl Into<Keys>,
        source: ConnectionId,
        parameters: &Parameters,
        provider: Arc<dyn Provider>,
        seed: [u8; 32],
        now: Time,
    ) -> Self {
        Self::build(keys.into(), source, None, parameters, provider, seed, now)
    }

    /// Like [`Self::new`], but also asks the responder whether it still has the connection `connection`.
    /// After the REPLY, [`Self::found_connection`] returns the answer.
    pub fn asking_after(
        connection: ConnectionId,
        keys: impl Into<Keys>,
        source: ConnectionId,
        parameters: &Parameters,
        provider: Arc<dyn Provider>,
        seed: [u8; 32],
        now: Time,
    ) -> Self {
        Self::build(keys.into(), source, Some(connection), parameters, provider, seed, now)
    }

    fn build(
        keys: Keys,
        source: ConnectionId,
        connection: Option<ConnectionId>,
        parameters: &Parameters,
        provider: Arc<dyn Provider>,
        seed: [u8; 32],
        now: Time,
    ) -> Self {
        let mut rng = ChaCha20Rng::from_seed(seed);
        let offer = Offer::new(provider.aes_hardware());
        let suite = if provider.aes_hardware() { Suite::AesGcmSha256 } else { Suite::ChaChaPolyBlake2s };
        let mut grease: Grease = [0; _];
        rng.fill_bytes(&mut grease);
        let overhead = keys.hello_overhead();
        let mut payload = [0; NOISE_MAX];
        let mut w = Writer::new(&mut payload[overhead..]);
        HelloPayload::emit(parameters, offer, &grease, &mut w).expect("the largest parameters fit a HELLO");
        let payload = w.written().to_vec();

        let mut destination = ConnectionId([0; 8]);
        rng.fill_bytes(&mut destination.0);
        let destination = connection.unwrap_or(destination);
        let noise_len = payload.len() + overhead;
        let header = LongRepr {
            kind: LongKind::Hello,
            grease: rng.next_u32() as u8,
            destination,
            source,
            auth: keys.auth(),
            suite,
            noise_len: noise_len as u16,
        };
        let mut hello = [0; HELLO_LEN];
        header.emit(&mut Writer::new(&mut hello)).expect("a HELLO has room for its header");
        let mut noise_seed = Zeroizing::new([0; 32]);
        rng.fill_bytes(noise_seed.as_mut());
        let (clear, rest) = hello.split_at_mut(LONG_HEADER_LEN);
        let noise = write_hello(&provider, suite, &keys, clear, &noise_seed, &payload, &mut rest[..noise_len]);

        let mac = keys.mac();
        let (authenticated, macs) = hello.split_at_mut(HELLO_LEN - 2 * MAC_LEN);
        macs[..MAC_LEN].copy_from_slice(&mac.tag(authenticated));
        Self {
            keys,
            mac,
            provider,
            source,
            suite,
            offer,
            payload,
            seed: noise_seed,
            noise,
            hello,
            flights: Flights::new(rng, now),
            finished: false,
            known: false,
            key_log: None,
        }
    }

    /// Reports the keys of the session to `log`, if there is one.
    #[must_use]
    pub(crate) fn log_keys(mut self, log: Option<Arc<dyn KeyLog>>) -> Self {
        self.key_log = log;
        self
    }

    /// Sets the time from construction after which the handshake gives up. The default is 30 s.
    #[must_use]
    pub const fn give_up_after(mut self, duration: Duration) -> Self {
        self.flights.give_up = duration;
        self
    }

    /// The connection id that the responder uses for us. REPLYs to this id belong to
    /// [`Initiator::handle_reply`].
    pub const fn source(&self) -> ConnectionId {
        self.source
    }

    /// Writes the HELLO into `out` if one is due, and returns its length, [`HELLO_LEN`]. If `out` is shorter,
    /// the HELLO stays due.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..HELLO_LEN)?;
        if self.finished || !self.flights.take(now) {
            return None;
        }
        out.copy_from_slice(&self.hello);
        Some(HELLO_LEN)
    }

    /// Send time of the HELLO if only the first flight was sent. After a second flight, a REPLY may belong to
    /// either one.
    pub(crate) fn sent_once(&self) -> Option<Time> {
        self.flights.left_once()
    }

    /// Time at which the next HELLO is due or the handshake expires; `None` when it is over.
    pub fn poll_timeout(&self) -> Option<Time> {
        (!self.finished).then(|| self.flights.next())
    }

    /// Whether no REPLY came in time. Either the host, port or secret is wrong, or no packet gets through.
    pub fn expired(&self, now: Time) -> bool {
        !self.finished && now >= self.flights.deadline()
    }

    /// The current HELLO, for a caller that schedules its own flights.
    pub(crate) const fn hello(&self) -> &[u8; HELLO_LEN] {
        &self.hello
    }

    /// Whether the responder has the connection that the HELLO asked about. Valid after a REPLY.
    pub const fn found_connection(&self) -> bool {
        self.known
    }

    /// The peer's public key, with authentication `key`.
    fn peer_key(&self) -> Option<PublicKey> {
        match &self.keys {
            Keys::Psk(_) => None,
            Keys::Key { listener, .. } => Some(*listener),
        }
    }

    /// Takes a COOKIE addressed to `source`. The HELLO is then sent again with it. Only the first COOKIE per
    /// flight sends it at once, so that copies of a COOKIE cause no packets.
    pub fn handle_cookie(&mut self, now: Time, datagram: &[u8]) -> Result<(), HandshakeError> {
        if self.finished {
            return Err(HandshakeError::Finished);
        }
        let packet = self.answer_of_kind(LongKind::Cookie, datagram)?;
        let (bytes, mac2) = self.hello.split_at_mut(HELLO_LEN - MAC_LEN);
        let mac1 = bytes.last_chunk().expect("a HELLO is longer than mac1");
        let cookie = cookie::open(&packet, &self.mac, mac1).ok_or(HandshakeError::Mac)?;
        mac2.copy_from_slice(&cookie.tag(bytes));
        self.flights.hurry(now);
        Ok(())
    }

    fn answer_of_kind<'a>(&self, kind: LongKind, datagram: &'a [u8]) -> Result<LongHeader<'a>, HandshakeError> {
        let Ok(Datagram::Long(answer)) = Datagram::parse(datagram) else { return Err(HandshakeError::NotForUs) };
        let ours = answer.destination == self.source
            && answer.auth == self.keys.auth()
            && answer.suite == self.suite
            && answer.kind == kind;
        if ours { Ok(answer) } else { Err(HandshakeError::NotForUs) }
    }

    /// Takes one datagram addressed to `source`.
    pub fn handle_reply(&mut self, datagram: &[u8]) -> Result<Session, HandshakeError> {
        if self.finished {
            return Err(HandshakeError::Finished);
        }
        let reply = self.answer_of_kind(LongKind::Reply, datagram)?;
        if !self.mac.verify(reply.authenticated, &reply.mac1) {
            return Err(HandshakeError::Mac);
        }
        let mut payload = [0; REPLY_MAX];
        // A failed read leaves the state unchanged.
        let len = self.noise.read_message(reply.noise, &mut payload).map_err(|_| HandshakeError::Noise)?;
        match self.judge(&reply, &payload[..len]) {
            Ok(said) => {
                (self.finished, self.known) = (true, said.known);
                let (ours, theirs) = self.noise.dangerously_get_raw_split();
                let accepted = Accepted {
                    ours: Zeroizing::new(ours),
                    theirs: Zeroizing::new(theirs),
                    aead: said.aead,
                    peer: said.parameters,
                    peer_key: self.peer_key(),
                    local: self.source,
                    remote: reply.source,
                };
                Ok(accepted.logged_session(&self.provider, Sealer::Initiator, self.key_log.as_ref()))
            }
            Err(error) => {
                self.rewind();
                Err(error)
            }
        }
    }

    fn judge(&self, reply: &LongHeader<'_>, payload: &[u8]) -> Result<ReplyPayload, HandshakeError> {
        let said = ReplyPayload::parse(payload).map_err(HandshakeError::Parameters)?;
        if said.source != reply.source || (said.aead != self.offer.first && !self.offer.both) {
            return Err(HandshakeError::Binding);
        }
        Ok(said)
    }

    /// Rebuilds the Noise state after the HELLO from the same seed.
    fn rewind(&mut self) {
        let mut again = [0; HELLO_LEN];
        let (clear, _) = self.hello.split_at(LONG_HEADER_LEN);
        self.noise = write_hello(&self.provider, self.suite, &self.keys, clear, &self.seed, &self.payload, &mut again);
    }
}

/// Writes the Noise message of a HELLO. Returns the state that waits for the REPLY.
fn write_hello(
    provider: &Arc<dyn Provider>,
    suite: Suite,
    keys: &Keys,
    clear: &[u8],
    seed: &[u8; 32],
    payload: &[u8],
    out: &mut [u8],
) -> HandshakeState {
    let mut noise = noise::state(provider, Role::Initiator, suite, keys, clear, seed);
    noise.write_message(payload, out).expect("the message has room for key, payload and tag");
    noise
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator")
            .field("source", &self.source)
            .field("flights", &self.flights)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "aws-lc-rs"))]
mod tests {
    use super::*;
    use crate::crypto::{Aead, AwsLc, Secret};
    use crate::handshake::noise::EPHEMERAL_AND_TAG;

    /// A REPLY with a valid mac1 and a valid Noise message that contains `payload`.
    fn reply(initiator: &Initiator, secret: &Secret, payload: &[u8], source: ConnectionId) -> Vec<u8> {
        let (clear, rest) = initiator.hello.split_at(LONG_HEADER_LEN);
        let mut noise =
            noise::state(&initiator.provider, Role::Responder, initiator.suite, &secret.into(), clear, &[9; 32]);
        let mut buffer = [0; HELLO_LEN];
        noise.read_message(&rest[..initiator.payload.len() + EPHEMERAL_AND_TAG], &mut buffer).unwrap();
        let noise_len = payload.len() + EPHEMERAL_AND_TAG;
        let header = LongRepr {
            kind: LongKind::Reply,
            grease: 0,
            destination: initiator.source,
            source,
            auth: initiator.keys.auth(),
            suite: initiator.suite,
            noise_len: noise_len as u16,
        };
        let mut reply = vec![0; LONG_HEADER_LEN + noise_len];
        header.emit(&mut Writer::new(&mut reply)).unwrap();
        noise.write_message(payload, &mut reply[LONG_HEADER_LEN..]).unwrap();
        let mac = initiator.mac.tag(&reply);
        reply.extend_from_slice(&mac);
        reply
    }

    /// Even a sender that knows the secret cannot end the handshake with an invalid REPLY.
    #[test]
    fn an_authentic_reply_with_wrong_contents_leaves_it_ready() {
        let secret = Secret::new([1; 32]);
        let local = ConnectionId([3; 8]);
        let source = ConnectionId([4; 8]);
        let mut initiator =
            Initiator::new(&secret, local, &Parameters::default(), Arc::new(AwsLc), [2; 32], Time::ZERO);
        let mut right = [0; 61];
        let mut w = Writer::new(&mut right);
        let says =
            ReplyPayload { parameters: Parameters::default(), aead: Aead::ChaCha20Poly1305, source, known: false };
        says.emit(&[0; 17], &mut w).unwrap();
        let right = w.written();
        let wrong = reply(&initiator, &secret, &[3, 1, 0], source);
        assert!(matches!(initiator.handle_reply(&wrong), Err(HandshakeError::Parameters(_))));
        let unbound = reply(&initiator, &secret, right, ConnectionId([5; 8]));
        assert_eq!(initiator.handle_reply(&unbound).err(), Some(HandshakeError::Binding));
        let good = reply(&initiator, &secret, right, source);
        let session = initiator.handle_reply(&good).unwrap();
        assert_eq!((session.remote, session.aead), (source, Aead::ChaCha20Poly1305));
    }

    /// A responder with the secret cannot make the session plain, or use a cipher that was not offered.
    #[test]
    fn no_reply_chooses_a_cipher_that_was_not_offered() {
        let (secret, source) = (Secret::new([1; 32]), ConnectionId([4; 8]));
        // Parameter 11, the source, and 7, the cipher.
        let bound = [&[11, 8], &source.0[..]].concat();
        let choices = (0..=255_u8).map(|chosen| vec![7, 1, chosen]);
        let others = [vec![], vec![7, 0], vec![7, 2, 1, 2]];
        for both in [true, false] {
            let taken = choices.clone().chain(others.clone()).filter(|said| {
                let (provider, parameters) = (Arc::new(AwsLc), Parameters::default());
                let mut initiator =
                    Initiator::new(&secret, ConnectionId([3; 8]), &parameters, provider, [2; 32], Time::ZERO);
                initiator.offer = Offer { first: Aead::ChaCha20Poly1305, both };
                let answer = reply(&initiator, &secret, &[&said[..], &bound].concat(), source);
                initiator.handle_reply(&answer).is_ok()
            });
            let taken: Vec<_> = taken.map(|said| said[2]).collect();
            assert_eq!(taken, if both { vec![1, 2] } else { vec![2] });
        }
    }
}
