//! `pipe` at both ends: any bytes in both directions, an end for each direction, and true exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread;

use serde_json::Value;

use crate::process::{lossy_link, tidewire};
use crate::schema;

/// One end of the pipe.
pub struct End {
    child: Child,
    pub stdin: Option<ChildStdin>,
    pub stdout: ChildStdout,
    lines: BufReader<std::process::ChildStderr>,
}

impl End {
    pub fn start(arguments: &[&str]) -> Self {
        let mut child = tidewire(&[&["pipe", "--json"], arguments].concat()).stdin(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let lines = BufReader::new(child.stderr.take().unwrap());
        Self { child, stdin, stdout, lines }
    }

    /// A listener and its link.
    fn listen() -> (Self, String) {
        Self::listen_with(&["--listen", "127.0.0.1:0"])
    }

    /// The same with these options.
    pub fn listen_with(options: &[&str]) -> (Self, String) {
        let mut end = Self::start(options);
        let mut line = String::new();
        end.lines.read_line(&mut line).unwrap();
        let link = schema::lines(line.as_bytes())[0]["link"].as_str().unwrap().to_owned();
        (end, link)
    }

    /// The exit code, and all lines that were not read yet.
    pub fn end(mut self) -> (Option<i32>, Vec<Value>) {
        let mut rest = Vec::new();
        self.lines.read_to_end(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), schema::lines(&rest))
    }
}

/// Bytes of every kind, different for each seed.
fn bytes(seed: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(seed).finalize_xof().fill(&mut bytes);
    bytes
}

#[test]
fn both_ways_at_once_across_losses_every_byte_arrives() {
    both_ways_at_once(&[]);
}

/// Bytes cross a lossy link in both directions, if the connecting end has these options.
pub fn both_ways_at_once(options: &[&str]) {
    let (mut listener, direct) = End::listen();
    let (_proxy, link) =
        lossy_link(&direct, &["--rate", "50mbit", "--rtt", "20ms", "--loss", "10%", "--back-loss", "10%"]);
    let mut connector = End::start(&[&[link.as_str()], options].concat());
    let (there, back) = (bytes(b"there", 1_500_000), bytes(b"back", 2_000_000));
    let write = |stdin: Option<ChildStdin>, bytes: &'static [u8]| {
        thread::spawn(move || stdin.unwrap().write_all(bytes).unwrap())
    };
    let (there, back): (&'static [u8], &'static [u8]) = (there.leak(), back.leak());
    let writers = [write(connector.stdin.take(), there), write(listener.stdin.take(), back)];
    let mut arrived = Vec::new();
    let mut returned = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| listener.stdout.read_to_end(&mut arrived).unwrap());
        scope.spawn(|| connector.stdout.read_to_end(&mut returned).unwrap());
    });
    assert!(arrived == there, "{} of {} bytes, or others", arrived.len(), there.len());
    assert!(returned == back, "{} of {} bytes, or others", returned.len(), back.len());
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    for end in [listener, connector] {
        let (code, lines) = end.end();
        let summary = lines.last().unwrap();
        assert_eq!((code, &summary["bytes"]), (Some(0), &3_500_000.into()), "{summary}");
        let packets = |name: &str| summary["packets"][name].as_u64().unwrap();
        assert!(packets("repair") + packets("feedback_repair") > 0, "{summary}");
    }
}

#[test]
fn one_end_is_seen_while_the_other_direction_goes_on() {
    let (mut listener, link) = End::listen();
    let mut connector = End::start(&[&link]);
    connector.stdin.as_mut().unwrap().write_all(b"question").unwrap();
    drop(connector.stdin.take());
    // The end arrives here although the listener's own input is open.
    let mut question = String::new();
    listener.stdout.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    for part in [b"an", b"sw", b"er"] {
        listener.stdin.as_mut().unwrap().write_all(part).unwrap();
        let mut read = [0; 2];
        if let Err(error) = connector.stdout.read_exact(&mut read) {
            panic!("{error}: {:?}, {:?}", connector.end(), listener.end());
        }
        assert_eq!(&read, part);
    }
    drop(listener.stdin.take());
    assert_eq!(connector.stdout.read(&mut [0]).unwrap(), 0);
    assert_eq!((listener.end().0, connector.end().0), (Some(0), Some(0)));
}

#[test]
fn an_output_that_nobody_reads_ends_both_with_7() {
    let (listener, link) = End::listen();
    let mut connector = End::start(&[&link]);
    let End { child, stdin: _open, stdout, lines } = listener;
    drop(stdout);
    // This loop ends when the other side says that nobody reads.
    while connector.stdin.as_mut().unwrap().write_all(&[7; 10_000]).is_ok() {}
    let (code, said) = connector.end();
    assert_eq!(code, Some(7), "{said:?}");
    let listener = End { child, stdin: None, stdout: empty(), lines };
    assert_eq!(listener.end().0, Some(7));
}

/// An output that has ended.
fn empty() -> ChildStdout {
    let mut child = tidewire(&["--version"]).spawn().unwrap();
    child.wait().unwrap();
    child.stdout.take().unwrap()
}

#[test]
fn a_peer_that_is_killed_is_no_orderly_end() {
    let (mut listener, link) = End::listen();
    let mut connector = End::start(&[&link]);
    connector.stdin.as_mut().unwrap().write_all(b"part").unwrap();
    listener.stdout.read_exact(&mut [0; 4]).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&connector.child), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(connector.end().0, Some(130));
    assert_eq!(listener.end().0, Some(3));
}
