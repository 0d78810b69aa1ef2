//! A stream of small records that never waits leaves the task of its reader and of its writer now and then,
//! so that a request to end and the progress beside it are heard.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tidewire_transfer::{Record, RecordReader, RecordWriter, TransferError};
use tokio::io::{AsyncRead, ReadBuf, sink};

/// Records that are ready.
const READY: usize = 10_000;
/// Most of them in a turn. Chosen in `record.rs`: 16.
const TURN: usize = 16;

/// The records of a peer, which are all there. It counts nothing against the budget of a task.
struct Endless(Vec<u8>, usize);

impl AsyncRead for Endless {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let bytes = &self.0[self.1..];
        let taken = bytes.len().min(buffer.remaining());
        buffer.put_slice(&bytes[..taken]);
        self.1 += taken;
        Poll::Ready(Ok(()))
    }
}

/// `READY` records with this type and body, behind a magic.
fn endless(kind: u8, body: &[u8]) -> Endless {
    let record = [&[kind][..], &(body.len() as u32).to_be_bytes(), body].concat();
    Endless([b"TWFILES\x03", &record.repeat(READY)[..]].concat(), 0)
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn now<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits for nothing"),
    }
}

/// Counts the steps of each turn until one is not ready. The first step may find a turn begun.
fn turns(mut step: impl FnMut() -> bool) -> [usize; 3] {
    [(); 3].map(|()| (0..READY).take_while(|_| step()).count())
}

#[test]
fn a_reader_of_endless_records_is_left() {
    // ZEROS of one byte, which cost a hash each.
    let mut reader = now(RecordReader::open(endless(0x08, &1_u32.to_be_bytes()))).unwrap();
    let counted = turns(|| matches!(poll(pin!(reader.next())), Poll::Ready(Ok(Record::Zeros(1)))));
    assert!(counted.iter().all(|steps| (1..=TURN).contains(steps)), "{counted:?}");
}

/// Records that are skipped never leave the loop of the reader.
#[test]
fn a_reader_of_endless_records_that_are_skipped_is_left() {
    let mut reader = now(RecordReader::open(endless(0x80, b"skipped"))).unwrap();
    let mut polls = 0;
    let mut next = pin!(reader.next());
    let ended = loop {
        polls += 1;
        if let Poll::Ready(ended) = poll(next.as_mut()) {
            break ended.map(|_| ());
        }
    };
    assert!(matches!(ended, Err(TransferError::Truncated)), "{ended:?}");
    assert!(polls >= READY / TURN, "{polls} turns for {READY} records");
}

#[test]
fn a_writer_of_endless_records_is_left() {
    let mut writer = now(RecordWriter::open(sink())).unwrap();
    let counted = turns(|| poll(pin!(writer.write(&Record::Zeros(1)))).is_ready());
    assert!(counted.iter().all(|steps| (1..=TURN).contains(steps)), "{counted:?}");
    let chunks = turns(|| poll(pin!(writer.write_chunk(9, |_| Ok(9)))).is_ready());
    assert!(chunks.iter().all(|steps| (1..=TURN).contains(steps)), "{chunks:?}");
}
