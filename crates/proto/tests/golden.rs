//! Golden packets: every frame, a whole handshake and sealed packets as hexadecimal text in `tests/golden`,
//! so that no byte on the wire changes unnoticed.
//!
//! `TIDEWIRE_GOLDEN=write cargo test -p tidewire-proto --test golden` rewrites the files and the seed corpora
//! of the fuzz targets. A change in them is a change of the wire and must be described in docs/wire.md.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidewire_codec::{Code, RepairId, SourceId};
use tidewire_proto::Time;
use tidewire_proto::crypto::{Aead, AwsLc, HeaderKey, OpeningKey, PacketKey, PrivateKey, Provider, SealingKey, Secret};
use tidewire_proto::handshake::{Credentials, Initiator, KeyCredentials, Parameters, Responder, Terms};
use tidewire_proto::wire::{Layout, *};

fn writing() -> bool {
    std::env::var_os("TIDEWIRE_GOLDEN").is_some_and(|mode| mode == "write")
}

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compares `list` with a golden file of lines `name: hex`.
fn golden(file: &str, list: &[(&str, Vec<u8>)]) {
    let mut text = String::new();
    for (name, bytes) in list {
        write!(text, "{name}: ").unwrap();
        bytes.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push('\n');
    }
    let path = project("tests/golden").join(file);
    if writing() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap();
    for (kept, now) in kept.lines().zip(text.lines()) {
        assert_eq!(kept, now, "{file}");
    }
    assert_eq!(kept.lines().count(), text.lines().count(), "{file}");
}

