//! Suite `loopback`: bulk data through one encrypted connection, Tidewire's and `quinn`'s, in turns.
//!
//! In both implementations each end has its own thread and a runtime that uses only that thread. So the CPU
//! time of the thread is that of the end, and a machine with two cores has one for each.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::{Taken, Work, quinn, seconds, thread_time, tidewire};
use crate::goals;
use crate::report::{Cell, Report, Table, Verdict};
use crate::timing::Times;

/// What a receiver reports before it begins: its address, and the credentials that the other end needs.
pub type Tells<K> = Sender<(SocketAddr, K)>;
/// Where the sender gets it.
pub type Told<K> = Receiver<(SocketAddr, K)>;

/// One implementation, set up in one way.
struct Contestant {
    name: &'static str,
    transfer: fn(u64, u16) -> Taken,
    /// How many times as fast Tidewire shall be.
    ratio: f64,
}

/// Tidewire first. The others are compared with the last one.
const CONTESTANTS: [Contestant; 3] = [
    Contestant {
        name: "tidewire, defaults",
        transfer: |bytes, datagram| transfer(bytes, datagram, tidewire::receive, tidewire::send),
        ratio: 1.0,
    },
    Contestant {
        name: "quinn, defaults",
        transfer: |bytes, datagram| transfer(bytes, datagram, quinn::receive::<false>, quinn::send::<false>),
        ratio: goals::OVER_QUINN,
    },
    Contestant {
        name: "quinn, tuned",
        transfer: |bytes, datagram| transfer(bytes, datagram, quinn::receive::<true>, quinn::send::<true>),
        ratio: goals::OVER_TUNED_QUINN,
    },
];

/// Ids, titles and longest datagrams of the tables: Ethernet's, and those of Ethernet with jumbo frames of
/// 9,000 bytes.
const TABLES: [(&str, &str, u16); 2] =
    [("loopback", "Bulk over loopback", 1_472), ("jumbo", "Bulk over loopback, jumbo datagrams", 6_500)];

/// Runs the suite.
pub fn run(work: Work, report: &mut Report) {
    for (id, title, datagram) in TABLES {
        compare(work, id, title, datagram, report);
    }
}

fn compare(work: Work, id: &'static str, title: &'static str, datagram: u16, report: &mut Report) {
    let mut taken = [const { Vec::new() }; CONTESTANTS.len()];
    for round in 0..work.rounds {
        // Each round begins with another implementation.
        for turn in 0..CONTESTANTS.len() {
            let at = (turn + round) % CONTESTANTS.len();
            eprintln!("{id}: round {} of {}, {}", round + 1, work.rounds, CONTESTANTS[at].name);
            taken[at].push((CONTESTANTS[at].transfer)(work.bytes, datagram));
        }
    }
    let gigabytes = work.bytes as f64 * 1e-9;
    let walls = taken.each_ref().map(|taken| seconds(taken, |taken| taken.wall));
    let senders = taken.each_ref().map(|taken| seconds(taken, |taken| taken.sender));
    let receivers = taken.each_ref().map(|taken| seconds(taken, |taken| taken.receiver));
    let last = CONTESTANTS.len() - 1;
    let rows = CONTESTANTS.iter().enumerate().map(|(row, contestant)| {
        let rate = walls[row].map(|seconds| 8.0 * gigabytes / seconds);
        let ratio = walls[row].with(&walls[last], |seconds, reference| reference / seconds);
        let cpu = |times: &[Times]| {
            let ratio = times[row].with(&times[last], |seconds, reference| seconds / reference);
            Some(Cell::with_ratio(times[row].map(|seconds| seconds / gigabytes), ratio))
        };
        (contestant.name.into(), vec![Some(Cell::with_ratio(rate, ratio)), cpu(&senders), cpu(&receivers)])
    });
    report.tables.push(Table {
        id,
        title,
        note: format!(
            "One connection, {} MB a transfer, datagrams of at most {datagram} bytes, encrypted by both with AES-256-GCM of the same \
             library, ours coded; each end has one thread. In brackets over the last row.",
            work.bytes / 1_000_000
        ),
        columns: ["program", "Gbit/s", "sender, CPU s/GB", "receiver, CPU s/GB"].map(String::from).into(),
        rows: rows.collect(),
    });
    if datagram == TABLES[0].2 {
        judge(&walls, &senders[0], gigabytes, report);
    }
}

/// The goals, which are for datagrams of Ethernet.
fn judge(walls: &[Times], sender: &Times, gigabytes: f64, report: &mut Report) {
    let verdict = |goal, what, case: &str, measured, unit, limit| Verdict {
        goal,
        tier: "",
        what,
        case: case.into(),
        measured,
        unit,
        limit,
        at_least: true,
    };
    for (theirs, contestant) in walls.iter().zip(&CONTESTANTS).skip(1) {
        let ratio = walls[0].with(theirs, |ours, theirs| theirs / ours);
        report.verdicts.push(verdict(15, "loopback, over quinn", contestant.name, ratio, "", contestant.ratio));
    }
    let per_core = sender.map(|seconds| 8.0 * gigabytes / seconds);
    report.verdicts.push(verdict(13, "loopback, per sending core", "", per_core, "Gbit/s", goals::SENDING_CORE));
}

/// One transfer. `receive` reports its address, and returns when everything has arrived and it has confirmed
/// that. `send` returns the time from its first byte to that confirmation.
///
/// # Panics
/// An end failed, or the received bytes differ from those sent.
fn transfer<K: Send + 'static>(
    bytes: u64,
    datagram: u16,
    receive: fn(u64, u16, Tells<K>) -> io::Result<()>,
    send: fn(u64, u16, Told<K>) -> io::Result<Duration>,
) -> Taken {
    let (tells, told) = channel();
    let receiver = thread::spawn(move || receive(bytes, datagram, tells).map(|()| thread_time()));
    let sender = thread::spawn(move || send(bytes, datagram, told).map(|wall| (wall, thread_time())));
    let (wall, sender) = sender.join().expect("the sender lives").expect("the sender has sent");
    let receiver = receiver.join().expect("the receiver lives").expect("the receiver has received");
    Taken { wall, sender, receiver }
}
