//! `forward -W` as a process: standard input and output reach a target through a lossy link, and ssh through
//! them.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::forward::{serve, start_server};
use crate::process::sshd::Sshd;
use crate::process::{Running, lossy_link, tidewire_that_hears_a_hang_up};
use crate::schema;

const LOSSY: [&str; 8] = ["--rate", "50mbit", "--rtt", "20ms", "--loss", "5%", "--back-loss", "5%"];

fn single(target: &str, link: &str) -> Child {
    tidewire_that_hears_a_hang_up(&["forward", "--json", "-W", target, link]).stdin(Stdio::piped()).spawn().unwrap()
}

/// Bytes of every kind, different for each seed.
fn bytes(seed: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(seed).finalize_xof().fill(&mut bytes);
    bytes
}

/// The exit code and what was written to stdout. The lines on stderr keep to the schema.
fn end(child: Child) -> (Option<i32>, Vec<u8>) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let lines: Vec<u8> =
        stderr.split_inclusive(|byte| *byte == b'\n').filter(|line| line[0] == b'{').flatten().copied().collect();
    assert_eq!(schema::lines(&lines).last().unwrap()["event"], "summary");
    (status.code(), stdout)
}

#[test]
fn large_data_crosses_both_ways_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (_server, direct) = serve(&[&target], &[]);
    let (_proxy, link) = lossy_link(&direct, &LOSSY);
    let (there, back) = (bytes(b"there", 3_000_000), bytes(b"back", 2_000_000));
    let mut child = single(&target, &link);
    let mut stdin = child.stdin.take().unwrap();
    let tcp = listener.accept().unwrap().0;
    let mut arrived = Vec::new();
    let ended = thread::scope(|scope| {
        scope.spawn(|| stdin.write_all(&there).map(|()| drop(stdin)));
        scope.spawn(|| {
            // The target ends its direction first, and still reads what comes.
            (&tcp).write_all(&back).unwrap();
            tcp.shutdown(std::net::Shutdown::Write).unwrap();
            (&tcp).read_to_end(&mut arrived).unwrap();
        });
        end(child)
    });
    assert!(arrived == there, "{} of {} bytes, or others", arrived.len(), there.len());
    assert!(ended.1 == back, "{} of {} bytes, or others", ended.1.len(), back.len());
    assert_eq!(ended.0, Some(0));
}

#[test]
fn the_end_of_input_is_a_half_close_and_the_answer_follows() {
    let target = start_server();
    let (_server, link) = serve(&[&target], &[]);
    let mut child = single(&target, &link);
    child.stdin.take().unwrap().write_all(b"100000\r\nbody").unwrap();
    let (code, answer) = end(child);
    let mut wanted = vec![0; 100_000];
    blake3::Hasher::new().update(b"body").finalize_xof().fill(&mut wanted);
    assert_eq!(code, Some(0));
    assert!(answer == wanted, "{}", answer.len());
}

#[test]
fn failures_have_exit_codes_and_write_nothing_to_stdout() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (_server, link) = serve(&[&closed, "nowhere.invalid:1"], &[]);
    for (target, wanted) in [("127.0.0.1:1", 4), (&*closed, 3), ("nowhere.invalid:1", 3)] {
        let mut child = single(target, &link);
        // More than is read before the refusal arrives.
        let _ = child.stdin.take().unwrap().write_all(&[7; 1_000_000]);
        assert_eq!(end(child), (Some(wanted), Vec::new()), "{target}");
    }
}

/// Connects a process to this one as its target. Returns both.
fn connected() -> (Running, Child, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (server, link) = serve(&[&target], &[]);
    let child = single(&target, &link);
    let tcp = listener.accept().unwrap().0;
    (server, child, tcp)
}

#[test]
fn a_target_that_resets_ends_with_3() {
    let (_server, mut child, mut tcp) = connected();
    tcp.write_all(b"part").unwrap();
    child.stdin.as_mut().unwrap().write_all(b"unread").unwrap();
    // Bytes that are unread at the close turn it into a reset.
    tcp.peek(&mut [0]).unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    drop(tcp);
    assert_eq!(end(child), (Some(3), Vec::new()));
}

/// The target ends its direction, and resets while input is still on its way: exit code 0 would say that it
/// arrived.
#[test]
fn input_that_the_target_did_not_take_ends_with_3() {
    let (_server, mut child, tcp) = connected();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"first").unwrap();
    tcp.peek(&mut [0]).unwrap();
    tcp.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(child.stdout.as_mut().unwrap().read(&mut [0]).unwrap(), 0);
    drop(tcp);
    // The far side may be told at any time from here.
    let _ = stdin.write_all(&[7; 1_000_000]);
    drop(stdin);
    assert_eq!(end(child).0, Some(3));
}

#[test]
fn a_reader_that_closes_standard_output_resets_the_target() {
    let (_server, mut child, mut tcp) = connected();
    drop(child.stdout.take());
    while tcp.write_all(&[7; 10_000]).is_ok() {}
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

/// ssh hangs up on its `ProxyCommand`. The far side learns at once that the connection is over.
#[test]
fn a_hang_up_resets_the_target() {
    let (mut server, mut child, mut tcp) = connected();
    tcp.write_all(b"part").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    assert_eq!(tcp.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(end(child), (Some(130), Vec::new()));
    server.wait_for("summary");
}

/// One command over ssh, with keys and a configuration of its own.
#[test]
#[ignore = "needs root and sshd"]
fn ssh_crosses_as_proxy_command() {
    let sshd = Sshd::start();
    let (_server, direct) = serve(&[&sshd.address.to_string()], &[]);
    let (_proxy, link) = lossy_link(&direct, &LOSSY);
    let link_file = sshd.path("link");
    fs::write(&link_file, &link).unwrap();
    let program = assert_cmd::cargo::cargo_bin("tidewire");
    let sent = bytes(b"ssh", 500_000);
    let mut ssh = Command::new("ssh")
        .args(sshd.options())
        .args(["-o", &format!("ProxyCommand={} forward -q -W %h:%p @{link_file}", program.display())])
        .args(["root@127.0.0.1", "cat; exit 42"])
        .env("TIDEWIRE_CONFIG", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = ssh.stdin.take().unwrap();
    let ended = thread::scope(|scope| {
        scope.spawn(|| stdin.write_all(&sent).map(|()| drop(stdin)));
        ssh.wait_with_output().unwrap()
    });
    assert_eq!(ended.status.code(), Some(42), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(ended.stdout == sent, "{} of {} bytes, or others", ended.stdout.len(), sent.len());
}
