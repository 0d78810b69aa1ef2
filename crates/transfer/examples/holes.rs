//! What holes cost: how fast a file of holes is sent and received, and the share of a core that a hostile
//! sender of ZEROS records takes at the receiver (docs/transfer.md section 4).
//!
//!     cargo run --release -p tidewire-transfer --example holes [GIBIBYTES [MBIT]]

use std::fs::File;
use std::time::{Duration, Instant};

use blake3::hazmat::HasherExt;
use tidewire_transfer::{
    Attributes, Destination, Encoding, Entry, GROUP, Key, Kind, Look, MAX_RECORD, Reason, Record, RecordWriter,
    receive, scan, send,
};
use tokio::io::{AsyncReadExt, DuplexStream, duplex, split};
use tokio::time::{Instant as Tick, sleep_until};

/// Groups of a file of the hostile sender. It has computed their values before.
const GROUPS: u64 = 16;
/// How long the hostile sender works.
const SECONDS: u64 = 10;
/// Records are sent in bundles of this time.
const BUNDLE: Duration = Duration::from_millis(10);

type Error = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let gibibytes: u64 = arguments.next().map_or(Ok(32), |text| text.parse())?;
    let mbit: f64 = arguments.next().map_or(Ok(2.6), |text| text.parse())?;
    honest(gibibytes).await?;
    let marks: Vec<_> = (0..GROUPS).map(mark).collect();
    hostile(&marks, Some(mbit)).await?;
    hostile(&marks, None).await
}

/// Sends a file that is one hole.
async fn honest(gibibytes: u64) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let (path, size) = (folder.path().join("hole"), gibibytes << 30);
    File::create(&path)?.set_len(size)?;
    let (found, destination) = (scan(&[path])?, Destination::open(&folder.path().join("to"))?);
    let (near, far) = duplex(1 << 20);
    let began = Instant::now();
    let (sent, received) = tokio::join!(send(near, &found, &|_| {}), receive(far, &destination, None, &|_| {}));
    sent?;
    received?;
    let seconds = began.elapsed().as_secs_f64();
    println!("a hole of {gibibytes} GiB: {seconds:.1} s, {:.2} GB/s", size as f64 / seconds / 1e9);
    Ok(())
}

/// Sends ZEROS records at this rate, or as fast as they are taken.
async fn hostile(marks: &[[u8; 32]], mbit: Option<f64>) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let destination = Destination::open(folder.path())?;
    let (near, far) = duplex(1 << 16);
    let before = processor_time()?;
    let sender = tokio::spawn(flood(near, marks.to_vec(), mbit));
    // It ends when the sender does.
    let _ = receive(far, &destination, None, &|_| {}).await;
    let bytes = sender.await?? as f64;
    let share = (processor_time()? - before).as_secs_f64() / SECONDS as f64;
    let rate = mbit.map_or("any rate".to_owned(), |mbit| format!("{mbit} Mbit/s"));
    println!("ZEROS at {rate}: {:.0} % of a core, {:.2} GB/s", 100.0 * share, bytes / SECONDS as f64 / 1e9);
    Ok(())
}

async fn flood(near: DuplexStream, marks: Vec<[u8; 32]>, mbit: Option<f64>) -> std::io::Result<u64> {
    let (mut read, write) = split(near);
    tokio::spawn(async move { while read.read_u8().await.is_ok() {} });
    let mut records = RecordWriter::open(write).await.map_err(std::io::Error::other)?;
    let each = mbit.map(|mbit| mbit * 1e6 / 8.0 / 9.0 * BUNDLE.as_secs_f64());
    let (began, mut sent, mut bytes) = (Tick::now(), 0.0, 0);
    let total = Record::Total { files: 0, bytes: 0, job: Key::default() };
    records.write(&total).await.map_err(std::io::Error::other)?;
    for id in 0.. {
        for record in file(id, &marks) {
            if began.elapsed() > Duration::from_secs(SECONDS) {
                records.close().await.map_err(std::io::Error::other)?;
                return Ok(bytes);
            }
            // A receiver that rests takes nothing meanwhile.
            let write = tokio::time::timeout(Duration::from_secs(SECONDS), records.write(&record));
            let Ok(Ok(())) = write.await else { return Ok(bytes) };
            bytes += if let Record::Zeros(length) = record { u64::from(length) } else { 0 };
            sent += 1.0;
            if let Some(each) = each {
                sleep_until(began + BUNDLE.mul_f64((sent / each).floor())).await;
            }
        }
    }
    Ok(bytes)
}

/// The records of a file that is aborted.
fn file(id: u32, marks: &[[u8; 32]]) -> Vec<Record<'static>> {
    let path = format!("{id}").into_bytes();
    let (size, source) = (1 << 40, Key::of_path(&path));
    let look = Look { id, kind: Kind::File, encoding: Encoding::Utf8, size, source, path };
    let entry = Entry { id, attributes: Attributes::default(), size, offset: 0, source };
    let mut records = vec![Record::Look(look), Record::Entry(entry)];
    for mark in marks {
        records.extend((0..GROUP / MAX_RECORD as u64).map(|_| Record::Zeros(MAX_RECORD as u32)));
        records.push(Record::Mark(*mark));
    }
    records.push(Record::Abort(Reason::Aborted));
    records
}

/// The chaining value of a group of zeros.
fn mark(group: u64) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(group * GROUP).update(&vec![0; GROUP as usize]);
    hasher.finalize_non_root()
}

/// Processor time of this process.
fn processor_time() -> Result<Duration, Error> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(10 * ticks))
}
