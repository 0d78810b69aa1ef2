//! Two hundred TCP connections over one Tidewire connection. One of them is never read, and the answers of
//! the others arrive as before. `cargo measure figures forward` measures how much later they arrive, to the
//! tenth of a millisecond. The bounds here are wide enough for a busy machine.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::forward::{forward, serve};
use crate::process::lossy_link;

/// Bytes of a question and of its answer.
const LENGTH: usize = 100;
/// The first byte of a connection says which kind it is.
const ANSWERED: u8 = 0;
const NEVER_READ: u8 = 1;

/// Starts a target that returns the bytes it receives, except on the connection that is never read.
fn start_target() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut unread = Vec::new();
        for mut client in listener.incoming().map_while(Result::ok) {
            client.set_nodelay(true).unwrap();
            let mut kind = [0];
            client.read_exact(&mut kind).unwrap();
            if kind == [NEVER_READ] {
                unread.push(client);
                continue;
            }
            thread::spawn(move || {
                let mut bytes = [0; LENGTH];
                while client.read_exact(&mut bytes).and_then(|()| client.write_all(&bytes)).is_ok() {}
            });
        }
    });
    address
}

fn open(local: &str, kind: u8) -> TcpStream {
    let mut stream = TcpStream::connect(local).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(&[kind]).unwrap();
    stream
}

/// Writes until nothing is accepted for a second.
fn fill(stream: &mut TcpStream) -> usize {
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut taken = 0;
    loop {
        match stream.write(&[7; 16 << 10]) {
            Ok(more) => taken += more,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                return taken;
            }
        }
    }
}

/// Each connection asks and waits for its answer, `rounds` times. Returns the median and the 99th percentile
/// of the time that takes.
fn ask(streams: &mut [TcpStream], rounds: usize) -> [Duration; 2] {
    let ask = |stream: &mut TcpStream| {
        let mut answer = [0; LENGTH];
        let took = (0..rounds).map(|round| {
            let asked = Instant::now();
            stream.write_all(&[round as u8; LENGTH]).unwrap();
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [round as u8; LENGTH]);
            asked.elapsed()
        });
        took.collect::<Vec<_>>()
    };
    let mut took: Vec<Duration> = thread::scope(|scope| {
        let asking: Vec<_> = streams.iter_mut().map(|stream| scope.spawn(move || ask(stream))).collect();
        asking.into_iter().flat_map(|asking| asking.join().unwrap()).collect()
    });
    took.sort();
    [took[took.len() / 2], took[took.len() * 99 / 100]]
}

#[test]
#[ignore = "slow: waits in real time"]
fn two_hundred_connections_do_not_notice_the_one_that_is_never_read() {
    let rounds = if tidewire_testing::few_seeds() { 8 } else { 40 };
    let target = start_target();
    let (_server, direct) = serve(&[&target], &[]);
    let (_proxy, link) = lossy_link(&direct, &["--rate", "50mbit", "--rtt", "40ms"]);
    let (_client, local) = forward(&target, &link);
    let mut unread = open(&local, NEVER_READ);
    let mut others: Vec<TcpStream> = (1..200).map(|_| open(&local, ANSWERED)).collect();
    // Runs until all are connected and the path is known.
    ask(&mut others, rounds);
    let before = ask(&mut others, rounds);
    let taken = fill(&mut unread);
    let beside = ask(&mut others, rounds);
    println!("p50 and p99 were {before:?}, and beside {taken} bytes that nobody reads {beside:?}");
    assert!(taken > 200_000, "{taken} bytes do not fill a stream");
    // A stream that blocked the others would stop them, or delay them by many round trips.
    assert!(beside[0] < before[0] + Duration::from_millis(200), "{before:?}, then {beside:?}");
    assert!(beside[1] < before[1] + Duration::from_secs(1), "{before:?}, then {beside:?}");
}
