//! Addresses from which packets of the peer came and that are not validated yet (RFC 9000 sections 8.2 and
//! 9.3).
//!
//! The responder's connection calls this table for every authentic packet. An address becomes a candidate
//! when the packet with the highest number so far comes from it. The responder challenges the candidate. It
//! moves to that address once the echo came from there while the highest number still came from there too. An
//! attacker that copies packets from its own address therefore gets only a few small packets: it cannot echo,
//! and the next packet on the direct route restores the peer's address. The address in use is challenged too,
//! so that such a packet comes even from a peer with nothing to send (section 9.3.3).
//!
//! A new connection whose first packet did not prove its address has no address in use. That address is a
//! candidate like any other, and only challenges and echoes are sent until a candidate has echoed. Invariant:
//! a candidate never gets more than [`AMPLIFICATION`] times the bytes that came from it.

use core::net::SocketAddr;
use core::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::Time;

/// Maximum number of candidates. A further one replaces the candidate that was silent longest.
const MAX_CANDIDATES: usize = 4;
/// Minimum time between two challenges, over all candidates together.
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes that may be sent to a candidate per byte received from it (RFC 9000 section 8.1).
const AMPLIFICATION: u64 = 3;
/// A candidate that is silent for this many probe timeouts is removed. A timeout counts as at least
/// [`LEAST_TIMEOUT`].
const PATIENCE_TIMEOUTS: u32 = 3;
/// Minimum of that timeout: the probe timeout of a path without measurements (RFC 9000 section 8.2.4).
const LEAST_TIMEOUT: Duration = Duration::from_millis(999);

/// Content of a challenge and of its echo.
pub(crate) type Token = [u8; 8];

#[derive(Debug)]
struct Candidate {
    address: SocketAddr,
    token: Token,
    /// The peer's own challenge from there, which must be echoed.
    echo: Option<Token>,
    received: u64,
    sent: u64,
    heard: Time,
    /// Time of the last challenge, and the number of challenges.
    challenged: Time,
    challenges: u32,
}

impl Candidate {
    fn may_send(&self, len: usize) -> bool {
        self.sent + len as u64 <= self.received * AMPLIFICATION
    }
}

/// A frame that must be sent to a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errand {
    pub address: SocketAddr,
    pub challenge: Option<Token>,
    pub echo: Option<Token>,
}

/// The address to which the connection must move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub address: SocketAddr,
    /// RTT to that address, if the echo can belong to one challenge only.
    pub rtt: Option<Duration>,
}

/// Candidates of one connection, described in the module documentation.
#[derive(Debug)]
pub(crate) struct Validation {
    candidates: Vec<Candidate>,
    /// Source of the packet with the highest number, if it is not the address in use.
    newest: Option<SocketAddr>,
    last_challenge: Option<Time>,
    /// The address in use must be challenged.
    owes_home: bool,
    /// Whether there is an address in use, that is, the peer has proven one address.
    proven: bool,
    tokens: ChaCha20Rng,
}

