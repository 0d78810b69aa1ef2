//! `live` at both ends: datagrams leave whole, in order, once and at most as often as they were sent, and
//! both ends agree about what is missing.

mod inputs;

use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::process::{Running, lossy_link, tidewire};

const PACKET: usize = 188;
const DATAGRAM: usize = 7 * PACKET;
/// Milliseconds of video in the files of these tests.
const LENGTH_MS: u64 = 1_500;

/// A transport stream of one packet each half millisecond (3 Mbit/s) with a clock in every twentieth. Each
/// packet holds its number.
fn stream() -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..2 * LENGTH_MS {
        let mut packet = vec![0xff; PACKET];
        packet[..4].copy_from_slice(&[0x47, 0x01, 0x00, 0x10]);
        if n % 20 == 0 {
            let base = 90 * n / 2;
            packet[3..6].copy_from_slice(&[0x30, 7, 0x10]);
            packet[6..10].copy_from_slice(&((base >> 1) as u32).to_be_bytes());
            packet[10] = (base as u8) << 7;
        }
        packet[12..20].copy_from_slice(&n.to_be_bytes());
        bytes.extend(packet);
    }
    bytes
}

/// Receives datagrams until none comes for three seconds.
fn player() -> (String, thread::JoinHandle<Vec<Vec<u8>>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let place = format!("udp://{}", socket.local_addr().unwrap());
    let playing = thread::spawn(move || {
        let (mut came, mut datagram) = (Vec::new(), [0; 2_000]);
        loop {
            // The first may take as long as the machine needs to start two processes.
            let patience = if came.is_empty() { 60 } else { 3 };
            socket.set_read_timeout(Some(Duration::from_secs(patience))).unwrap();
            match socket.recv(&mut datagram) {
                Ok(length) => came.push(datagram[..length].to_vec()),
                Err(_) => return came,
            }
        }
    });
    (place, playing)
}

/// Checks that what came are datagrams of `stream`, each once and in order. Returns how many.
fn check(came: &[Vec<u8>], stream: &[u8]) -> u64 {
    let mut sent = stream.chunks(DATAGRAM);
    for datagram in came {
        assert!(sent.any(|sent| sent == datagram), "a datagram was changed, or came twice or out of order");
    }
    came.len() as u64
}

fn receiver(outputs: &[&str], options: &[&str]) -> (Running, String) {
    let mut receiver =
        Running::start(&[&["live", "tidewire://127.0.0.1:0"], outputs, &["--json", "--once"], options].concat());
    let link = receiver.wait_for("link")["link"].as_str().unwrap().to_owned();
    (receiver, link)
}

fn last<'a>(lines: &'a [Value], event: &str) -> &'a Value {
    lines.iter().rfind(|line| line["event"] == event).unwrap_or_else(|| panic!("no {event} in {lines:?}"))
}

#[test]
#[ignore = "slow: waits in real time"]
fn a_file_is_played_out_in_order_across_losses_and_both_ends_count_alike() {
    let folder = tempfile::tempdir().unwrap();
    let (stream, file) = (stream(), folder.path().join("video.ts"));
    fs::write(&file, &stream).unwrap();
    let sent = stream.chunks(DATAGRAM).count() as u64;
    let (place, playing) = player();
    let (receiver, direct) = receiver(&[&place], &["--latency", "300ms"]);
    let (_proxy, link) = lossy_link(&direct, &["--rtt", "20ms", "--loss", "5%", "--seed", "7"]);
    let sender = Running::start(&["live", &format!("file:{}", file.display()), &link, "--json", "--latency", "60ms"]);
    let (code, near) = sender.end();
    assert_eq!(code, Some(0), "{near:?}");
    let (code, far) = receiver.end();
    assert_eq!(code, Some(0), "{far:?}");
    for lines in [&near, &far] {
        assert_eq!(last(lines, "session")["latency_ms"], 300.0, "the longer of both");
        assert_eq!(lines.last().unwrap()["event"], "summary");
    }
    let (fed, played) = (last(&near, "sent"), last(&far, "played"));
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap();
    assert_eq!(number(fed, "packets"), sent);
    assert_eq!(number(played, "packets") + number(played, "missing"), sent, "{played}");
    assert_eq!([&fed["played"], &fed["missing"]], [&played["packets"], &played["missing"]]);
    assert_eq!(check(&playing.join().unwrap(), &stream), number(played, "packets"));
    assert!(number(played, "missing") <= sent / 20, "{played}");
    assert!(played["delay_ms"]["p50"].as_f64().unwrap() >= 300.0, "{played}");
}

