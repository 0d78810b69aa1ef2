//! What a datagram costs beside many idle connections, and what those cost: CPU and memory.

use std::time::{Duration, Instant};

use tidewire_proto::config::Config;
use tidewire_proto::connection::Received;

use super::host::{Host, Peer};

const COUNTS: [usize; 4] = [10, 100, 1_000, 10_000];
/// Datagrams of a batch that is timed at once, and batches: the quickest batch counts, since others use the
/// machine.
const BATCH: usize = 200;
const BATCHES: usize = 25;
/// Virtual time over which idle connections are driven.
const IDLE: Duration = Duration::from_secs(60);

/// Cache lines of connection state that one PING touches: 167 in 14 pages, of its own connection and of the
/// one whose FEEDBACK is due at that moment. Counted with the memory trace of valgrind's lackey tool, beside
/// twelve connections.
const RUNS: usize = 14;
const LINES_OF_RUN: usize = 12;
const LINE: usize = 64;

/// Prints a row for each number of connections; the last columns compare it with the first row, and say how
/// long it takes to touch as many bytes in as much memory and do nothing else.
pub fn run() {
    println!(
        "connections   opening  memory of one   idle, one core   PING, one peer   PING, each peer   over the first   memory alone"
    );
    let mut first = None;
    for count in COUNTS {
        let memory = resident();
        let (mut host, mut peers, opening) = open(count);
        let memory = resident().saturating_sub(memory) / count;
        // Idle connections first: PINGs leave answers behind that nobody acknowledges.
        let idle = idle(&mut host, &mut peers);
        let one = pings(&mut host, &mut peers[..1]);
        let each = pings(&mut host, &mut peers);
        let (one_first, each_first) = *first.get_or_insert((one, each));
        println!(
            "{count:11} {:7.2} s {:10.1} KiB {:14.3} % {:13.2} us {:14.2} us   {:5.2} and {:.2} {:12.2} us",
            opening.as_secs_f64(),
            memory as f64 / 1_024.0,
            100.0 * idle,
            one,
            each,
            one / one_first,
            each / each_first,
            touching(count, memory.max(1 << 15))
        );
    }
}

/// Bytes of memory that this process has in use.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    pages.unwrap_or(0) * 4_096
}

/// An endpoint with so many connections, their peers, and how long it took to open them.
fn open(count: usize) -> (Host, Vec<Peer>, Duration) {
    let config = Config::builder().idle_timeout(Duration::from_secs(86_400)).build().expect("in range");
    let mut host = Host::new(config);
    let (mut peers, mut opening) = (Vec::with_capacity(count), Duration::ZERO);
    for nth in 0..count {
        // Slower than what is asked for a cookie.
        host.run_for(Duration::from_millis(20), &mut peers);
        let (peer, sent, time) = host.meet(nth);
        peers.push(peer);
        opening += time;
        host.answer(sent, &mut peers);
    }
    // The search of the packet size is over by then.
    host.run_for(Duration::from_secs(60), &mut peers);
    assert_eq!(host.endpoint.connections().count(), count);
    (host, peers, opening)
}

/// Microseconds of a PING, the peers taking turns.
fn pings(host: &mut Host, peers: &mut [Peer]) -> f64 {
    host.run_for(Duration::from_secs(30), peers);
    let mut turn = 0;
    let batches = (0..BATCHES).map(|_| {
        let pings: Vec<_> = (0..BATCH)
            .map(|_| {
                turn = (turn + 1) % peers.len();
                (peers[turn].from, peers[turn].ping())
            })
            .collect();
        let began = Instant::now();
        for (from, mut ping) in pings {
            host.now += Duration::from_micros(500);
            host.endpoint.handle_datagram(Received { at: host.now, from, to: None, ecn: None, datagram: &mut ping });
            host.turn(|_, _| {});
        }
        began.elapsed().as_secs_f64() * 1e6 / BATCH as f64
    });
    batches.fold(f64::INFINITY, f64::min)
}

/// Microseconds for touching the bytes that a PING touches, in `count` pieces of memory of `size` bytes that
/// take turns.
fn touching(count: usize, size: usize) -> f64 {
    let page = size / RUNS;
    let mut memory = vec![1_u8; count * size];
    let mut turn = 0;
    let batches = (0..BATCHES).map(|_| {
        let began = Instant::now();
        for _ in 0..BATCH {
            turn = (turn + 1) % count;
            for run in 0..RUNS {
                let at = turn * size + run * page;
                memory[at..at + LINES_OF_RUN * LINE]
                    .iter_mut()
                    .step_by(LINE)
                    .for_each(|byte| *byte = byte.wrapping_add(1));
            }
        }
        began.elapsed().as_secs_f64() * 1e6 / BATCH as f64
    });
    let least = batches.fold(f64::INFINITY, f64::min);
    std::hint::black_box(&memory);
    least
}

/// Share of a core that is used while nothing comes.
fn idle(host: &mut Host, peers: &mut [Peer]) -> f64 {
    host.run_for(Duration::from_secs(30), peers);
    let began = Instant::now();
    host.run_for(IDLE, peers);
    began.elapsed().as_secs_f64() / IDLE.as_secs_f64()
}
