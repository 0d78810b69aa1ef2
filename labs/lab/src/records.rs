//! Numbered records from the near host to the far one, over anything that carries bytes or datagrams between
//! two sockets.
//!
//! [`Trial`](crate::trial::Trial) makes the sockets and runs both ends, each in a thread, so that one clock
//! tells when a record was made and when it arrived. A record has its number, the time at which it was made,
//! and bytes that follow from its number and cannot be compressed. A record that could not be written at its
//! time, because the one before still waited, was still made at its time: waiting for the path is delay.
//! Without a rate, a record is made when the socket has room. Invariant: a record counts once, and only if it
//! arrived complete and unchanged, over a stream also in order.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use tidewire_codec::SplitMix64;
use tidewire_proxy::punctual::be_prompt;

/// Bytes of a record's number and time.
const HEAD: usize = 16;
/// How long a call blocks until the end checks whether the run is over. Chosen: little compared to a run.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);
/// Bytes per read.
const BUFFER: usize = 64 << 10;
/// The number of records while more are made.
const UNKNOWN: u64 = u64::MAX;
/// Maximum number of consecutive lost datagrams that is plausible: minutes at any rate measured here.
const MOST_MISSING: u64 = 1 << 20;
/// Longest UDP payload (RFC 768).
const LONGEST: usize = 65_535;

/// The records to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Emission {
    /// Length of a record in bytes.
    pub(crate) bytes: usize,
    /// Interval between records; `None` means as fast as they are accepted.
    pub(crate) every: Option<Duration>,
    /// How long records are made.
    pub(crate) time: Duration,
    /// How long to wait for the last of them.
    pub(crate) grace: Duration,
}

/// The socket at which records enter or leave.
#[derive(Debug)]
pub(crate) enum Way {
    Stream(TcpStream),
    Datagrams(UdpSocket),
}

/// A record that arrived. Times count from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) made: Duration,
    pub(crate) arrived: Duration,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Records that were due, or without a rate accepted.
    pub(crate) made: u64,
    /// The records that arrived.
    pub(crate) arrivals: Vec<Arrival>,
}

impl Emission {
    /// Runs both ends.
    ///
    /// # Errors
    /// Fails if a socket fails, or if the received bytes are not those that were sent.
    pub(crate) fn run(&self, near: Way, far: Way) -> io::Result<Outcome> {
        near.set_patience()?;
        far.set_patience()?;
        let (begin, all_made) = (Instant::now(), AtomicU64::new(UNKNOWN));
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| self.take(far, begin, &all_made));
            let making = scope.spawn(|| {
                let made = self.make(&near, begin);
                all_made.store(*made.as_ref().unwrap_or(&0), Ordering::Release);
                made
            });
            // A panic of either thread is passed on.
            let both = making.join().and_then(|made| Ok((made, taking.join()?)));
            let (made, arrivals) = both.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(Outcome { made: made?, arrivals: arrivals? })
        })
    }

    /// Makes records until the time is over. Returns how many were due.
    fn make(&self, to: &Way, begin: Instant) -> io::Result<u64> {
        be_prompt();
        let end = begin + self.time;
        let (mut record, mut number, mut awake, mut is_open) = (vec![0; self.bytes], 0, begin, true);
        loop {
            if self.every.is_none() {
                to.await_room(end)?;
            }
            let due = self.every.map_or_else(Instant::now, |every| begin + every.mul_f64(number as f64));
            if due >= end {
                return Ok(number);
            }
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                std::thread::sleep(wait);
                awake = Instant::now();
            }
            // A thread that wakes late makes its record late. A thread that waits for a write is late with
            // the next one.
            fill(&mut record, number, due.max(awake) - begin);
            // A record that was not accepted before the end was due, and does not arrive.
            is_open = is_open && to.write(&record, end)?;
            number += 1;
        }
    }

    /// Takes records until the last has arrived or the wait is over.
    fn take(&self, from: Way, begin: Instant, all_made: &AtomicU64) -> io::Result<Vec<Arrival>> {
        be_prompt();
        let end = begin + self.time + self.grace;
        let is_over = |taken: usize| match all_made.load(Ordering::Acquire) {
            UNKNOWN => false,
            made => taken as u64 >= made || Instant::now() >= end,
        };
        let mut sorter = Sorter::new(self.bytes);
        match from {
            Way::Stream(_) => {
                // There is room behind a record of which all but one byte has arrived.
                let (mut buffer, mut kept) = (vec![0; BUFFER + self.bytes], 0);
                while !is_over(sorter.arrivals.len()) {
                    // The rest of a record stays before the next bytes.
                    let length = match from.read(&mut buffer[kept..])? {
                        Some(0) => break,
                        Some(length) => kept + length,
                        None => continue,
                    };
                    let arrived = begin.elapsed();
                    let whole = length - length % self.bytes;
                    for record in buffer[..whole].chunks(self.bytes) {
                        sorter.take_next(record, arrived)?;
                    }
                    buffer.copy_within(whole..length, 0);
                    kept = length - whole;
                }
            }
            Way::Datagrams(_) => {
                let mut buffer = vec![0; LONGEST];
                while !is_over(sorter.arrivals.len()) {
                    match from.read(&mut buffer)? {
                        // Shorter ones tried the path.
                        Some(length) if length >= self.bytes => sorter.take_any(&buffer[..length], begin.elapsed())?,
                        Some(_) | None => {}
                    }
                }
            }
        }
        Ok(sorter.arrivals)
    }
}