#[test]
fn a_sender_that_listens_serves_several_receivers_and_a_pipe_is_read_to_its_end() {
    let (folder, stream) = (tempfile::tempdir().unwrap(), stream());
    let mut command = tidewire(&["live", "-", "tidewire://127.0.0.1:0", "--json"]);
    let mut sender = Running::spawn(command.stdin(Stdio::piped()));
    let link = sender.wait_for("link")["link"].as_str().unwrap().to_owned();
    // The pipe is read at once, and a player's socket would not hold that much.
    let mut receivers = Vec::new();
    for name in ["out-1", "out-2"] {
        let path = folder.path().join(name);
        let place = format!("file:{}", path.display());
        let mut receiver = Running::start(&["live", &link, &place, "--json", "--latency", "500ms"]);
        receiver.wait_for("session");
        receivers.push((receiver, path));
    }
    let mut stdin = sender.child.stdin.take().unwrap();
    stdin.write_all(&stream).unwrap();
    drop(stdin);
    let (code, near) = sender.end();
    assert_eq!(code, Some(0), "{near:?}");
    assert_eq!(last(&near, "sent")["unheard"], 0);
    for (receiver, path) in receivers {
        let (code, far) = receiver.end();
        assert_eq!(code, Some(0), "{far:?}");
        let played = last(&far, "played")["packets"].as_u64().unwrap();
        let out = fs::read(path).unwrap();
        assert_eq!(check(&out.chunks(DATAGRAM).map(<[u8]>::to_vec).collect::<Vec<_>>(), &stream), played);
        assert!(played > 0, "{far:?}");
    }
}

#[test]
fn programs_stay_apart_and_files_are_outputs_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| format!("file:{}", folder.path().join(name).display());
    let first = stream();
    let second: Vec<u8> = first.iter().map(|byte| if *byte == 0xff { 0xee } else { *byte }).collect();
    for (name, bytes) in [("in-1", &first), ("in-2", &second)] {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let (receiver, link) = receiver(&[&path("out-1"), &path("out-2")], &["--latency", "400ms"]);
    let (code, near) = Running::start(&["live", &path("in-1"), &path("in-2"), &link, "--json"]).end();
    assert_eq!(code, Some(0), "{near:?}");
    let (code, far) = receiver.end();
    assert_eq!(code, Some(0), "{far:?}");
    let mut played = 0;
    for (name, bytes) in [("out-1", &first), ("out-2", &second)] {
        let out = fs::read(folder.path().join(name)).unwrap();
        played += check(&out.chunks(DATAGRAM).map(<[u8]>::to_vec).collect::<Vec<_>>(), bytes);
    }
    assert_eq!(last(&far, "played")["packets"], played);
}

#[test]
#[ignore = "slow: waits in real time"]
fn datagrams_of_a_socket_keep_their_lengths() {
    let (place, playing) = player();
    let (receiver, link) = receiver(&[&place], &["--latency", "300ms"]);
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut sender = Running::start(&["live", &format!("udp://{port}"), &link, "--json"]);
    sender.wait_for("session");
    let source = UdpSocket::bind("127.0.0.1:0").unwrap();
    let lengths = [1_316, 1, 188, 1_472, 700];
    for (n, length) in (1..).zip(lengths) {
        source.send_to(&vec![n; length], port).unwrap();
    }
    let came = playing.join().unwrap();
    assert_eq!(came.iter().map(Vec::len).collect::<Vec<_>>(), lengths);
    // Ctrl-C at the sender ends the session as the end of its input would.
    sender.interrupt();
    assert_eq!(sender.end().0, Some(130));
    let (code, far) = receiver.end();
    assert_eq!((code, last(&far, "played")["missing"].as_u64()), (Some(0), Some(0)), "{far:?}");
}

#[test]
fn two_ends_that_do_the_same_say_so_and_wrong_places_never_show_a_secret() {
    let mut receiver = Running::start(&["live", "tidewire://127.0.0.1:0", "udp://127.0.0.1:9", "--json"]);
    let link = receiver.wait_for("link")["link"].as_str().unwrap().to_owned();
    let (code, lines) = Running::start(&["live", &link, "udp://127.0.0.1:9", "--json"]).end();
    assert_eq!(code, Some(1));
    assert!(last(&lines, "error")["message"].as_str().unwrap().contains("both ends"), "{lines:?}");
    let secret = link.split('#').nth(1).unwrap();
    let wrong = format!("{link}x");
    for places in
        [["udp://127.0.0.1:9", "udp://127.0.0.1:9"], [link.as_str(), &link], [wrong.as_str(), "-"], ["x", &link]]
    {
        let output = tidewire(&[&["live"], &places[..]].concat()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("tidewire://") && !text.contains(secret), "{text}");
    }
}
