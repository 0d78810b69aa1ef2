//! The applications at both ends of a forwarding, in this process: TCP connections with records that carry
//! the time at which they were made.
//!
//! One thread writes to all connections in turn, and one thread for each connection reads. Both ends share
//! one clock, so that a delay holds no clock difference. Invariant: a record that waits for the one before it
//! keeps the time at which it was due.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidewire_figures::ascending;

/// Bytes of the time at the beginning of a record.
const TIME: usize = 8;
/// Bytes read at once: more than what arrives within a millisecond.
const BUFFER: usize = 16 << 10;
/// Stack of a reading thread, in bytes.
const STACK: usize = 128 << 10;

/// A record that arrived whole, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// The time at which it was made, since the epoch of the run.
    pub made: Duration,
    /// The time from then until its last byte was read.
    pub delay: Duration,
}

/// The records that are written.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Bytes of a record.
    pub length: usize,
    /// Time from one record to the next, over all connections.
    pub gap: Duration,
}

/// Writes records to `streams` in turn until `stop` is set, then ends the streams. Returns the number of
/// records.
pub fn write_records(epoch: Instant, streams: &mut [TcpStream], load: Load, stop: &AtomicBool) -> io::Result<u64> {
    let mut record = vec![0x5a; load.length];
    let (mut due, mut awake) = (Instant::now(), Instant::now());
    for (turn, count) in (0..streams.len()).cycle().zip(0..) {
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            thread::sleep(early);
            awake = Instant::now();
        }
        if stop.load(Ordering::Relaxed) {
            streams.iter().try_for_each(|stream| stream.shutdown(Shutdown::Write))?;
            return Ok(count);
        }
        // A late wake-up of this thread delays the making of the record; a write that blocks counts as its
        // delay.
        let made = due.max(awake).duration_since(epoch).as_nanos() as u64;
        record[..TIME].copy_from_slice(&made.to_be_bytes());
        streams[turn].write_all(&record)?;
        due += load.gap;
    }
    Ok(0)
}

/// Reads the records of a connection until its end.
pub fn read_records(epoch: Instant, mut stream: TcpStream, length: usize) -> io::Result<Vec<Arrival>> {
    let (mut buffer, mut filled) = (vec![0; BUFFER.max(length)], 0);
    let mut arrivals = Vec::new();
    loop {
        let more = stream.read(&mut buffer[filled..])?;
        let now = epoch.elapsed();
        if more == 0 {
            return Ok(arrivals);
        }
        filled += more;
        let whole = filled - filled % length;
        for record in buffer[..whole].chunks_exact(length) {
            let made = Duration::from_nanos(u64::from_be_bytes(std::array::from_fn(|index| record[index])));
            arrivals.push(Arrival { made, delay: now.saturating_sub(made) });
        }
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
}

/// Reads the records of a connection in a thread of its own.
pub fn reader(epoch: Instant, stream: TcpStream, length: usize) -> io::Result<JoinHandle<io::Result<Vec<Arrival>>>> {
    thread::Builder::new().stack_size(STACK).spawn(move || read_records(epoch, stream, length))
}

/// Writes until no byte has been accepted for `patience`. Returns the number of bytes accepted.
pub fn fill(stream: &mut TcpStream, patience: Duration) -> io::Result<u64> {
    stream.set_write_timeout(Some(patience))?;
    let mut taken = 0;
    loop {
        match stream.write(&[0x5a; BUFFER]) {
            Ok(more) => taken += more as u64,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(taken);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Mean, p50, p95 and p99 of the delays beyond `one_way`, in milliseconds; NaN without arrivals.
pub fn delays(arrivals: impl Iterator<Item = Arrival>, one_way: Duration) -> [f64; 4] {
    let one_way = one_way.as_secs_f64();
    let delays = ascending(arrivals.map(|arrival| 1e3 * (arrival.delay.as_secs_f64() - one_way)));
    let quantile = |q: f64| tidewire_figures::quantile(&delays, q).unwrap_or(f64::NAN);
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    [mean, quantile(0.5), quantile(0.95), quantile(0.99)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn every_record_arrives_and_the_end_of_the_stream_ends_the_reader() {
        let epoch = Instant::now();
        let (mut near, far): (Vec<_>, Vec<_>) = (0..3).map(|_| pair()).unzip();
        let readers: Vec<_> = far.into_iter().map(|far| reader(epoch, far, 1_200).unwrap()).collect();
        let stop = AtomicBool::new(false);
        let load = Load { length: 1_200, gap: Duration::from_micros(100) };
        let written = thread::scope(|scope| {
            let writer = scope.spawn(|| write_records(epoch, &mut near, load, &stop));
            while epoch.elapsed() < Duration::from_millis(20) {
                thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap().unwrap()
        });
        let arrived: Vec<Vec<Arrival>> = readers.into_iter().map(|reader| reader.join().unwrap().unwrap()).collect();
        assert_eq!(arrived.iter().map(Vec::len).sum::<usize>() as u64, written);
        assert!(arrived.iter().all(|one| one.windows(2).all(|pair| pair[0].made <= pair[1].made)));
    }

    #[test]
    fn records_are_found_whatever_the_sizes_of_the_reads() {
        let (mut near, far) = pair();
        let epoch = Instant::now();
        let reader = reader(epoch, far, 20).unwrap();
        let bytes: Vec<u8> = (1..=5_u64).flat_map(|time| [&time.to_be_bytes()[..], &[0xff; 12]].concat()).collect();
        near.set_nodelay(true).unwrap();
        for part in bytes[..99].chunks(7) {
            near.write_all(part).unwrap();
            thread::yield_now();
        }
        drop(near);
        let made: Vec<_> = reader.join().unwrap().unwrap().iter().map(|arrival| arrival.made.as_nanos()).collect();
        assert_eq!(made, [1, 2, 3, 4]);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_delays() {
        let ms = Duration::from_millis;
        let arrivals = (1..=100).rev().map(|n| Arrival { made: ms(0), delay: ms(30 + n) });
        assert_eq!(delays(arrivals, ms(30)).map(f64::round), [51.0, 50.0, 95.0, 99.0]);
        assert!(delays(std::iter::empty(), ms(30)).iter().all(|figure| figure.is_nan()));
    }
}