impl Way {
    /// Makes the calls return after [`PATIENCE`], whatever happens.
    pub(crate) fn set_patience(&self) -> io::Result<()> {
        match self {
            Self::Stream(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))
            }
            Self::Datagrams(socket) => socket.set_read_timeout(Some(PATIENCE)),
        }
    }

    /// Waits until there is room for another record, or until `end`.
    fn await_room(&self, end: Instant) -> io::Result<()> {
        let Self::Stream(stream) = self else { return Ok(()) };
        let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
        while Instant::now() < end {
            let mut room = [PollFd::new(stream, PollFlags::OUT)];
            match poll(&mut room, Some(&patience)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes a record. Returns `false` if it was not accepted before `end`; nothing more can be written
    /// then.
    pub(crate) fn write(&self, mut record: &[u8], end: Instant) -> io::Result<bool> {
        let mut stream = match self {
            Self::Stream(stream) => stream,
            // A datagram that is refused is lost, like any other that does not arrive.
            Self::Datagrams(socket) => {
                let _ = socket.send(record);
                return Ok(true);
            }
        };
        while !record.is_empty() {
            match stream.write(record) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => record = &record[written..],
                Err(error) if is_silence(&error) && Instant::now() < end => {}
                Err(error) if is_silence(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads bytes or one datagram. Returns `None` if nothing came within [`PATIENCE`], and 0 at the end of a
    /// stream.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let read = match self {
            Self::Stream(stream) => (&mut &*stream).read(buffer),
            Self::Datagrams(socket) => socket.recv(buffer),
        };
        match read {
            Ok(length) => Ok(Some(length)),
            Err(error) if is_silence(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Writes record `number` into a buffer.
fn fill(record: &mut [u8], number: u64, made: Duration) {
    record[..8].copy_from_slice(&number.to_be_bytes());
    record[8..HEAD].copy_from_slice(&(made.as_nanos() as u64).to_be_bytes());
    // Bytes that cannot be compressed.
    SplitMix64::new(number).fill(&mut record[HEAD..]);
}

/// Checks and counts arriving records.
struct Sorter {
    arrivals: Vec<Arrival>,
    /// Whether a datagram with this number has arrived.
    seen: Vec<bool>,
    /// The correct bytes of a record.
    wanted: Vec<u8>,
}

impl Sorter {
    fn new(bytes: usize) -> Self {
        Self { arrivals: Vec::new(), seen: Vec::new(), wanted: vec![0; bytes] }
    }

    /// Takes the next record of a stream.
    fn take_next(&mut self, record: &[u8], arrived: Duration) -> io::Result<()> {
        let number = self.arrivals.len() as u64;
        self.check(record, number, arrived)
    }

    /// Takes a datagram, in any order.
    fn take_any(&mut self, record: &[u8], arrived: Duration) -> io::Result<()> {
        let number = field(record, 0);
        let next = self.seen.len() as u64;
        // A number far ahead cannot be right. `check` would find that only after the table had grown to it.
        if number >= next + MOST_MISSING {
            return Err(changed(number));
        }
        if number >= next {
            self.seen.resize(number as usize + 1, false);
        }
        match std::mem::replace(&mut self.seen[number as usize], true) {
            true => Ok(()),
            false => self.check(record, number, arrived),
        }
    }

    fn check(&mut self, record: &[u8], number: u64, arrived: Duration) -> io::Result<()> {
        let made = Duration::from_nanos(field(record, 8));
        fill(&mut self.wanted, number, made);
        if self.wanted != record {
            return Err(changed(number));
        }
        self.arrivals.push(Arrival { made, arrived });
        Ok(())
    }
}

fn field(record: &[u8], at: usize) -> u64 {
    record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes)
}

fn changed(number: u64) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("what arrived as record {number} is not what was sent"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const BYTES: usize = 100;

    fn record(number: u64) -> Vec<u8> {
        let mut record = vec![0; BYTES];
        fill(&mut record, number, Duration::from_millis(number));
        record
    }

    fn stream() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn all_that_is_due_arrives_over_a_stream() {
        let (near, far) = stream();
        let time = Duration::from_millis(100);
        let plan =
            Emission { bytes: BYTES, every: Some(Duration::from_millis(2)), time, grace: Duration::from_millis(100) };
        let outcome = plan.run(Way::Stream(near), Way::Stream(far)).unwrap();
        assert_eq!((outcome.made, outcome.arrivals.len()), (50, 50));
        let is_due = |(number, arrival): (usize, &Arrival)| {
            arrival.made >= Duration::from_millis(2 * number as u64) && arrival.arrived >= arrival.made
        };
        assert!(outcome.arrivals.iter().enumerate().all(is_due));
    }

    #[test]
    fn a_record_longer_than_a_read_arrives_as_one() {
        let (near, far) = stream();
        let (every, time) = (Some(Duration::from_millis(10)), Duration::from_millis(40));
        let plan = Emission { bytes: 3 * BUFFER, every, time, grace: Duration::from_secs(20) };
        let outcome = plan.run(Way::Stream(near), Way::Stream(far)).unwrap();
        assert_eq!((outcome.made, outcome.arrivals.len()), (4, 4));
    }

    #[test]
    fn a_stream_that_takes_nothing_is_late_and_not_waited_for() {
        let (near, far) = stream();
        let (time, grace) = (Duration::from_millis(120), Duration::ZERO);
        // Nobody reads, and the kernel buffers less than what is due.
        let (plan, begin) =
            (Emission { bytes: 1 << 20, every: Some(Duration::from_millis(1)), time, grace }, Instant::now());
        let way = Way::Stream(near);
        way.set_patience().unwrap();
        assert_eq!(plan.make(&way, begin).unwrap(), 120);
        drop(far);
    }

    #[test]
    fn room_is_waited_for_as_long_as_there_is_none() {
        let (mut near, mut far) = stream();
        near.set_nonblocking(true).unwrap();
        let mut full = 0;
        while let Ok(written) = near.write(&[0; BUFFER]) {
            full += written;
        }
        let (way, begin) = (Way::Stream(near), Instant::now());
        way.await_room(begin + PATIENCE / 2).unwrap();
        assert!(begin.elapsed() >= PATIENCE / 2);
        // Long before it would give up.
        let end = Instant::now() + Duration::from_secs(60);
        far.read_exact(&mut vec![0; full]).unwrap();
        way.await_room(end).unwrap();
        assert!(Instant::now() < end);
    }

    #[test]
    fn without_a_rate_no_more_is_made_than_there_is_room_for() {
        let (near, far) = stream();
        let time = Duration::from_millis(120);
        let plan = Emission { bytes: 1 << 20, every: None, time, grace: Duration::ZERO };
        let way = Way::Stream(near);
        way.set_patience().unwrap();
        // Nobody reads, so only what the kernel buffers is made, except the record that did not fit.
        let made = plan.make(&way, Instant::now()).unwrap();
        assert!((1..120).contains(&made), "{made}");
        drop(far);
    }

    #[test]
    fn records_are_found_however_the_bytes_come_and_must_be_right() {
        let mut sorter = Sorter::new(BYTES);
        sorter.take_next(&record(0), Duration::from_secs(1)).unwrap();
        assert!(sorter.take_next(&record(2), Duration::from_secs(1)).is_err());
        let mut wrong = record(1);
        wrong[99] ^= 1;
        let error = sorter.take_next(&wrong, Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.to_string(), "what arrived as record 1 is not what was sent");
        sorter.take_next(&record(1), Duration::from_secs(1)).unwrap();
        assert_eq!(sorter.arrivals[1].made, Duration::from_millis(1));
    }

    #[test]
    fn datagrams_count_once_in_any_order() {
        let mut sorter = Sorter::new(BYTES);
        for number in [3, 1, 3, 0] {
            sorter.take_any(&record(number), Duration::from_secs(1)).unwrap();
        }
        assert_eq!(sorter.arrivals.len(), 3);
        assert!(sorter.take_any(&record(MOST_MISSING + 4), Duration::ZERO).is_err());
    }
}