/// Writes `list` also as the seed corpus of a fuzz target.
fn seeds(target: &str, list: &[(&str, Vec<u8>)]) {
    if writing() {
        let folder = project("../../fuzz/corpus").join(target);
        std::fs::create_dir_all(&folder).unwrap();
        for (name, bytes) in list {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
    }
}

fn written(len: usize, write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Vec<u8> {
    let mut buffer = vec![0; len];
    let mut w = Writer::new(&mut buffer);
    write(&mut w).unwrap();
    w.written().to_vec()
}

const SLICE: Frame<'static> = Frame::Slice {
    lane: 1,
    layout: Layout::Sliding,
    id: SourceId(70_000),
    offset: 1_000,
    total: 1_400,
    bytes: &[9; 20],
};
const TRAIN_REPORT: TrainReport =
    TrainReport { first: 70_000, distance: 299, arrival: 0xfedc_ba98, span: Duration::from_micros(3_840) };

const SYMBOL: &[u8] = b"\x00\x0e\x01\x02\x03\x0b\x04\x45tide!!!";

/// The frames of the relayed lane.
fn relayed() -> [(&'static str, Frame<'static>); 2] {
    let (vector, symbol) = (&[7, 0, 0xfe], SYMBOL);
    [
        ("ranks", Frame::Ranks(Ranks { edge: 300, room: 64, ranks: &[32, 31, 0, 7] })),
        ("recoded", Frame::Recoded(Recoded { relays: 1, generation: 300, length: 32, vector, symbol })),
    ]
}

fn frames() -> Vec<(&'static str, Frame<'static>)> {
    let symbol = SYMBOL;
    let id = RepairId { first: SourceId(16_000), count: 200, key: 0xabcd };
    vec![
        ("ping", Frame::Ping),
        ("close", Frame::Close { code: 300, reason: "the tide is out" }),
        ("policy", Frame::Policy("every:5")),
        ("path_challenge", Frame::PathChallenge(*b"12345678")),
        ("path_response", Frame::PathResponse(*b"12345678")),
        ("new_cid", Frame::NewCid { sequence: 3, retire: 2, path: 0, id: ConnectionId(*b"abcdefgh") }),
        ("slice", SLICE),
        ("rekey", Frame::Rekey { number: 300, message: &[6; 48] }),
        ("train", Frame::Train(300)),
        ("train_report", Frame::TrainReport(TRAIN_REPORT)),
        ("host_drops", Frame::HostDrops(300)),
        ("base", Frame::Base { lane: 1, base: SourceId(70_000) }),
        (
            "src",
            Frame::Source {
                lane: 0,
                layout: Layout::Sliding,
                id: SourceId(5),
                base: SourceId(5),
                again: false,
                symbol,
            },
        ),
        (
            "src_again",
            Frame::Source {
                lane: 0,
                layout: Layout::Sliding,
                id: SourceId(1 << 33),
                base: SourceId((1 << 33) - 70),
                again: true,
                symbol,
            },
        ),
        (
            "repair_proactive",
            Frame::Repair {
                lane: 0,
                layout: Layout::Sliding,
                code: Code::Rlc,
                id,
                base: SourceId(15_990),
                on_feedback: false,
                symbol,
            },
        ),
        (
            "repair_on_feedback",
            Frame::Repair {
                lane: 300,
                layout: Layout::Sliding,
                code: Code::Cauchy,
                id,
                base: SourceId(16_000),
                on_feedback: true,
                symbol,
            },
        ),
        (
            "src_of_generations",
            Frame::Source {
                lane: 0,
                layout: Layout::Generations,
                id: SourceId(5),
                base: SourceId(5),
                again: true,
                symbol,
            },
        ),
        (
            "repair_of_generations",
            Frame::Repair {
                lane: 0,
                layout: Layout::Generations,
                code: Code::Cauchy,
                id,
                base: SourceId(15_990),
                on_feedback: true,
                symbol,
            },
        ),
        (
            "slice_of_generations",
            Frame::Slice { lane: 1, layout: Layout::Generations, id: SourceId(7), offset: 3, total: 9, bytes: &[9; 6] },
        ),
    ]
}

fn feedbacks() -> Vec<(&'static str, Vec<u8>)> {
    let ids = |a, b| SourceId(a)..SourceId(b);
    let lane = LaneRepr {
        lane: 0,
        edge: SourceId(1_000),
        end: SourceId(1_040),
        deficit: 3,
        limit: SourceId(1_256),
        undecoded: &[ids(1_000, 1_002), ids(1_003, 1_004), ids(1_030, 1_033)],
        regions: &[],
    };
    let tight = LaneRepr {
        lane: 7,
        edge: SourceId(5),
        end: SourceId(5),
        deficit: 0,
        limit: SourceId(5),
        undecoded: &[],
        regions: &[],
    };
    let nothing = FeedbackRepr {
        received: &[],
        delay: Duration::ZERO,
        arrival: None,
        ecn: None,
        stream_credit: None,
        lanes: &[],
        elicits: false,
    };
    let full = FeedbackRepr {
        received: &[90..=100, 50..=80, 0..=47],
        delay: Duration::from_micros(1_600),
        arrival: Some(0xabcdef),
        ecn: Some(EcnCounts { ect0: 80, ect1: 0, ce: 10 }),
        stream_credit: Some(StreamCreditRepr { streams: 128, limits: &[(0, 262_144), (5, 1 << 31)] }),
        lanes: &[lane, tight],
        elicits: true,
    };
    let beyond = [(ids(1_040, 1_280), 17), (ids(1_280, 1_536), 0), (ids(1_536, 1_600), 64)];
    let regions = FeedbackRepr { received: &[5..=9], lanes: &[LaneRepr { regions: &beyond, ..lane }], ..nothing };
    vec![
        ("feedback_nothing", written(100, |w| nothing.emit(w))),
        ("feedback_full", written(200, |w| full.emit(w))),
        ("feedback_cut", written(51, |w| full.emit(w))),
        ("feedback_regions", written(200, |w| regions.emit(w))),
        ("feedback_regions_cut", written(39, |w| regions.emit(w))),
    ]
}

#[test]
fn frames_as_bytes() {
    let all = || frames().into_iter().chain(relayed());
    let mut list: Vec<_> = all().map(|(name, frame)| (name, written(300, |w| frame.emit(w)))).collect();
    list.extend(feedbacks());
    list.push(("grease", written(100, |w| write_grease(w, 0x1234, b"grease"))));
    list.push((
        "pad_then_ping",
        written(10, |w| {
            pad(w, 6);
            Frame::Ping.emit(w)
        }),
    ));
    golden("frames.txt", &list);
    seeds("frames", &list);
    for (name, bytes) in &list {
        let parsed: Result<Vec<_>, _> = Frames::new(bytes).collect();
        assert!(parsed.is_ok(), "{name}: {parsed:?}");
        mangle(bytes, |mangled| Frames::new(mangled).for_each(drop));
    }
    for (name, frame) in all() {
        let bytes = &list.iter().find(|(other, _)| *other == name).unwrap().1;
        assert_eq!(Frames::new(bytes).next(), Some(Ok(frame)));
    }
}

/// Parses all truncations and all single bit flips of `bytes`.
fn mangle(bytes: &[u8], mut parse: impl FnMut(&[u8])) {
    for len in 0..bytes.len() {
        parse(&bytes[..len]);
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        parse(&flipped);
    }
}

/// A truncated frame is an error, except for those that extend to the end of the packet.
#[test]
fn truncated_frames_are_errors() {
    let mut list: Vec<_> =
        frames().iter().take(8).map(|(name, frame)| (*name, written(300, |w| frame.emit(w)))).collect();
    list.extend(feedbacks());
    for (name, bytes) in list {
        for len in 1..bytes.len() {
            let last = Frames::new(&bytes[..len]).last().unwrap();
            assert_eq!(last.map_err(|error| error.kind), Err(Malformed::Truncated), "{name} cut to {len}");
        }
    }
}

#[test]
fn malformed_frames_are_named() {
    let cases: [(&[u8], usize, Malformed); 28] = [
        (&[0x19], 0, Malformed::UnknownType),
        (&[0x0e, 0, 0, 0x40, 0x81], 0, Malformed::Field("ranks")),
        (&[0x0c, 1], 0, Malformed::Field("packets")),
        (&[0x0c, 0x44, 1], 0, Malformed::Field("packets")),
        (&[0x0d, 5, 0, 0, 0, 0, 0, 9], 0, Malformed::Field("distance")),
        (&[0x0d, 5, 0x44, 0, 0, 0, 0, 0, 9], 0, Malformed::Field("distance")),
        (&[0x00, 0x3f], 1, Malformed::UnknownType),
        (&[0x01, 0x40, 0x01], 1, Malformed::UnknownType),
        (&[0x03, 0x00, 0x41, 0x01], 0, Malformed::Field("length")),
        (&[0x04, 0x01, 0xff], 0, Malformed::NotText),
        (&[0x07, 0x01, 0x02], 0, Malformed::Field("retire")),
        (&[0x08, 0, 0, 0, 5, 0], 0, Malformed::Field("length")),
        (&[0x08, 0, 0, 3, 5, 3, 1, 2, 3], 0, Malformed::Field("length")),
        (&[0x08, 0, 0, 0, 0x80, 0xff, 0xff, 0xff, 1, 1], 0, Malformed::Field("total")),
        (&[0x10, 0, 5, 6], 0, Malformed::Field("back")),
        (&[0x10, 0xc0, 0, 0, 1, 0, 0, 0, 0, 5, 5], 0, Malformed::Field("lane")),
        (&[0x12, 0, 2, 0, 1, 0, 0, 0], 0, Malformed::UnknownCode(2)),
        (&[0x12, 0, 0, 0, 0, 0, 0, 0], 0, Malformed::Field("count")),
        (&[0x12, 0, 0, 0, 0x44, 0x01, 0, 0, 0], 0, Malformed::Field("count")),
        (&[0x16, 0, 1, 0, 2, 0x80, 1, 0, 0, 0], 0, Malformed::Field("key")),
        (&[0x02, 0x20], 0, Malformed::Field("flags")),
        (&[0x02, 0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 1, 2, 3], 0, Malformed::Field("arrival")),
        (&[0x02, 0, 5, 0, 0], 0, Malformed::Field("ranges")),
        (&[0x02, 0, 5, 0, 1, 6], 0, Malformed::Field("length")),
        (&[0x02, 0, 5, 0, 2, 0, 4, 0], 0, Malformed::Field("gap")),
        (&[0x02, 4, 5, 0, 1, 0, 0], 0, Malformed::Field("lanes")),
        (&[0x02, 4, 5, 0, 1, 0, 1, 0, 9, 2, 3, 0, 0], 0, Malformed::Field("lane report")),
        (&[0x02, 4, 5, 0, 1, 0, 1, 0, 9, 2, 2, 0, 1, 0, 2], 0, Malformed::Field("run")),
    ];
    for (bytes, offset, kind) in cases {
        let error = Frames::new(bytes).last().unwrap().unwrap_err();
        assert_eq!((error.offset, error.kind), (offset, kind), "{bytes:02x?}");
    }
}

#[test]
fn symbols_as_bytes() {
    let frames = [
        SymbolFrame::Stream { stream: 4, offset: 0, fin: false, data: b"low", data_at: 8 },
        SymbolFrame::Stream { stream: 4, offset: 3, fin: true, data: b"tide", data_at: 15 },
        SymbolFrame::Reset { stream: 8, code: 500, last: 1 << 20 },
        SymbolFrame::Stop { stream: 9, code: 1 },
        SymbolFrame::Message { begins: false, ends: true, in_order: false, data: b"of it" },
        SymbolFrame::Message { begins: true, ends: false, in_order: true, data: b"" },
    ];
    let mut symbol = written(100, |w| {
        w.bytes(&[0; SYMBOL_HEADER_LEN])?;
        frames.iter().try_for_each(|frame| frame.emit(w))
    });
    symbol.extend_from_slice(b"\x40\x02ok\x08\x04the rest");
    let header = SymbolHeader { length: symbol.len() as u16, time: 0xabcdef };
    header.emit(&mut symbol).unwrap();
    // Padding of a decoded symbol, after its length.
    symbol.extend_from_slice(&[0; 7]);
    let (parsed, walk) = SymbolFrames::new(&symbol).unwrap();
    assert_eq!(parsed, header);
    let walked: Vec<_> = walk.collect::<Result<_, _>>().unwrap();
    assert_eq!(walked[..6], frames);
    let SymbolFrame::Stream { data, .. } = walked[6] else { panic!("{:?}", walked[6]) };
    assert_eq!(data, b"the rest");
    let list = [("frames", symbol.clone()), ("padded", vec![0, 7, 0, 0, 0, 0, 0, 0])];
    golden("symbols.txt", &list);
    seeds("symbol_frames", &list);
    mangle(&symbol, |mangled| {
        if let Ok((_, frames)) = SymbolFrames::new(mangled) {
            frames.for_each(drop);
        }
    });
    assert_eq!(SymbolFrames::new(&symbol[..header.length as usize - 1]).err(), Some(Malformed::Field("length")));
    assert_eq!(SymbolFrames::new(&[0, 4, 0, 0, 0]).err(), Some(Malformed::Field("length")));
}

/// Native ciphers that claim AES hardware on any machine.
struct Hardware;

impl Provider for Hardware {
    fn aes_hardware(&self) -> bool {
        true
    }

    fn packet_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn PacketKey> {
        AwsLc.packet_key(aead, key)
    }

    fn header_key(&self, aead: Aead, key: &[u8; 32]) -> Box<dyn HeaderKey> {
        AwsLc.header_key(aead, key)
    }
}

#[test]
fn a_handshake_as_bytes() {
    let secret = Secret::new(std::array::from_fn(|i| i as u8));
    let (mine, yours) = (ConnectionId(*b"initiate"), ConnectionId(*b"response"));
    let parameters = Parameters { max_span: 512, idle_timeout_ms: 15_000, ..Parameters::default() };
    let mut initiator = Initiator::new(&secret, mine, &parameters, Arc::new(Hardware), [1; 32], Time::ZERO);
    let mut responder = Responder::new(&secret, Arc::new(Hardware), [2; 32]);
    let mut hello = vec![0; HELLO_LEN];
    initiator.poll_transmit(Time::ZERO, &mut hello).unwrap();
    let from = "192.0.2.1:7700".parse::<SocketAddr>().unwrap();
    let terms = Terms { parameters: Parameters::default(), source: yours, known: false };
    let accepted = responder.handle_hello(Time::ZERO, from, &hello, &terms).unwrap();
    let mut reply = vec![0; REPLY_MAX];
    let (_, len) = responder.poll_transmit(Time::ZERO, &mut reply).unwrap();
    reply.truncate(len);
    let mut session = initiator.handle_reply(&reply).unwrap();
    let mut first = vec![1; SHORT_HEADER_LEN + 1 + TAG_LEN];
    write_short_header(&mut Writer::new(&mut first), session.remote, 0, 21).unwrap();
    session.sealing.seal(0, 0, &mut first).unwrap();
    let list = [("hello", hello.clone()), ("reply", reply.clone()), ("first_packet", first.clone())];
    golden("handshake.txt", &list);
    seeds("datagram", &list);
    let mut theirs = accepted.session(&(Arc::new(Hardware) as _));
    assert_eq!(theirs.peer, parameters);
    theirs.opening.open(0, &mut first).unwrap();
    for bytes in [&hello, &reply] {
        mangle(bytes, |mangled| {
            let _ = Datagram::parse(mangled);
        });
    }
}

/// Authentication `key`, a question about a connection, under load: a HELLO, the COOKIE, the HELLO again with
/// mac2, the REPLY.
#[test]
fn a_handshake_between_keys_as_bytes() {
    let (ours, theirs) = (PrivateKey::new([0x11; 32]), PrivateKey::new([0x22; 32]));
    let mut listener = KeyCredentials::new(theirs.clone());
    listener.authorized = Arc::new([ours.public()].into());
    let own = Credentials::Key(KeyCredentials::new(ours));
    let (mine, yours) = (ConnectionId(*b"initiate"), ConnectionId(*b"response"));
    let initiator = |seed: u8, at| {
        let keys = own.to_connect(Some(&theirs.public())).unwrap();
        let parameters = Parameters::default();
        Initiator::asking_after(yours, keys, mine, &parameters, Arc::new(Hardware), [seed; 32], at)
    };
    let mut responder = Responder::new(Credentials::Key(listener), Arc::new(Hardware), [2; 32]);
    let terms = Terms { parameters: Parameters::default(), source: yours, known: true };
    let (from, now) = ("192.0.2.1:7700".parse::<SocketAddr>().unwrap(), Time::from_millis(1_000));
    let mut buffer = vec![0; HELLO_LEN];
    for seed in 1..=128 {
        initiator(seed, now).poll_transmit(now, &mut buffer).unwrap();
        assert!(responder.handle_hello(now, from, &buffer, &terms).is_some());
    }
    while responder.poll_transmit(now + Duration::from_millis(10), &mut buffer).is_some() {}

    let mut initiator = initiator(0, now);
    let mut list = Vec::new();
    initiator.poll_transmit(now, &mut buffer).unwrap();
    list.push(("hello", buffer.clone()));
    assert!(responder.handle_hello(now, from, &buffer, &terms).is_none());
    let (_, len) = responder.poll_transmit(now, &mut buffer).unwrap();
    list.push(("cookie", buffer[..len].to_vec()));
    initiator.handle_cookie(now, &buffer[..len]).unwrap();
    initiator.poll_transmit(now, &mut buffer).unwrap();
    list.push(("hello_again", buffer.clone()));
    assert!(responder.handle_hello(now, from, &buffer, &terms).is_some());
    let (_, len) = responder.poll_transmit(now, &mut buffer).unwrap();
    list.push(("reply", buffer[..len].to_vec()));
    assert_eq!(initiator.handle_reply(&buffer[..len]).unwrap().peer_key, Some(theirs.public()));
    assert!(initiator.found_connection());
    golden("handshake_key.txt", &list);
    let names = ["key_hello", "key_cookie", "key_hello_again", "key_reply"];
    let packets = names.into_iter().zip(list.iter().map(|(_, packet)| packet.clone()));
    seeds("datagram", &packets.collect::<Vec<_>>());
    for (_, bytes) in &list {
        mangle(bytes, |mangled| {
            let _ = Datagram::parse(mangled);
        });
    }
}

#[test]
fn sealed_packets_as_bytes() {
    let chaining_key: [u8; 32] = std::array::from_fn(|i| 0xe0 ^ i as u8);
    let mut list = Vec::new();
    for (aead, names) in [
        (Aead::Aes256Gcm, ["aes_phase_0", "aes_phase_1"]),
        (Aead::ChaCha20Poly1305, ["chacha_phase_0", "chacha_phase_1"]),
    ] {
        let mut sealing = SealingKey::new(Arc::new(AwsLc), aead, &chaining_key);
        let mut opening = OpeningKey::new(Arc::new(AwsLc), aead, &chaining_key);
        for (name, number) in names.into_iter().zip([0x0001_0203, 0x0002_0304]) {
            let mut packet = vec![0; SHORT_HEADER_LEN];
            write_short_header(&mut Writer::new(&mut packet), ConnectionId(*b"response"), number, 10).unwrap();
            packet.extend_from_slice(b"\x01\x04\x07every:5");
            packet.extend_from_slice(&[0; TAG_LEN]);
            sealing.seal(0, number, &mut packet).unwrap();
            list.push((name, packet.clone()));
            let opened = opening.open(0, &mut packet).unwrap();
            assert_eq!(opened.number, number);
            let frames: Vec<_> = Frames::new(&packet[opened.payload]).collect();
            assert_eq!(frames, [Ok(Frame::Ping), Ok(Frame::Policy("every:5"))]);
            sealing.on_acknowledged(number);
            sealing.initiate_update().unwrap();
        }
    }
    golden("sealed.txt", &list);
}
