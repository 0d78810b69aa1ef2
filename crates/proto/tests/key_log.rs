//! The key log: what both ends report opens every packet of the session, in all key phases.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{Event, Received};
use tidewire_proto::crypto::{Aead, AwsLc, KeyLog, LoggedKey, Provider, Sealer, Secret};
use tidewire_proto::endpoint::{Endpoint, EndpointConfig};
use tidewire_proto::wire::{PACKET_NUMBER_AT, SHORT_HEADER_LEN, TAG_LEN};

/// The key phase in the first byte, docs/wire.md section 1.2.
const PHASE_BIT: u8 = 0x20;

/// Keys by sealer (true: initiator) and phase: cipher, header key, key, iv. A later report replaces an
/// earlier one.
type Keys = BTreeMap<(bool, u64), (Aead, [u8; 32], [u8; 32], [u8; 12])>;

#[derive(Debug, Default)]
struct Log {
    keys: Mutex<Keys>,
    lines: Mutex<Vec<String>>,
}

impl KeyLog for Log {
    fn record(&self, key: &LoggedKey<'_>) {
        let value = (key.aead, *key.header, *key.key, *key.iv);
        self.keys.lock().unwrap().insert((key.sealer == Sealer::Initiator, key.phase), value);
        self.lines.lock().unwrap().push(key.to_string());
    }
}

/// The short packets of each direction, and the two logs, after `bytes` were carried in `time` or longer.
struct Run {
    packets: Vec<(bool, Vec<u8>)>,
    logs: [Arc<Log>; 2],
    fresh_keys: u64,
}

/// Two endpoints over a link of 10 ms without losses.
fn run(config: &Config, bytes: usize, time: Duration) -> Run {
    let logs = [Arc::new(Log::default()), Arc::new(Log::default())];
    let mut ends = [0, 1].map(|end: usize| {
        let connection = config.to_builder().key_log(Some(logs[end].clone())).build().unwrap();
        let (credentials, provider) = (Secret::new([7; 32]).into(), Arc::new(AwsLc));
        let endpoint = EndpointConfig { credentials, listen: end == 1, connection, provider };
        Endpoint::new(endpoint, [end as u8; 32])
    });
    let address = |end: usize| SocketAddr::from(([10, 0, 0, end as u8], 7_700));
    let (mut now, mut buffer) = (Time::from_millis(1), vec![0; 65_527]);
    let handle = ends[0].connect(now, address(1)).unwrap();
    let (mut link, mut packets) = (VecDeque::<(Time, usize, Vec<u8>)>::new(), Vec::new());
    let (mut left, mut received) = (bytes, 0);
    while received < bytes || now < Time::ZERO + time {
        for this in [0, 1] {
            while let Some(transmit) = ends[this].poll_transmit(now, 1, &mut buffer) {
                let datagram = buffer[..transmit.len].to_vec();
                packets.extend((datagram[0] & 0x80 == 0).then(|| (this == 0, datagram.clone())));
                link.push_back((now + Duration::from_millis(10), 1 - this, datagram));
            }
            while let Some((handle, event)) = ends[this].poll_event() {
                let Some(connection) = ends[this].connection_mut(handle) else { continue };
                let writable = match event {
                    Event::Connected if this == 0 => connection.open_stream().ok(),
                    Event::Writable(stream) => Some(stream),
                    Event::Readable(stream) => {
                        while let Ok(n @ 1..) = connection.read(now, stream, &mut buffer) {
                            received += n;
                        }
                        None
                    }
                    Event::Closed(reason) => panic!("{reason}"),
                    _ => None,
                };
                while let Some(stream) = writable
                    && let Ok(n @ 1..) = connection.write(stream, &[1; 1_000][..left.min(1_000)])
                {
                    left -= n;
                }
            }
        }
        let timers = ends.iter_mut().filter_map(|end| end.poll_timeout().map(|(at, _)| at));
        now = now.max(timers.chain(link.front().map(|&(at, ..)| at)).min().unwrap());
        while link.front().is_some_and(|(at, ..)| *at <= now) {
            let (at, to, mut datagram) = link.pop_front().unwrap();
            let from = address(1 - to);
            ends[to].handle_datagram(Received { at, from, to: None, ecn: None, datagram: &mut datagram });
        }
        ends.iter_mut().for_each(|end| end.handle_timeout(now));
    }
    let fresh_keys = ends[0].connection_mut(handle).unwrap().stats().fresh_keys;
    Run { packets, logs, fresh_keys }
}

