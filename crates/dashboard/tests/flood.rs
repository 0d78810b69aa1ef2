//! Readers that have the token open the channel of a job many times and read nothing: the job waits for none
//! of them, another page misses no step, and memory stays within the bounds of `docs/dashboard.md`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Duration;

use tidewire_dashboard::{Batch, Consumer, Dashboard, Observed};
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::trace::{PacketContent, TraceEvent};

/// Counts the bytes that all threads hold: those of the server too.
struct Counting;

static HELD: AtomicIsize = AtomicIsize::new(0);
static MOST: AtomicIsize = AtomicIsize::new(0);

fn count(bytes: isize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: every request goes to the system allocator unchanged; the counters do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Packets of a step: 10,000 a second.
const PACKETS: u64 = 1_000;
/// Bytes of a mark on the channel.
const MARK: usize = 32;
/// Pages at a time, and steps that wait for one.
const PAGES: usize = 8;
const WAITING: usize = 32;
/// Bytes of a step beside its marks.
const SAMPLE: usize = 2_048;
/// Steps before the flood, and during it: more than wait for a page. What is kept of all packets fits into
/// what the first ones took.
const BEFORE: u64 = 200;
const DURING: u64 = 60;

/// A job, its page, and the steps so far.
struct Job {
    page: Dashboard,
    steps: u64,
}

impl Job {
    /// A step of 100 ms.
    fn step(&mut self) {
        let at = Duration::from_millis(100 * self.steps);
        let event = |number| TraceEvent::PacketSent { number, bytes: 1_200, content: PacketContent::Control };
        let observed = |number| Observed { at, endpoint: 0, connection: ConnectionHandle(0), event: event(number) };
        let events = (self.steps * PACKETS..(self.steps + 1) * PACKETS).map(observed).collect();
        self.steps += 1;
        let batch = Batch { now: Duration::from_millis(100 * self.steps), events, dropped: 0 };
        self.page.take(&batch, 0).unwrap();
    }

    /// Asks for a file of the page or its channel, and returns the connection behind the status.
    fn ask(&self, what: &str) -> (String, TcpStream) {
        let (host, path) = self.page.url().strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut tcp = TcpStream::connect(host).unwrap();
        write!(tcp, "GET /{path}{what} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut status = [0; 12];
        tcp.read_exact(&mut status).unwrap();
        (String::from_utf8_lossy(&status[9..]).into_owned(), tcp)
    }
}

/// A page that reads all, and the bytes that it read.
struct Reader(TcpStream, Vec<u8>);

impl Reader {
    /// Reads until it has the marks of this many packets.
    fn read(&mut self, packets: u64) {
        while self.1.len() < packets as usize * MARK {
            let before = self.1.len();
            self.1.resize(before + (1 << 16), 0);
            let read = self.0.read(&mut self.1[before..]).unwrap();
            assert!(read > 0, "the channel ended after {before} bytes");
            self.1.truncate(before + read);
        }
    }
}

#[test]
fn pages_that_are_never_read_take_nothing_from_the_job_and_a_bounded_memory() {
    let page = Dashboard::open(([127, 0, 0, 1], 0).into(), "flood", || None).unwrap();
    let mut job = Job { page, steps: 0 };
    (0..BEFORE).for_each(|_| job.step());
    let (status, tcp) = job.ask("stream");
    assert_eq!(status, "200");
    let mut honest = Reader(tcp, Vec::with_capacity(64 << 20));
    honest.read(BEFORE * PACKETS);
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let asked: Vec<_> = (0..200).map(|_| job.ask("stream")).collect();
    let stalled: Vec<_> = asked.into_iter().filter(|(status, _)| status == "200").collect();
    assert_eq!(stalled.len(), PAGES - 1);
    for _ in 0..DURING {
        job.step();
        honest.read(job.steps * PACKETS);
    }
    // The page itself is served meanwhile, and further channels are refused.
    assert_eq!((job.ask("").0, job.ask("main.js").0, job.ask("stream").0), ("200".into(), "200".into(), "503".into()));
    let dropped = honest.1.windows(11).filter(|bytes| *bytes == b"{\"dropped\":").count();
    assert_eq!(dropped, 0, "the page that reads missed steps");
    let most = MOST.load(Ordering::Relaxed) - before;
    let first = BEFORE as usize * (PACKETS as usize * MARK + SAMPLE);
    let waits = WAITING * (PACKETS as usize * MARK + SAMPLE);
    println!("{most} bytes for {PAGES} pages, each {first} at first and {waits} later");
    // One page reads; its part covers the buffers of the connections.
    assert!(most as usize <= PAGES * (first + waits), "{most} bytes");
    // Their places return when they leave.
    drop(stalled);
    let again = (0..10_000).any(|_| {
        job.step();
        honest.read(job.steps * PACKETS);
        job.ask("stream").0 == "200"
    });
    assert!(again, "no place returned");
    drop(honest);
    job.page.end().unwrap();
}
