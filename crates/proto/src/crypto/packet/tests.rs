use super::*;
use crate::crypto::AwsLc;
use crate::wire::{ConnectionId, Writer, write_short_header};

const LEN: usize = 80;

fn pair(aead: Aead) -> (SealingKey, OpeningKey) {
    let chain = [0x42; 32];
    (SealingKey::new(Arc::new(AwsLc), aead, &chain), OpeningKey::new(Arc::new(AwsLc), aead, &chain))
}

fn packet(key: &mut SealingKey, number: u64) -> Vec<u8> {
    let mut packet = vec![number as u8; LEN];
    write_short_header(&mut Writer::new(&mut packet), ConnectionId([7; 8]), number, 0x1f).unwrap();
    key.seal(0, number, &mut packet).unwrap();
    packet
}

fn opens(key: &mut OpeningKey, packet: &[u8], number: u64) -> Opened {
    let mut packet = packet.to_vec();
    let opened = key.open(0, &mut packet).unwrap();
    assert_eq!(opened.number, number);
    assert!(packet[opened.payload.clone()].iter().all(|byte| *byte == number as u8));
    assert_eq!(opened.payload, 13..LEN - 16);
    opened
}

/// The complete state on which an opening key decides, and its decisions about some packets.
fn state(key: &OpeningKey) -> (u64, u64, bool, ReplayWindow<REPLAY_WORDS>) {
    (key.phase, key.phase_start, key.previous.is_some(), (*key.window).clone())
}

#[test]
fn both_ciphers_open_what_they_seal_in_any_order_once() {
    for aead in [Aead::Aes256Gcm, Aead::ChaCha20Poly1305] {
        let (mut sealing, mut opening) = pair(aead);
        let packets: Vec<_> = (0..200).map(|i| packet(&mut sealing, i * 3)).collect();
        for i in (0..200).map(|i| i * 77 % 200) {
            opens(&mut opening, &packets[i], i as u64 * 3);
        }
        for packet in &packets {
            assert_eq!(opening.open(0, &mut packet.clone()), Err(OpenError::Replayed));
        }
    }
}

#[test]
fn every_flipped_bit_and_every_truncation_changes_nothing() {
    let (mut sealing, mut opening) = pair(Aead::Aes256Gcm);
    opens(&mut opening, &packet(&mut sealing, 5), 5);
    let good = packet(&mut sealing, 70_000);
    let before = state(&opening);
    for bit in 0..LEN * 8 {
        let mut forged = good.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let error = opening.open(0, &mut forged).unwrap_err();
        assert!(matches!(error, OpenError::Forged | OpenError::TooOld | OpenError::Replayed), "bit {bit}: {error}");
        assert_eq!(state(&opening), before, "bit {bit}");
    }
    for len in 0..LEN {
        opening.open(0, &mut good[..len].to_vec()).unwrap_err();
        assert_eq!(state(&opening), before, "length {len}");
    }
    assert_eq!(opening.open(0, &mut good[..29].to_vec()), Err(OpenError::Length(29)));
    assert_eq!(opening.open(1, &mut good.clone()), Err(OpenError::Path(1)));
    opens(&mut opening, &good, 70_000);
}

#[test]
fn the_phase_moves_by_confirmed_steps_and_old_packets_still_open() {
    let (mut sealing, mut opening) = pair(Aead::ChaCha20Poly1305);
    assert_eq!(sealing.initiate_update(), Err(NotConfirmed));
    let late: Vec<_> = (0..5).map(|i| packet(&mut sealing, i)).collect();
    opens(&mut opening, &late[3], 3);
    sealing.on_acknowledged(99);
    assert_eq!(sealing.initiate_update(), Err(NotConfirmed), "99 was never sent");
    sealing.on_acknowledged(3);
    sealing.initiate_update().unwrap();
    sealing.on_acknowledged(4);
    assert_eq!(sealing.initiate_update(), Err(NotConfirmed), "4 belongs to the phase before");

    let second: Vec<_> = (5..10).map(|i| packet(&mut sealing, i)).collect();
    assert_eq!(opens(&mut opening, &second[2], 7).phase, 1);
    assert_eq!(opens(&mut opening, &late[4], 4).phase, 0);
    assert_eq!(opens(&mut opening, &second[0], 5).phase, 1);
    assert_eq!(opens(&mut opening, &late[0], 0).phase, 0);
    sealing.on_acknowledged(7);
    sealing.initiate_update().unwrap();
    assert_eq!(opens(&mut opening, &packet(&mut sealing, 10), 10).phase, 2);
    assert_eq!(opens(&mut opening, &second[4], 9).phase, 1);
    assert_eq!(opening.open(0, &mut late[1].clone()), Err(OpenError::Forged), "two phases back is gone");
}