/// Opens every packet by the keys of one log. Returns the highest phase of each direction.
fn open_all(packets: &[(bool, Vec<u8>)], keys: &Keys) -> [u64; 2] {
    let mut phases = [0; 2];
    for (from_initiator, packet) in packets {
        let phase = &mut phases[usize::from(*from_initiator)];
        let (aead, header, ..) = keys[&(*from_initiator, 0)];
        let mut packet = packet.clone();
        let sample = packet[SHORT_HEADER_LEN..][..16].try_into().unwrap();
        let [first, number @ ..] = AwsLc.header_key(aead, &header).mask(sample);
        packet[0] ^= first & 0x3f;
        packet[PACKET_NUMBER_AT..].iter_mut().zip(number).for_each(|(byte, mask)| *byte ^= mask);
        // Packets are in the order of sending, so another bit is the next phase.
        *phase += u64::from((packet[0] & PHASE_BIT != 0) != (*phase % 2 == 1));
        let (aead, _, key, iv) = keys[&(*from_initiator, *phase)];
        let mut nonce = iv;
        nonce[8..].iter_mut().zip(&packet[PACKET_NUMBER_AT..]).for_each(|(byte, number)| *byte ^= number);
        let (header, rest) = packet.split_at_mut(SHORT_HEADER_LEN);
        let (frames, tag) = rest.split_last_chunk_mut::<TAG_LEN>().unwrap();
        AwsLc.packet_key(aead, &key).open(&nonce, header, frames, tag).expect("the logged key is that of the packet");
    }
    phases
}

#[test]
fn the_logs_of_both_ends_open_every_packet_in_every_phase() {
    let config = Config::builder().packets_per_key(60).build().unwrap();
    let Run { packets, logs, .. } = run(&config, 600_000, Duration::ZERO);
    for log in &logs {
        let [responder, initiator] = open_all(&packets, &log.keys.lock().unwrap());
        assert!(responder >= 1 && initiator >= 3, "phases {responder} and {initiator}");
    }
}

#[test]
fn fresh_keys_replace_those_that_were_reported_in_advance() {
    let config = Config::builder().fresh_keys_after(Duration::from_secs(2)).keep_alive(Some(Duration::from_secs(1)));
    let run = run(&config.build().unwrap(), 5_000, Duration::from_secs(5));
    assert!(run.fresh_keys >= 1);
    for log in &run.logs {
        let phases = open_all(&run.packets, &log.keys.lock().unwrap());
        assert!(phases.iter().all(|phase| *phase >= 1), "{phases:?}");
    }
}

#[test]
fn a_line_has_ids_sealer_phase_cipher_and_keys() {
    let run = run(&Config::default(), 1_000, Duration::ZERO);
    let lines = run.logs[0].lines.lock().unwrap();
    // Phase 0 of the initiator, phases 0 and 1 of the responder, whose next key is derived in advance.
    assert_eq!(lines.len(), 3);
    for line in lines.iter() {
        let words: Vec<_> = line.split(' ').collect();
        let lengths: Vec<_> = words[1..].iter().map(|word| word.len()).collect();
        assert_eq!((words[0], words.len()), ("TIDEWIRE_KEY", 9));
        assert_eq!([lengths[0], lengths[1], lengths[5], lengths[6], lengths[7]], [16, 16, 64, 64, 24], "{line}");
        assert!(["I", "R"].contains(&words[3]) && ["0", "1"].contains(&words[4]), "{line}");
    }
}
