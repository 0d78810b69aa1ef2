//! Passes any UDP payload through everything that runs before a packet is authenticated: the clear header
//! and, with a null cipher, packet number expansion, replay window, key phases and frames.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tidewire_fuzz::Null;
use tidewire_proto::crypto::{Aead, OpeningKey};
use tidewire_proto::wire::{COOKIE_LEN, Datagram, Frames, HELLO_LEN, LongKind, REPLY_MAX};

fuzz_target!(|data: &[u8]| {
    match Datagram::parse(data) {
        Ok(Datagram::Long(long)) => match long.kind {
            LongKind::Hello => assert_eq!(data.len(), HELLO_LEN),
            LongKind::Reply => assert!(data.len() <= REPLY_MAX),
            LongKind::Cookie => assert_eq!(data.len(), COOKIE_LEN),
        },
        Ok(Datagram::Short { .. }) | Err(_) => {}
    }
    // Each piece of the input is one packet under the same key.
    let mut opening = OpeningKey::new(Arc::new(Null), Aead::ChaCha20Poly1305, &[0; 32]);
    for piece in data.chunks(40) {
        let mut packet = piece.to_vec();
        if let Ok(opened) = opening.open(0, &mut packet) {
            assert!(opening.highest() >= Some(opened.number));
            Frames::new(&packet[opened.payload]).for_each(drop);
            assert!(opening.open(0, &mut piece.to_vec()).is_err(), "opened twice");
        }
    }
});
