//! Cookies: a responder under load checks without stored state that a HELLO comes from its source address
//! (docs/wire.md section 4).
//!
//! A cookie is a MAC over the sender's address and the HELLO, under a key that changes every two minutes. It
//! is sent sealed, so that only a peer that sent the HELLO and knows the mac1 key can read it. It comes back
//! as the key of mac2. This follows WireGuard, except for the sealing: each COOKIE has its own key instead of
//! a longer nonce.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use snow::params::CipherChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::Cipher;
use subtle::ConstantTimeEq;

use crate::Time;
use crate::crypto::MacKey;
use crate::wire::{
    COOKIE_LEN, COOKIE_NONCE_LEN, ConnectionId, LONG_HEADER_LEN, LongHeader, LongKind, LongRepr, MAC_LEN, TAG_LEN,
    Writer,
};

/// Time during which cookies are made with one key. They stay valid for the same time again.
const TURN: Duration = Duration::from_secs(120);

/// The cookie inside a COOKIE packet.
type Cookie = [u8; MAC_LEN];

/// Random bytes for one COOKIE: nonce, source id, grease.
pub(super) struct Dice {
    pub(super) nonce: [u8; COOKIE_NONCE_LEN],
    pub(super) source: ConnectionId,
    pub(super) grease: u8,
}

/// The cookies of one responder.
pub(super) struct Cookies {
    /// Master key. The key of each period is the MAC of the period's number under this key.
    master: MacKey,
}

impl Cookies {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self { master: MacKey::from_bytes(&seed) }
    }

    fn cookie(&self, turn: u64, from: SocketAddr, hello: &LongHeader<'_>) -> Cookie {
        let key = MacKey::from_bytes(self.master.derive(&[&turn.to_be_bytes()]).as_ref());
        let mut bytes = [0; 16 + 2 + MAC_LEN];
        let (address, rest) = bytes.split_at_mut(16);
        address.copy_from_slice(&match from.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        });
        rest[..2].copy_from_slice(&from.port().to_be_bytes());
        rest[2..].copy_from_slice(&hello.mac1);
        key.tag(&bytes)
    }

    /// Whether mac2 of a HELLO was made with a cookie that was recently sent to this address.
    pub(super) fn is_proof(&self, now: Time, from: SocketAddr, hello: &LongHeader<'_>) -> bool {
        let Some((bytes, mac2)) = hello.mac2 else { return false };
        let turn = turn(now);
        [Some(turn), turn.checked_sub(1)].into_iter().flatten().any(|turn| {
            let made = MacKey::from_bytes(&self.cookie(turn, from, hello)).tag(bytes);
            made.ct_eq(&mac2).into()
        })
    }

    /// The COOKIE for a HELLO whose mac1 is valid and whose mac2 is not.
    pub(super) fn answer(
        &self,
        now: Time,
        from: SocketAddr,
        hello: &LongHeader<'_>,
        mac: &MacKey,
        dice: &Dice,
    ) -> [u8; COOKIE_LEN] {
        let mut packet = [0; COOKIE_LEN];
        let header = LongRepr {
            kind: LongKind::Cookie,
            grease: dice.grease,
            destination: hello.source,
            source: dice.source,
            auth: hello.auth,
            suite: hello.suite,
            noise_len: (COOKIE_NONCE_LEN + MAC_LEN) as u16,
        };
        header.emit(&mut Writer::new(&mut packet)).expect("a COOKIE has room for its header");
        let (clear, rest) = packet.split_at_mut(LONG_HEADER_LEN);
        let (nonce, sealed) = rest.split_at_mut(COOKIE_NONCE_LEN);
        nonce.copy_from_slice(&dice.nonce);
        let cookie = self.cookie(turn(now), from, hello);
        cipher(mac, nonce, &hello.mac1).encrypt(0, clear, &cookie, sealed);
        packet
    }
}

/// Opens a COOKIE for the HELLO with this mac1, and returns the key of mac2 that it contains.
pub fn open(packet: &LongHeader<'_>, mac: &MacKey, hello_mac1: &[u8; MAC_LEN]) -> Option<MacKey> {
    let (nonce, cookie) = packet.noise.split_at_checked(COOKIE_NONCE_LEN)?;
    let mut sealed = [0; MAC_LEN + TAG_LEN];
    sealed.get_mut(..cookie.len())?.copy_from_slice(cookie);
    sealed.get_mut(cookie.len()..)?.first_chunk_mut::<TAG_LEN>()?.copy_from_slice(&packet.mac1);
    let mut opened = [0; MAC_LEN];
    cipher(mac, nonce, hello_mac1).decrypt(0, packet.clear, &sealed, &mut opened).ok()?;
    Some(MacKey::from_bytes(&opened))
}

/// ChaCha20-Poly1305 under a key for this COOKIE only, so its counter is always 0.
fn cipher(mac: &MacKey, nonce: &[u8], hello_mac1: &[u8; MAC_LEN]) -> Box<dyn Cipher> {
    let mut cipher = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly).expect("the cipher is compiled in");
    cipher.set(&mac.derive(&[b"tidewire 1 cookie", nonce, hello_mac1]));
    cipher
}

fn turn(now: Time) -> u64 {
    now.0 / TURN.as_nanos() as u64
}
