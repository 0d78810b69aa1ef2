//! Inputs and ends of `live` that misbehave, and multicast: what is wrong is counted, and the session lives
//! on.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use std::{fs, thread};

use super::{Running, last, player, receiver, stream};
use crate::process::{address, tidewire};

/// An address of this machine that no other program uses.
fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn source() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// A sender with its input at `place`, once it has a receiver.
fn sender(place: &str, link: &str) -> Running {
    let mut sender = Running::start(&["live", place, link, "--json"]);
    sender.wait_for("session");
    sender
}

/// An RTP packet with one packet of a transport stream.
fn rtp(source: u32, sequence: u16, timestamp: u32) -> Vec<u8> {
    let mut packet = vec![0x80, 33];
    packet.extend(sequence.to_be_bytes());
    packet.extend(timestamp.to_be_bytes());
    packet.extend(source.to_be_bytes());
    packet.extend([0x47; 188]);
    packet
}

#[test]
#[ignore = "slow: waits in real time"]
fn several_rtp_sources_jumps_and_other_bytes_are_counted_and_played() {
    let (place, playing) = player();
    let (receiver, link) = receiver(&[&place], &["--latency", "300ms"]);
    let port = free();
    let sender = sender(&format!("rtp://{port}"), &link);
    let (from, mut sent) = (source(), Vec::new());
    for n in 0..200_u16 {
        // The second source loses two packets at 50; at 100 sequence and clock of the first jump.
        let jump = if n < 100 { 0 } else { 20_000 };
        let gap = if n < 50 { 0 } else { 2 };
        sent.push(rtp(1, n + jump, 450 * u32::from(n) + 90_000 * u32::from(jump)));
        sent.push(rtp(2, 65_500_u16.wrapping_add(n + gap), 450 * u32::from(n + gap)));
        for packet in &sent[sent.len() - 2..] {
            from.send_to(packet, port).unwrap();
        }
        if n == 120 {
            from.send_to(b"no RTP packet", port).unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    }
    let came = playing.join().unwrap();
    sender.interrupt();
    let (code, near) = sender.end();
    assert_eq!(code, Some(130), "{near:?}");
    let fed = last(&near, "sent");
    assert_eq!((&fed["packets"], &fed["strange"], &fed["gaps"]), (&400.into(), &1.into(), &2.into()), "{fed}");
    let (_, far) = receiver.end();
    let played = last(&far, "played");
    // A machine that halts a process for longer than the latency may miss some.
    assert_eq!(came.len() as u64, played["packets"].as_u64().unwrap());
    assert_eq!(came.len() as u64 + played["missing"].as_u64().unwrap(), 400);
    let mut rest = sent.iter();
    assert!(came.iter().all(|packet| rest.any(|sent| sent == packet)) && came.len() > 300, "{played}");
}

#[test]
#[ignore = "slow: waits in real time"]
fn an_encoder_that_stops_for_a_while_finds_its_session_again() {
    let (place, playing) = player();
    let (receiver, link) = receiver(&[&place], &["--latency", "400ms"]);
    let port = free();
    let sender = sender(&format!("udp://{port}"), &link);
    let from = source();
    for n in 0..20_u8 {
        from.send_to(&[n; 1_316], port).unwrap();
        // Longer than a probe of the path, and shorter than the player's patience.
        thread::sleep(Duration::from_millis(if n == 9 { 2_000 } else { 10 }));
    }
    assert_eq!(
        playing.join().unwrap().iter().map(|datagram| datagram[0]).collect::<Vec<_>>(),
        (0..20).collect::<Vec<_>>()
    );
    sender.interrupt();
    let (code, near) = sender.end();
    assert_eq!((code, near.iter().any(|line| line["event"] == "lost")), (Some(130), false), "{near:?}");
    assert_eq!(last(&receiver.end().1, "played")["missing"], 0);
}

#[test]
fn multicast_comes_in_and_goes_out() {
    // Groups of the local scope (RFC 2365), on the loopback interface alone.
    let (inside, outside) = (Ipv4Addr::new(239, 255, 77, 1), Ipv4Addr::new(239, 255, 77, 2));
    let listening = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    listening.join_multicast_v4(&outside, &Ipv4Addr::LOCALHOST).unwrap();
    let on = |group: Ipv4Addr, port: u16| format!("udp://{group}:{port}?interface=127.0.0.1");
    let place = on(outside, listening.local_addr().unwrap().port());
    let (_receiver, link) = receiver(&[&place], &["--latency", "300ms"]);
    let port = free().port();
    let _sender = sender(&on(inside, port), &link);
    let from = source();
    socket2::SockRef::from(&from).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    listening.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut datagram = [0; 2_000];
    for n in 0..5_u8 {
        from.send_to(&[n; 1_316], (inside, port)).unwrap();
        assert_eq!(listening.recv(&mut datagram).unwrap(), 1_316);
        assert_eq!(datagram[0], n);
    }
}

/// A datagram that IPv6 carries and IPv4 does not: the system refuses it with EMSGSIZE. Before the fix, any
/// error but five ended the receiver with exit code 7.
#[test]
#[ignore = "needs IPv6 on the loopback interface, and waits in real time"]
fn a_datagram_that_the_system_refuses_ends_no_output() {
    let port = UdpSocket::bind("[::1]:0").and_then(|socket| socket.local_addr());
    tidewire_testing::needs("IPv6 on the loopback interface", port.is_ok());
    let port = port.unwrap();
    let (place, playing) = player();
    let (receiver, link) = receiver(&[&place], &["--latency", "500ms"]);
    let sender = sender(&format!("udp://{port}"), &link);
    let from = UdpSocket::bind("[::1]:0").unwrap();
    socket2::SockRef::from(&from).set_send_buffer_size(1 << 20).unwrap();
    for (n, length) in [(1, 1_316), (2, 65_520), (3, 1_316), (4, 700)] {
        from.send_to(&vec![n; length], port).unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(playing.join().unwrap().iter().map(|datagram| datagram[0]).collect::<Vec<_>>(), [1, 3, 4]);
    sender.interrupt();
    assert_eq!(sender.end().0, Some(130));
    let (code, far) = receiver.end();
    assert_eq!((code, &last(&far, "played")["refused"]), (Some(0), &1.into()), "{far:?}");
}

/// Before, the bytes of any file were sent, with exit code 0.
#[test]
fn what_is_no_transport_stream_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let movie = folder.path().join("movie.mp4");
    fs::write(&movie, vec![7; 10_000]).unwrap();
    let (_receiver, link) = receiver(&["udp://127.0.0.1:9"], &["--latency", "100ms"]);
    // A file is looked into at the start; a pipe shows what it is when it is read.
    let file = Running::start(&["live", &format!("file:{}", movie.display()), &link, "--json"]);
    let mut command = tidewire(&["live", "-", &link, "--json"]);
    let pipe = Running::spawn(command.stdin(fs::File::open(&movie).unwrap()));
    for sender in [file, pipe] {
        let (code, lines) = sender.end();
        assert_eq!(code, Some(7), "{lines:?}");
        assert!(last(&lines, "error")["message"].as_str().unwrap().contains("no MPEG transport stream"), "{lines:?}");
    }
}

/// Before the fix, each connected again when the other had taken the outputs, once a second and for ever.
#[test]
fn a_sender_whose_place_another_has_taken_ends_and_says_so() {
    let (_receiver, link) = receiver(&["udp://127.0.0.1:9"], &["--latency", "300ms"]);
    let first = sender(&format!("udp://{}", free()), &link);
    let second = sender(&format!("udp://{}", free()), &link);
    let (code, lines) = first.end();
    assert_eq!(code, Some(1), "{lines:?}");
    assert!(last(&lines, "error")["message"].as_str().unwrap().contains("another sender"), "{lines:?}");
    assert!(lines.iter().all(|line| line["event"] != "session"), "it connected again: {lines:?}");
    second.interrupt();
    let (code, lines) = second.end();
    assert_eq!((code, lines.iter().any(|line| line["event"] == "lost")), (Some(130), false), "{lines:?}");
}

#[test]
fn a_receiver_that_starts_again_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let key = key.to_str().unwrap();
    assert!(tidewire(&["keygen", "-o", key]).status().unwrap().success());
    let (out, again) = (folder.path().join("out"), folder.path().join("again"));
    let place = |path: &std::path::Path| format!("file:{}", path.display());
    let (mut first, link) = receiver(&[&place(&out)], &["--latency", "300ms", "--key", key]);
    let port = free();
    let mut sender = sender(&format!("udp://{port}"), &link);
    let (from, bytes) = (source(), stream());
    from.send_to(&bytes[..1_316], port).unwrap();
    first.wait_for("session");
    // As after a power cut: nothing says goodbye.
    first.child.kill().unwrap();
    drop(first);
    let listen = format!("tidewire://{}", address(&link));
    let mut second =
        Running::start(&["live", &listen, &place(&again), "--json", "--once", "--latency", "300ms", "--key", key]);
    sender.wait_for("lost");
    sender.wait_for("session");
    second.wait_for("session");
    for datagram in bytes.chunks(1_316).take(20) {
        from.send_to(datagram, port).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    thread::sleep(Duration::from_millis(300));
    sender.interrupt();
    assert_eq!(sender.end().0, Some(130));
    let (code, far) = second.end();
    assert_eq!((code, &last(&far, "played")["packets"]), (Some(0), &20.into()), "{far:?}");
    assert_eq!(fs::read(again).unwrap(), &bytes[..20 * 1_316]);
}
