//! What a receiver says of the content of files that stand already: yes or no, once for each LOOK, and only
//! of files beneath the destination.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tidewire_transfer::{
    Attributes, Claim, Destination, Encoding, Event, Key, Kind, Look, Record, RecordReader, RecordWriter,
    TransferError, receive, scan, send,
};
use tokio::io::{duplex, split};

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap().block_on(future)
}

fn file(id: u32, path: &str, size: u64) -> Record<'static> {
    let path = path.as_bytes().to_vec();
    Record::Look(Look { id, kind: Kind::File, encoding: Encoding::Utf8, size, source: Key::of_path(&path), path })
}

fn claim(id: u32, content: &[u8]) -> Record<'static> {
    let attributes = Attributes { mode: 0o600, modified: (1_000_000_000, 0) };
    Record::Claim(Claim { id, attributes, hash: blake3::hash(content).into() })
}

/// Sends `records` to a receiver, and waits for this many answers before the stream ends. Fails if the
/// receiver ends first.
fn converse(records: &[Record<'_>], to: &Path, answers: usize) -> Result<Vec<String>, TransferError> {
    let destination = Destination::open(to).unwrap();
    let (near, far) = duplex(1 << 20);
    run(async {
        let peer = async {
            let (read, write) = split(near);
            let mut writer = RecordWriter::open(write).await.unwrap();
            writer.write(&Record::Total { files: 0, bytes: 0, job: Key::default() }).await.unwrap();
            for record in records {
                writer.write(record).await.unwrap();
            }
            let mut reader = RecordReader::open(read).await.unwrap();
            let mut answered = Vec::new();
            for _ in 0..answers {
                let Ok(answer) = reader.next().await else { return std::future::pending().await };
                answered.push(format!("{answer:?}"));
            }
            answered
        };
        tokio::select! {
            answered = peer => Ok(answered),
            received = receive(far, &destination, None, &|_| {}) => Err(received.unwrap_err()),
        }
    })
}

#[test]
fn a_claim_is_answered_with_yes_or_no() {
    let outside = tempfile::tempdir().unwrap();
    let inside = outside.path().join("inside");
    fs::create_dir(&inside).unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    fs::write(inside.join("f"), b"content").unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../secret", inside.join("link")).unwrap();
        std::os::unix::fs::symlink("f", inside.join("near")).unwrap();
    }
    for path in ["link", "near", "../secret", "missing", ".tidewire-parts/x"] {
        let size = if path == "near" { 7 } else { 6 };
        let error = converse(&[file(0, path, size), claim(0, b"secret")], &inside, 2).unwrap_err();
        assert!(matches!(error, TransferError::Unexpected("CLAIM")), "{path}: {error}");
    }
    // Another size, and a second claim for one LOOK.
    assert!(converse(&[file(0, "f", 6), claim(0, b"conten")], &inside, 2).is_err());
    let second = converse(&[file(0, "f", 7), claim(0, b"CONTENT"), claim(0, b"content")], &inside, 4);
    assert!(matches!(second, Err(TransferError::Unexpected("CLAIM"))));
    // The same file twice: right, then wrong.
    let records = [file(0, "f", 7), claim(0, b"content"), file(1, "f", 7), claim(1, b"CONTENT")];
    let answers = converse(&records, &inside, 4).unwrap();
    let answered = |text: &str| answers.iter().any(|answer| answer.contains(text));
    assert!(answered("Result { id: 0, failure: None") && answered("Differs(1)"), "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer.contains("Standing")).count(), 2, "{answers:?}");
    assert_eq!(fs::read(inside.join("f")).unwrap(), b"content");
    let done = Record::Done { announced: 1, unsent: 0 };
    let early = converse(&[file(0, "f", 7), claim(0, b"CONTENT"), done], &inside, 4);
    assert!(matches!(early, Err(TransferError::Unexpected("DONE"))));
}

#[test]
fn issue_40_both_sides_say_how_much_they_read_to_compare() {
    const SIZE: u64 = 3_000_000;
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&from, &to] {
        let file = fs::File::create(folder.path().join("sparse")).unwrap();
        file.set_len(SIZE).unwrap();
    }
    let found = scan(&[from.path().join("sparse")]).unwrap();
    let destination = Destination::open(to.path()).unwrap();
    let (here, there) = (AtomicU64::new(0), AtomicU64::new(0));
    let note = |count: &AtomicU64, event: Event<'_>| {
        if let Event::Compared(bytes) = event {
            count.fetch_add(bytes, Ordering::Relaxed);
        }
    };
    let (watch_here, watch_there) = (|event: Event<'_>| note(&here, event), |event: Event<'_>| note(&there, event));
    let (near, far) = duplex(1 << 20);
    let (sent, _) =
        run(async { tokio::join!(send(near, &found, &watch_here), receive(far, &destination, None, &watch_there)) });
    assert_eq!((sent.unwrap().resumed, here.into_inner(), there.into_inner()), (SIZE, SIZE, SIZE));
}