#[test]
fn a_forged_phase_bit_moves_nothing() {
    let (mut sealing, mut opening) = pair(Aead::Aes256Gcm);
    for number in 0..3 {
        opens(&mut opening, &packet(&mut sealing, number), number);
    }
    let mut forged = packet(&mut sealing, 3);
    forged[0] ^= PHASE_BIT;
    assert_eq!(opening.open(0, &mut forged), Err(OpenError::Forged));
    assert_eq!((opening.phase(), opening.highest()), (0, Some(2)));
}

#[test]
fn the_previous_key_goes_when_the_window_has_passed_it() {
    let (mut sealing, mut opening) = pair(Aead::Aes256Gcm);
    opens(&mut opening, &packet(&mut sealing, 0), 0);
    sealing.on_acknowledged(0);
    sealing.initiate_update().unwrap();
    opens(&mut opening, &packet(&mut sealing, 1), 1);
    assert!(opening.previous.is_some());
    opens(&mut opening, &packet(&mut sealing, REPLAY_WIDTH), REPLAY_WIDTH);
    assert!(opening.previous.is_some());
    opens(&mut opening, &packet(&mut sealing, REPLAY_WIDTH + 1), REPLAY_WIDTH + 1);
    assert!(opening.previous.is_none());
}

#[test]
fn a_number_is_used_once_and_a_key_2_to_the_28_times() {
    let (mut sealing, _) = pair(Aead::Aes256Gcm);
    packet(&mut sealing, 9);
    let mut again = [0x40; LEN];
    for number in [0, 9, VARINT_MAX + 1] {
        assert_eq!(sealing.seal(0, number, &mut again), Err(SealError::Number(10)));
    }
    assert_eq!(sealing.seal(0, 10, &mut again[..29]), Err(SealError::Length(29)));
    sealing.sealed = MAX_SEALED - 1;
    sealing.seal(0, 10, &mut again).unwrap();
    assert_eq!(sealing.seal(0, 11, &mut again), Err(SealError::Exhausted));
    sealing.on_acknowledged(10);
    sealing.initiate_update().unwrap();
    sealing.seal(0, 11, &mut again).unwrap();
}

/// Compares the expansion with its definition, around every carry.
#[test]
fn numbers_expand_to_the_nearest() {
    let half = 1_u64 << 31;
    for highest in [0, 1, half - 1, half, (1 << 32) - 1, 1 << 32, (1 << 40) + 77, VARINT_MAX - 1] {
        let expected = highest + 1;
        for offset in [0, 1, 2, 1000, half - 1] {
            for number in [expected.checked_sub(offset), expected.checked_add(offset)].into_iter().flatten() {
                if number <= VARINT_MAX {
                    assert_eq!(expand(number as u32, Some(highest)), number, "{highest} then {number}");
                }
            }
        }
    }
    assert_eq!(expand(12, None), 12);
}

/// Compares the schedule with its definition (docs/wire.md section 3), with HMAC written out: expand(prk,
/// label, n <= 32) is the first n bytes of HMAC(prk, label | 1).
#[test]
fn the_schedule_is_hkdf_expand() {
    use hmac::{Hmac, Mac};
    let expand = |prk: &[u8], label: &str| -> [u8; 32] {
        let mac = Hmac::<sha2::Sha256>::new_from_slice(prk).unwrap();
        mac.chain_update(label).chain_update([1]).finalize().into_bytes().into()
    };
    let chain = [0x42; 32];
    let mut schedule = Schedule::new(Arc::new(AwsLc), Aead::Aes256Gcm, &chain);
    let mut secret = chain;
    for _ in 0..3 {
        let nonce = schedule.phase_key().nonce(0x0102_0304, 0x0a0b_0c0d_0e0f_1011);
        let mut by_hand: [u8; 12] = expand(&secret, "tidewire 1 iv")[..12].try_into().unwrap();
        for (byte, mixed) in by_hand.iter_mut().zip([1, 2, 3, 4, 10, 11, 12, 13, 14, 15, 16, 17]) {
            *byte ^= mixed;
        }
        assert_eq!(nonce, by_hand);
        let (mut ours, mut theirs) = ([0; TAG_LEN], [0; TAG_LEN]);
        schedule.phase_key().packet.seal(&nonce, &[], &mut [0; 4], &mut ours).unwrap();
        let by_hand = AwsLc.packet_key(Aead::Aes256Gcm, &expand(&secret, "tidewire 1 key"));
        by_hand.seal(&nonce, &[], &mut [0; 4], &mut theirs).unwrap();
        assert_eq!(theirs, ours);
        schedule.advance();
        secret = expand(&secret, "tidewire 1 update");
    }
}
