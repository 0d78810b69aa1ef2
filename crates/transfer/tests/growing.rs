//! Files that grow, over a pipe in memory: what a file has when it is listed is sent, and a later job
//! sends what was added.
#![cfg(target_os = "linux")]

mod cut_off;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use tidewire::{PrivateKey, PublicKey};
use tidewire_transfer::{
    Destination, Encoding, Event, GROUP, Have, Key, Kind, Links, Look, Outcome, Reason, Record, RecordReader,
    RecordWriter, Scanning, receive, scan_with, send,
};
use tokio::io::{duplex, split};

use cut_off::cut_off;

const GROWING: Scanning = Scanning { links: Links::Skip, growing: true };

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap().block_on(future)
}

fn public(seed: u8) -> PublicKey {
    PrivateKey::new([seed; 32]).public()
}

fn content(bytes: u64) -> Vec<u8> {
    let mut content = vec![0; bytes as usize];
    blake3::Hasher::new().update(b"growing").finalize_xof().fill(&mut content);
    content
}

fn append(path: &Path, bytes: &[u8]) {
    fs::File::options().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

/// What a job did.
#[derive(Debug, Default)]
struct Seen {
    moved: u64,
    resumed: u64,
    failed: Vec<Reason>,
}

/// Sends `path` as the peer `seed`, while `meanwhile` sees each event of the sender. Returns the sender's
/// outcome and what the receiver saw.
fn transfer(
    path: &Path,
    to: &Path,
    seed: u8,
    scanning: Scanning,
    meanwhile: &(dyn Fn(&Event<'_>) + Sync),
) -> (Outcome, Seen) {
    let found = scan_with(&[path.to_owned()], scanning).unwrap();
    let destination = Destination::open(to).unwrap();
    let seen = Mutex::new(Seen::default());
    let (near, far) = duplex(100_000);
    let sent = run(async {
        let watch = |event: Event<'_>| {
            let mut seen = seen.lock().unwrap();
            match event {
                Event::Bytes(bytes) => seen.moved += bytes,
                Event::Resumed { offset, .. } => seen.resumed += offset,
                Event::Changed { withdrawn, .. } => seen.resumed -= withdrawn,
                Event::Failed(failure) => seen.failed.push(failure.reason),
                _ => {}
            }
        };
        let watch_here = |event: Event<'_>| meanwhile(&event);
        let peer = public(seed);
        tokio::join!(send(near, &found, &watch_here), receive(far, &destination, Some(&peer), &watch)).0
    });
    (sent.unwrap(), seen.into_inner().unwrap())
}

/// What a receiver has of a longer log for the peer `seed`.
fn asked(to: &Path, seed: u8) -> Have {
    let destination = Destination::open(to).unwrap();
    let (near, far) = duplex(100_000);
    run(async {
        let asking = async {
            let (read, write) = split(near);
            let mut records = RecordWriter::open(write).await.unwrap();
            records.write(&Record::Total { files: 1, bytes: 1, job: Key::default() }).await.unwrap();
            let (id, kind, encoding, path) = (0, Kind::File, Encoding::Utf8, b"log".to_vec());
            let look = Look { id, kind, encoding, size: 9 * GROUP, source: Key([7; 16]), path };
            records.write(&Record::Look(look)).await.unwrap();
            match RecordReader::open(read).await.unwrap().next().await.unwrap() {
                Record::Have { have, .. } => have,
                other => panic!("{other:?}"),
            }
        };
        let peer = public(seed);
        tokio::select! {
            have = asking => have,
            received = receive(far, &destination, Some(&peer), &|_| {}) => panic!("{received:?}"),
        }
    })
}

struct Stage {
    from: tempfile::TempDir,
    to: tempfile::TempDir,
}

impl Stage {
    /// Two folders, and a log of this size.
    fn new(bytes: u64) -> (Self, PathBuf) {
        let stage = Self { from: tempfile::tempdir().unwrap(), to: tempfile::tempdir().unwrap() };
        let path = stage.from.path().join("log");
        fs::write(&path, content(bytes)).unwrap();
        (stage, path)
    }

    fn send(&self, path: &Path, seed: u8) -> (Outcome, Seen) {
        transfer(path, self.to.path(), seed, GROWING, &|_| {})
    }

    fn arrived(&self) -> Vec<u8> {
        fs::read(self.to.path().join("log")).unwrap()
    }
}

#[test]
fn what_a_file_has_when_it_is_listed_is_sent_although_it_grows() {
    for (scanning, wanted) in [(GROWING, 0), (Scanning::default(), 1)] {
        let (stage, path) = Stage::new(500_000);
        let grown = AtomicBool::new(false);
        let (sent, _) = transfer(&path, stage.to.path(), 1, scanning, &|event| {
            if matches!(event, Event::Bytes(_)) && !grown.swap(true, Ordering::Relaxed) {
                append(&path, b"more");
            }
        });
        assert_eq!(sent.failed, wanted);
        if wanted == 0 {
            assert!(stage.arrived() == content(500_000));
        }
    }
    // One that becomes shorter is not what was listed.
    let (stage, path) = Stage::new(500_000);
    let (sent, _) = transfer(&path, stage.to.path(), 1, GROWING, &|event| {
        if matches!(event, Event::Bytes(_)) {
            fs::File::options().write(true).open(&path).unwrap().set_len(1_000).unwrap();
        }
    });
    assert_eq!(sent.failed, 1);
}

#[test]
fn a_later_job_sends_what_was_added() {
    let (stage, path) = Stage::new(3 * GROUP + 70_000);
    assert_eq!(stage.send(&path, 1).1.moved, 3 * GROUP + 70_000);
    for round in 1..3u64 {
        append(&path, &[round as u8; 100_000]);
        let (sent, seen) = stage.send(&path, 1);
        assert_eq!((sent.kept, seen.failed.len(), seen.resumed), (1, 0, 3 * GROUP));
        assert_eq!(seen.moved, 70_000 + round * 100_000);
        assert!(stage.arrived() == fs::read(&path).unwrap());
    }
    // Nothing was added.
    assert_eq!(stage.send(&path, 1).1.moved, 0);
    // A file that does not grow while it is sent needs no option for this.
    append(&path, b"more");
    let seen = transfer(&path, stage.to.path(), 1, Scanning::default(), &|_| {}).1;
    assert_eq!((seen.moved, seen.resumed), (270_004, 3 * GROUP));
    assert_eq!(fs::read_dir(stage.to.path()).unwrap().count(), 1);
}

#[test]
fn a_beginning_that_changed_is_sent_again() {
    let (stage, path) = Stage::new(3 * GROUP + 5);
    stage.send(&path, 1);
    // Three groups: a subtree of two, and one of one. The second subtree differs, and then also the first.
    for (at, equal) in [(2 * GROUP + 1, 2 * GROUP), (1, 0)] {
        let mut changed = fs::read(&path).unwrap();
        changed[at as usize] ^= 1;
        changed.extend_from_slice(b"more");
        fs::write(&path, &changed).unwrap();
        let (sent, seen) = stage.send(&path, 1);
        assert_eq!((sent.kept, seen.failed.len(), seen.resumed), (1, 0, equal));
        assert!(stage.arrived() == changed);
    }
}

#[test]
fn only_what_the_same_peer_delivered_and_nobody_changed_is_continued() {
    let (stage, path) = Stage::new(2 * GROUP + 5);
    stage.send(&path, 1);
    append(&path, b"more");
    // Another peer is offered nothing of it, although it has the same bytes.
    let seen = stage.send(&path, 2).1;
    assert_eq!((seen.resumed, &seen.failed[..]), (0, &[Reason::Exists][..]));
    // Nor does it learn its hashes.
    assert_eq!(asked(stage.to.path(), 2), Have::Nothing);
    assert!(matches!(asked(stage.to.path(), 1), Have::Beginning(prefix) if prefix.offset() == 2 * GROUP));
    // The bytes are damaged, and size and time are as before. Nothing of that becomes a part of the file.
    let to = stage.to.path().join("log");
    let modified = fs::metadata(&to).unwrap().modified().unwrap();
    let mut damaged = stage.arrived();
    damaged[7] ^= 1;
    fs::write(&to, &damaged).unwrap();
    fs::File::options().write(true).open(&to).unwrap().set_modified(modified).unwrap();
    assert_eq!(stage.send(&path, 1).1.failed, [Reason::Mismatch]);
    assert!(stage.arrived() == damaged);
    // The user has written to it.
    fs::File::options().write(true).open(&to).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let seen = stage.send(&path, 1).1;
    assert_eq!((seen.resumed, &seen.failed[..]), (0, &[Reason::Exists][..]));
}

/// The old file stands until the new one is complete, wherever the job is cut off.
#[test]
fn a_job_that_is_cut_off_leaves_the_shorter_file_or_the_longer_one() {
    let (stage, path) = Stage::new(2 * GROUP + 5);
    stage.send(&path, 1);
    append(&path, &content(3 * GROUP));
    let old = stage.arrived();
    let found = scan_with(std::slice::from_ref(&path), GROWING).unwrap();
    for most in [200, 5_000, 300_000, GROUP, 2 * GROUP + 100_000] {
        let destination = Destination::open(stage.to.path()).unwrap();
        run(cut_off(&found, &destination, Some(&public(1)), most));
        assert!(stage.arrived() == old, "after {most} bytes");
    }
    let (sent, seen) = stage.send(&path, 1);
    assert_eq!((sent.kept, seen.failed.len()), (1, 0));
    assert!(seen.resumed >= 2 * GROUP, "{seen:?}");
    assert!(stage.arrived() == fs::read(&path).unwrap());
    assert_eq!(fs::read_dir(stage.to.path()).unwrap().count(), 1);
}
