//! What the program takes and what it leaves to the kernel: the kernel runs it over frames that are made here
//! (`BPF_PROG_TEST_RUN`). Needs root, and is skipped without it.

use std::net::SocketAddr;

use super::super::XdpMode;
use super::super::frame::Envelope;
use super::super::interface::Interface;
use super::super::queue::Queue;
use super::super::tests::{NAME, between_two_ends};
use super::*;

/// The kernel's command, and the verdict that hands a frame to a socket (linux/bpf.h).
const BPF_PROG_TEST_RUN: i32 = 10;
const XDP_REDIRECT: u32 = 4;
const PORT: u16 = 7_700;

/// `BPF_PROG_TEST_RUN` of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: i32,
    verdict: u32,
    length: u32,
    length_out: u32,
    frame: u64,
    frame_out: u64,
    repeat: u32,
    duration: u32,
}

/// Whether the program takes a frame.
fn takes(program: &OwnedFd, frame: &[u8]) -> bool {
    let mut run = TestRun {
        program: program.as_raw_fd(),
        length: frame.len() as u32,
        frame: frame.as_ptr() as u64,
        repeat: 1,
        ..TestRun::default()
    };
    // SAFETY: the kernel reads the frame, which lives during the call, and writes into the structure.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_TEST_RUN, &raw mut run, size_of::<TestRun>()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    assert!(run.verdict == XDP_REDIRECT || run.verdict == XDP_PASS as u32, "verdict {}", run.verdict);
    run.verdict == XDP_REDIRECT
}

fn frame(from: &str, to: &str) -> Vec<u8> {
    let [from, to]: [SocketAddr; 2] = [from, to].map(|text| text.parse().expect("an address"));
    let envelope = Envelope { stations: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]], from, to, ecn: None };
    let mut frame = Vec::new();
    let sealed = envelope.seal(&[7; 32], |bytes| {
        frame.extend_from_slice(bytes);
        Some(())
    });
    sealed.expect("one family");
    frame
}

/// The frame with these bytes at an offset.
fn with(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut changed = frame.to_vec();
    changed[at..at + bytes.len()].copy_from_slice(bytes);
    changed
}

/// The frame with these bytes inserted at an offset.
fn inserted(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    [&frame[..at], bytes, &frame[at..]].concat()
}

/// Frames that are not for us, or that only the kernel understands.
fn others() -> Vec<(&'static str, Vec<u8>)> {
    let v4 = frame("192.0.2.9:1", "10.77.0.1:7700");
    let v6 = frame("[2001:db8::9]:1", "[fd77::1]:7700");
    vec![
        ("another port", frame("192.0.2.9:7700", "10.77.0.1:7701")),
        ("another address, which a router forwards", frame("192.0.2.9:1", "10.77.0.2:7700")),
        ("another port over IPv6", frame("[2001:db8::9]:7700", "[fd77::1]:7701")),
        ("an IPv6 address with another end", frame("[2001:db8::9]:1", "[fd77::2]:7700")),
        ("an IPv6 address with another start", frame("[2001:db8::9]:1", "[fd78::1]:7700")),
        ("TCP", with(&v4, 23, &[6])),
        ("TCP over IPv6", with(&v6, 20, &[6])),
        ("a first fragment", with(&v4, 20, &[0x20, 0])),
        ("a first fragment that may not be fragmented", with(&v4, 20, &[0x60, 0])),
        ("a last fragment", with(&v4, 20, &[0, 185])),
        ("a fragment at the largest offset", with(&v4, 20, &[0x1F, 0xFF])),
        ("IPv4 with options", with(&inserted(&v4, 34, &[1; 4]), 14, &[0x46])),
        ("another version of IP", with(&v4, 14, &[0x55])),
        ("an IPv6 fragment", with(&inserted(&v6, 54, &[17, 0, 0, 1, 0, 0, 0, 7]), 20, &[44])),
        ("hop-by-hop options", with(&inserted(&v6, 54, &[17, 0, 1, 4, 0, 0, 0, 0]), 20, &[0])),
        ("a VLAN tag", inserted(&v4, 12, &[0x81, 0, 0, 5])),
        ("a VLAN tag over IPv6", inserted(&v6, 12, &[0x81, 0, 0, 5])),
        ("two VLAN tags", inserted(&v4, 12, &[0x88, 0xA8, 0, 5, 0x81, 0, 0, 6])),
        ("ARP", with(&v4, 12, &[0x08, 0x06])),
        ("PPPoE", inserted(&with(&v4, 12, &[0x88, 0x64]), 14, &[0x11, 0, 0, 1, 0, 62, 0, 0x21])),
        ("IPv4 that ends before UDP does", v4[..ETHERNET as usize + 27].to_vec()),
        ("IPv6 that ends before UDP does", v6[..ETHERNET as usize + 47].to_vec()),
        ("Ethernet alone", v4[..ETHERNET as usize].to_vec()),
    ]
}

#[test]
#[ignore = "needs root: network namespaces"]
fn only_whole_untagged_datagrams_to_us_are_taken() {
    between_two_ends(async |_ends| {
        let interface = Interface::named(NAME).expect("it is there");
        let queue = Queue::open(interface.index, 0, interface.mtu, XdpMode::Any).expect("opens");
        let ours = ["10.78.0.1", "10.77.0.1", "fd78::2", "fd77::1"].map(|ip| ip.parse().expect("an address"));
        let attached = Attached::new(interface.index, 1, PORT, &ours).expect("attaches");
        let program = load(&super::program(attached.sockets.as_raw_fd(), PORT, &ours)).expect("loads");
        let whole = [
            frame("192.0.2.9:1", "10.78.0.1:7700"),
            frame("192.0.2.9:7701", "10.77.0.1:7700"),
            frame("[2001:db8::9]:1", "[fd78::2]:7700"),
            frame("[2001:db8::9]:1", "[fd77::1]:7700"),
        ];
        // Without a socket, the kernel gets all.
        assert!(!takes(&program, &whole[0]));
        attached.insert(0, queue.descriptor()).expect("its queue");
        for (n, frame) in whole.iter().enumerate() {
            assert!(takes(&program, frame), "frame {n}");
            // The mark and the class of traffic do not matter, nor does "may be fragmented".
            let marked = if n < 2 { with(&with(frame, 15, &[0xBB]), 20, &[0]) } else { with(frame, 14, &[0x6B, 0xB0]) };
            assert!(takes(&program, &marked), "marked frame {n}");
        }
        for (name, frame) in others() {
            assert!(!takes(&program, &frame), "{name}");
        }
    });
}