impl Validation {
    /// A table whose tokens are derived from `seed`. A peer that can guess the seed can claim an address of
    /// somebody else.
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        let tokens = ChaCha20Rng::from_seed(seed);
        Self { candidates: Vec::new(), newest: None, last_challenge: None, owes_home: false, proven: true, tokens }
    }

    /// Derives tokens from another seed from now on.
    pub(crate) fn reseed(&mut self, seed: [u8; 32]) {
        self.tokens = ChaCha20Rng::from_seed(seed);
    }

    /// The address at which the connection began is not proven to be the peer's.
    pub(crate) fn distrust_home(&mut self) {
        self.proven = false;
    }

    /// Whether there is an address in use.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    fn token(&mut self) -> Token {
        let mut token = [0; 8];
        self.tokens.fill_bytes(&mut token);
        token
    }

    /// An authentic packet of `len` bytes came from `from`. `highest` says that no earlier number was higher.
    /// `home` is the address in use, once one is proven.
    pub(crate) fn on_packet(&mut self, now: Time, from: SocketAddr, home: SocketAddr, len: usize, highest: bool) {
        let is_home = self.proven && from == home;
        if highest {
            self.newest = Some(from).filter(|_| !is_home);
        }
        if is_home {
            return;
        }
        if let Some(known) = self.candidates.iter_mut().find(|known| known.address == from) {
            known.received += len as u64;
            known.heard = now;
        } else if highest {
            if self.candidates.len() >= MAX_CANDIDATES {
                let silent = (0..MAX_CANDIDATES).min_by_key(|&index| self.candidates[index].heard);
                silent.map(|index| self.candidates.swap_remove(index));
            }
            let token = self.token();
            self.candidates.push(Candidate {
                address: from,
                token,
                echo: None,
                received: len as u64,
                sent: 0,
                heard: now,
                challenged: Time::ZERO,
                challenges: 0,
            });
            self.owes_home = self.proven;
        }
    }

    /// The peer challenged us from an address that is not in use.
    pub(crate) fn on_challenge(&mut self, from: SocketAddr, token: Token) {
        if let Some(known) = self.candidates.iter_mut().find(|known| known.address == from) {
            known.echo = Some(token);
        }
    }

    /// An echo came from `from`. Returns the move, if the connection must move there.
    pub(crate) fn on_response(&mut self, now: Time, from: SocketAddr, token: Token) -> Option<Move> {
        let answered = |known: &Candidate| known.address == from && known.token == token && known.challenges > 0;
        let known = self.candidates.iter().find(|known| answered(known))?;
        let rtt = (known.challenges == 1).then(|| now.since(known.challenged));
        if self.newest != Some(from) {
            return None;
        }
        self.candidates.clear();
        (self.newest, self.owes_home, self.proven) = (None, false, true);
        Some(Move { address: from, rtt })
    }

    /// Returns what may be sent to a candidate now, in a packet of at most `len` bytes. [`Self::on_sent`]
    /// must follow.
    pub(crate) fn poll(&mut self, now: Time, len: usize) -> Option<Errand> {
        let due = self.challenge_due().is_some_and(|due| due <= now);
        let turn = self.candidates.iter_mut().filter(|known| known.may_send(len) && (due || known.echo.is_some()));
        let known = turn.min_by_key(|known| known.challenged)?;
        let challenge = due.then_some(known.token);
        if due {
            self.last_challenge = Some(now);
            known.challenged = now;
            known.challenges += 1;
        }
        Some(Errand { address: known.address, challenge, echo: known.echo.take() })
    }

    /// Whether a packet of `len` bytes may be sent to an address that is not in use.
    pub(crate) fn allows(&self, address: SocketAddr, len: usize) -> bool {
        self.candidates.iter().any(|known| known.address == address && known.may_send(len))
    }

    /// A packet of `len` bytes was sent to a candidate.
    pub(crate) fn on_sent(&mut self, address: SocketAddr, len: usize) {
        if let Some(known) = self.candidates.iter_mut().find(|known| known.address == address) {
            known.sent += len as u64;
        }
    }

    /// Returns the challenge for the address in use, if one must be sent.
    pub(crate) fn take_home(&mut self) -> Option<Token> {
        core::mem::take(&mut self.owes_home).then(|| self.token())
    }

    /// Whether [`Self::take_home`] would return a challenge.
    pub(crate) fn owes_home(&self) -> bool {
        self.owes_home
    }

    fn challenge_due(&self) -> Option<Time> {
        if self.candidates.is_empty() {
            return None;
        }
        Some(self.last_challenge.map_or(Time::ZERO, |last| last + CHALLENGE_INTERVAL))
    }

    /// Removes candidates that have been silent for long; `timeout` is the probe timeout of the path in use.
    pub(crate) fn expire(&mut self, now: Time, timeout: Duration) {
        let patience = timeout.max(LEAST_TIMEOUT) * PATIENCE_TIMEOUTS;
        self.candidates.retain(|known| now < known.heard + patience);
        if self.newest.is_some_and(|newest| self.candidates.iter().all(|known| known.address != newest)) {
            self.newest = None;
        }
    }

    /// Time at which [`Self::poll`] has something to send again, in a packet of at most `len` bytes.
    pub(crate) fn deadline(&self, len: usize) -> Option<Time> {
        self.challenge_due().filter(|_| self.candidates.iter().any(|known| known.may_send(len)))
    }
}

#[cfg(test)]
mod tests;
