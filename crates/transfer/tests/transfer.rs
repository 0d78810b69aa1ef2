//! The file transfer over a pipe in memory: whole trees arrive unchanged, and no file that is cut off,
//! changed or hostile ever has a final name.

mod hostile;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use proptest::prelude::*;
use tidewire_transfer::{
    Attributes, Claim, Destination, Encoding, Entry, Event, Existing, GROUP, Have, Key, Kind, Look, MAX_RECORD,
    Outcome, Reason, Record, RecordReader, RecordWriter, TransferError, receive, scan, send,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy, duplex, split};

/// This is small, so that both directions fill up and wait.
const PIPE: usize = 3000;

use hostile::Results;

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap().block_on(future)
}

#[derive(Default)]
struct Seen {
    failures: Mutex<Vec<(String, Reason)>>,
    bytes: Mutex<u64>,
}

impl Seen {
    fn watch(&self) -> impl Fn(Event<'_>) + Send + Sync {
        |event| match event {
            Event::Failed(failure) => self.failures.lock().unwrap().push((failure.path.to_string(), failure.reason)),
            Event::Bytes(bytes) => *self.bytes.lock().unwrap() += bytes,
            _ => {}
        }
    }

    fn reasons(&self) -> Vec<Reason> {
        self.failures.lock().unwrap().iter().map(|(_, reason)| *reason).collect()
    }
}

/// Sends `paths` into `to`. Returns the outcomes and failures of both ends.
fn transfer(paths: &[PathBuf], to: &Path) -> ((Outcome, Seen), (Outcome, Seen)) {
    let found = scan(paths).unwrap();
    let destination = Destination::open(to).unwrap();
    let (here, there) = (Seen::default(), Seen::default());
    let (near, far) = duplex(PIPE);
    let (sent, received) = run(async {
        let (watch_here, watch_there) = (here.watch(), there.watch());
        tokio::join!(send(near, &found, &watch_here), receive(far, &destination, None, &watch_there))
    });
    ((sent.unwrap(), here), (received.unwrap(), there))
}

/// Every file (content) and directory (`None`) below `root`.
fn tree(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    walkdir::WalkDir::new(root)
        .min_depth(1)
        .into_iter()
        .map(|step| {
            let step = step.unwrap();
            let content = step.file_type().is_file().then(|| fs::read(step.path()).unwrap());
            (step.path().strip_prefix(root).unwrap().to_owned(), content)
        })
        .collect()
}

fn look(id: u32, kind: Kind, path: &str, size: u64) -> Record<'static> {
    let path = path.as_bytes().to_vec();
    Record::Look(Look { id, kind, encoding: Encoding::of(&path), size, source: Key::of_path(&path), path })
}

fn announced(id: u32, path: &str, size: u64, offset: u64) -> Record<'static> {
    let attributes = Attributes { mode: 0o644, modified: (0, 0) };
    Record::Entry(Entry { id, attributes, size, offset, source: Key::of_path(path.as_bytes()) })
}

/// A LOOK and its ENTRY.
fn entry(id: u32, kind: Kind, path: &str, size: u64) -> [Record<'static>; 2] {
    [look(id, kind, path, size), announced(id, path, size, 0)]
}

fn claim(id: u32, content: &[u8]) -> Record<'static> {
    let attributes = Attributes { mode: 0o600, modified: (1_000_000_000, 0) };
    Record::Claim(Claim { id, attributes, hash: blake3::hash(content).into() })
}

/// Sends `records` to a receiver that replaces what stands. Returns how it ended and its RESULTs.
fn play(records: &[Record<'_>], to: &Path) -> (Result<Outcome, TransferError>, Results) {
    run(hostile::play(records, &Destination::open(to).unwrap().with_existing(Existing::Replace)))
}

/// A name: text, or any bytes where a system has such names.
fn name() -> impl Strategy<Value = OsString> {
    let text = prop_oneof!["[a-z]{1,8}", "[ -.0-~]{1,12}", "\\PC{1,20}", Just("ü日本 語".to_owned())];
    #[cfg(unix)]
    let name = prop_oneof![4 => text.prop_map(String::into_bytes), 1 => prop::collection::vec(any::<u8>(), 1..12)];
    #[cfg(not(unix))]
    let name = text.prop_map(String::into_bytes);
    name.prop_map(|name| name.into_iter().map(|byte| if byte == b'/' { b'_' } else { byte }).collect::<Vec<_>>())
        .prop_filter("a name", |name| !matches!(&name[..], b"." | b"..") && name.len() <= 255 && !name.contains(&0))
        .prop_map(os_string)
}

#[cfg(unix)]
fn os_string(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

#[cfg(not(unix))]
fn os_string(bytes: Vec<u8>) -> OsString {
    String::from_utf8(bytes).unwrap().into()
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 1..40),
        (1usize..200_000, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ]
}

#[test]
#[cfg(target_os = "linux")]
fn issue_40_files_that_the_kernel_generates_arrive_with_their_bytes() {
    let to = tempfile::tempdir().unwrap();
    let paths = ["/proc/version", "/sys/class/net/lo/mtu"].map(PathBuf::from);
    let ((sent, here), (received, _)) = transfer(&paths, to.path());
    assert_eq!((sent.kept, received.kept, here.reasons()), (2, 2, Vec::new()));
    for path in paths {
        assert_eq!(fs::read(to.path().join(path.file_name().unwrap())).unwrap(), fs::read(&path).unwrap());
    }
}

/// A receiver that keeps two files, and warns of the second.
async fn warn(stream: DuplexStream) {
    let (read, write) = split(stream);
    let (mut reader, mut writer) = (RecordReader::open(read).await.unwrap(), RecordWriter::open(write).await.unwrap());
    let (mut ids, mut bytes) = (Vec::new(), 0);
    loop {
        match reader.next().await.unwrap() {
            Record::Look(Look { id, .. }) => {
                writer.write(&Record::Have { id, have: Have::Nothing }).await.unwrap();
            }
            Record::Entry(entry) => {
                ids.push(entry.id);
                bytes += entry.size;
            }
            Record::End(_) => {
                let detail = if ids.len() > 1 { "its mode is 600 in place of 644" } else { "" };
                let id = *ids.last().unwrap();
                writer.write(&Record::Result { id, failure: None, detail }).await.unwrap();
            }
            Record::Done { .. } => break,
            _ => {}
        }
    }
    writer.write(&Record::Tally { kept: ids.len() as u32, failed: 0, bytes }).await.unwrap();
}

#[test]
fn issue_40_a_warning_of_the_receiver_reaches_the_sender_and_the_file_counts_as_kept() {
    let from = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| from.path().join(name));
    paths.iter().for_each(|path| fs::write(path, b"content").unwrap());
    let (found, warnings) = (scan(&paths).unwrap(), Mutex::new(Vec::new()));
    let (near, far) = duplex(PIPE);
    let watch = |event: Event<'_>| {
        if let Event::Kept { warning, .. } = event {
            warnings.lock().unwrap().push(warning.map(str::to_owned));
        }
    };
    let (sent, ()) = run(async { tokio::join!(send(near, &found, &watch), warn(far)) });
    let sent = sent.unwrap();
    assert_eq!((sent.kept, sent.failed), (2, 0));
    let warning = "at the receiver: its mode is 600 in place of 644".to_owned();
    assert_eq!(*warnings.lock().unwrap(), [None, Some(warning)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_tree_arrives_as_it_was(files in prop::collection::btree_map(prop::collection::vec(name(), 1..6), content(), 0..12)) {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = from.path().join("root");
        fs::create_dir(&root).unwrap();
        for (names, content) in &files {
            let path = names.iter().fold(root.clone(), |path, name| path.join(name));
            // One file's name may be another's directory. Files that cannot be made are not part of the tree.
            if fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.is_dir() {
                let _ = fs::write(&path, content);
            }
        }
        let ((sent, here), (received, _)) = transfer(&[root], to.path());
        prop_assert_eq!(tree(from.path()), tree(to.path()));
        prop_assert_eq!(&sent, &received);
        prop_assert_eq!(sent.failed, 0);
        prop_assert_eq!(*here.bytes.lock().unwrap(), sent.bytes);
    }

    #[test]
    fn no_bytes_make_the_receiver_panic_or_escape(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let outside = tempfile::tempdir().unwrap();
        let inside = outside.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let destination = Destination::open(&inside).unwrap();
        let (mut near, far) = duplex(1 << 16);
        let received = run(async {
            near.write_all(b"TWFILES\x03").await.unwrap();
            near.write_all(&noise).await.unwrap();
            near.shutdown().await.unwrap();
            receive(far, &destination, None, &|_| {}).await
        });
        prop_assert!(received.is_err() || noise.contains(&6));
        prop_assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}

/// Passes the first `most` bytes from `near` to `far`, then ends that direction. Passes everything in the
/// other direction.
async fn cut(near: DuplexStream, far: DuplexStream, most: u64) {
    let ((near_read, mut near_write), (mut far_read, mut far_write)) = (split(near), split(far));
    let forth = async {
        let _ = copy(&mut near_read.take(most), &mut far_write).await;
        let _ = far_write.shutdown().await;
    };
    let _ = tokio::join!(forth, copy(&mut far_read, &mut near_write));
}

#[test]
fn a_stream_cut_at_any_byte_leaves_old_or_whole_files() {
    let from = tempfile::tempdir().unwrap();
    fs::write(from.path().join("a"), vec![1; 60]).unwrap();
    fs::create_dir(from.path().join("d")).unwrap();
    fs::write(from.path().join("d/b"), b"new").unwrap();
    let paths: Vec<_> = ["a", "d"].iter().map(|name| from.path().join(name)).collect();
    let found = scan(&paths).unwrap();
    let mut whole_runs = 0;
    let step = if tidewire_testing::few_seeds() { 7 } else { 1 };
    for most in (0..900).step_by(step) {
        let to = tempfile::tempdir().unwrap();
        fs::write(to.path().join("a"), b"old").unwrap();
        let destination = Destination::open(to.path()).unwrap().with_existing(Existing::Replace);
        let received = run(async {
            let (near, middle_near) = duplex(PIPE);
            let (middle_far, far) = duplex(PIPE);
            tokio::select! {
                received = async {
                    let (received, _) = tokio::join!(receive(far, &destination, None, &|_| {}), cut(middle_near, middle_far, most));
                    received
                } => received,
                _ = async { let _ = send(near, &found, &|_| {}).await; std::future::pending::<()>().await } => unreachable!(),
            }
        });
        whole_runs += u32::from(received.is_ok());
        for (path, content) in tree(to.path()) {
            let Some(content) = content else { continue };
            let whole = match path.to_str().unwrap() {
                "a" => content == b"old" || content == vec![1; 60],
                "d/b" => content == b"new",
                list if list.ends_with(".kept") => true,
                other => panic!("{other} was left behind after {most} bytes"),
            };
            assert!(whole, "{} is a mix after {most} bytes", path.display());
        }
    }
    assert!(whole_runs > 2, "the transfer must fit into the longest of these prefixes");
}

#[test]
fn hostile_paths_are_refused_and_others_go_on() {
    let outside = tempfile::tempdir().unwrap();
    let inside = outside.path().join("inside");
    fs::create_dir(&inside).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(outside.path(), inside.join("link")).unwrap();
    let mut records = Vec::new();
    let hostile = ["../x", "/tmp/x", "a/../../x", "", "a//b", ".", "a\0b", "link/x"];
    for (id, path) in (0..).zip(hostile) {
        records.extend(entry(id, Kind::File, path, 1));
        records.extend([Record::Chunk(b"x"), Record::End(blake3::hash(b"x").into())]);
    }
    records.extend(entry(8, Kind::Other(2), "device", 0));
    records.extend(entry(9, Kind::Directory, "link/made", 0));
    records.extend(entry(10, Kind::File, "good", 1));
    records.extend([Record::Chunk(b"x"), Record::End(blake3::hash(b"x").into())]);
    records.push(Record::Done { announced: 11, unsent: 0 });
    let (received, results) = play(&records, &inside);
    assert_eq!(received.unwrap(), Outcome { kept: 1, bytes: 1, failed: 10, ..Outcome::default() });
    for (id, reason) in &results[..8] {
        assert_eq!(*reason, Some(Reason::PathRefused), "{:?}", hostile[*id as usize]);
    }
    assert_eq!(results[8], (8, Some(Reason::NotAFile)));
    assert_eq!(results[9], (9, Some(Reason::PathRefused)));
    assert_eq!(results[10], (10, None));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "something was written outside");
}

/// The LOOK of a file of one byte, with a path that need not be what `encoding` says.
fn look_at(id: u32, encoding: Encoding, path: &[u8]) -> Record<'static> {
    let (kind, source) = (Kind::File, Key::of_path(path));
    Record::Look(Look { id, kind, encoding, size: 1, source, path: path.to_vec() })
}

#[test]
#[cfg(unix)]
fn hostile_names_of_bytes_are_refused_and_others_go_on() {
    use std::os::unix::ffi::OsStringExt;
    let outside = tempfile::tempdir().unwrap();
    let inside = outside.path().join("inside");
    fs::create_dir(&inside).unwrap();
    std::os::unix::fs::symlink(outside.path(), inside.join(os_string(b"l\xff".to_vec()))).unwrap();
    let raw = Encoding::Raw;
    let hostile: [(Encoding, &[u8]); 10] = [
        (raw, b"../\xff"),
        (raw, b"/tmp/\xff"),
        (raw, b"\xff/../../x"),
        (raw, b"\xff\0"),
        (raw, b"\xff//x"),
        (raw, b"l\xff/x"),
        (raw, b".tidewire-parts/\xff"),
        // Not what is said of them, so that no name has two forms.
        (raw, b"text"),
        (Encoding::Utf8, b"\xff"),
        (Encoding::Other(2), b"text"),
    ];
    let mut records = Vec::new();
    for (id, (encoding, path)) in (0..).zip(hostile.into_iter().chain([(raw, &b"d\xff/good\xe9"[..])])) {
        let entry = announced(id, "", 1, 0);
        records.extend([
            look_at(id, encoding, path),
            entry,
            Record::Chunk(b"x"),
            Record::End(blake3::hash(b"x").into()),
        ]);
    }
    records.push(Record::Done { announced: 11, unsent: 0 });
    let (received, results) = play(&records, &inside);
    assert_eq!(received.unwrap(), Outcome { kept: 1, bytes: 1, failed: 10, ..Outcome::default() });
    for (id, reason) in &results[..10] {
        assert_eq!(*reason, Some(Reason::PathRefused), "{:?}", hostile[*id as usize]);
    }
    let good = inside.join(OsString::from_vec(b"d\xff/good\xe9".to_vec()));
    assert_eq!(fs::read(good).unwrap(), b"x");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "something was written outside");
}

#[test]
fn wrong_hashes_and_sizes_are_mismatches_and_leave_nothing() {
    let to = tempfile::tempdir().unwrap();
    fs::write(to.path().join("f"), b"old").unwrap();
    let hash = Record::End(blake3::hash(b"xy").into());
    let mut records = Vec::new();
    for (id, size, bytes) in [(0, 2, b"xz"), (1, 3, b"xy"), (2, 1, b"xy")] {
        records.extend(entry(id, Kind::File, "f", size));
        records.extend([Record::Chunk(bytes), hash.clone()]);
    }
    records.extend(entry(3, Kind::File, "f", 9));
    records.extend([Record::Chunk(b"x"), Record::Abort(Reason::Changed), Record::Done { announced: 4, unsent: 0 }]);
    let (received, results) = play(&records, to.path());
    assert!(received.unwrap().mismatch);
    let mismatch = Some(Reason::Mismatch);
    assert_eq!(results, [(0, mismatch), (1, mismatch), (2, mismatch), (3, Some(Reason::Aborted))]);
    assert_eq!(tree(to.path()), BTreeMap::from([("f".into(), Some(b"old".to_vec()))]));
}

#[test]
fn what_was_never_offered_is_not_gone_on_with_and_groups_are_checked() {
    let to = tempfile::tempdir().unwrap();
    let group = vec![7; GROUP as usize];
    let size = GROUP + 1;
    let chunks = || group.chunks(MAX_RECORD).map(Record::Chunk);
    let mut records = vec![look(0, Kind::File, "f", size), announced(0, "f", size, GROUP)];
    records.extend([Record::Chunk(b"x"), Record::End([0; 32])]);
    for (id, path) in [(1, ".tidewire-parts/x"), (2, ".Tidewire-Parts/x")] {
        records.extend(entry(id, Kind::File, path, 1));
        records.extend([Record::Chunk(b"x"), Record::End([0; 32])]);
    }
    // Nothing was continued, so nothing can go back.
    records.extend(entry(3, Kind::File, "back", size));
    records.extend([Record::Chunk(b"x"), Record::Back(0), Record::Abort(Reason::Aborted)]);
    // A wrong mark, a mark that is too early, and no mark.
    records.extend(entry(4, Kind::File, "wrong", size));
    records.extend(chunks().chain([Record::Mark([0; 32]), Record::Abort(Reason::Aborted)]));
    records.extend(entry(5, Kind::File, "early", size));
    records.extend([Record::Chunk(b"x"), Record::Mark([0; 32]), Record::Abort(Reason::Aborted)]);
    records.extend(entry(6, Kind::File, "none", size));
    records.extend(chunks().chain([Record::Chunk(b"x"), Record::Abort(Reason::Aborted)]));
    records.push(Record::Done { announced: 7, unsent: 0 });
    let (received, results) = play(&records, to.path());
    assert!(received.unwrap().mismatch);
    let (lost, refused, mismatch) = (Reason::Unwritable, Reason::PathRefused, Reason::Mismatch);
    let reasons: Vec<_> = results.into_iter().map(|(_, reason)| reason.unwrap()).collect();
    assert_eq!(reasons, [lost, refused, refused, mismatch, mismatch, mismatch, mismatch]);
    assert_eq!(tree(to.path()), BTreeMap::new());
}

#[test]
fn records_out_of_turn_end_the_transfer() {
    let to = tempfile::tempdir().unwrap();
    let (asked, file) = (look(5, Kind::File, "f", 1), announced(5, "f", 1, 0));
    let done = Record::Done { announced: 2, unsent: 0 };
    for (records, name) in [
        (vec![Record::Chunk(b"x")], "CHUNK"),
        (vec![Record::End([0; 32])], "END"),
        (vec![Record::Abort(Reason::Changed)], "ABORT"),
        (vec![file.clone()], "ENTRY"),
        (vec![asked.clone(), file.clone(), file.clone()], "ENTRY"),
        (vec![asked.clone(), file.clone(), Record::Abort(Reason::Changed), file.clone()], "ENTRY"),
        (vec![asked.clone(), asked.clone()], "LOOK"),
        (vec![asked.clone(), look(4, Kind::File, "g", 1)], "LOOK"),
        ((0..1_025).map(|id| look(id, Kind::File, "g", 1)).collect(), "LOOK"),
        (vec![asked.clone(), Record::Skip(5), file.clone()], "ENTRY"),
        (vec![Record::Skip(5)], "SKIP"),
        // No file stands there.
        (vec![asked.clone(), claim(5, b"x")], "CLAIM"),
        (vec![asked.clone(), file.clone(), done.clone()], "DONE"),
        (vec![asked, file, Record::Abort(Reason::Changed), done], "DONE"),
        (vec![Record::Mark([0; 32])], "MARK"),
        (vec![Record::Zeros(1)], "ZEROS"),
        (vec![Record::Back(0)], "BACK"),
        (vec![Record::Total { files: 0, bytes: 0, job: Key::default() }], "TOTAL"),
        (vec![Record::Differs(0)], "DIFFERS"),
        (vec![Record::Tally { kept: 0, failed: 0, bytes: 0 }], "TALLY"),
    ] {
        match play(&records, to.path()).0 {
            Err(TransferError::Unexpected(found)) => assert_eq!(found, name),
            other => panic!("{records:?} gave {other:?}"),
        }
    }
    assert_eq!(tree(to.path()), BTreeMap::new());
}

#[test]
fn a_peer_of_another_kind_is_named() {
    let destination = tempfile::tempdir().unwrap();
    for (bytes, wanted) in [
        (&b"GET / HTTP/1.1\r\n"[..], "does not transfer files"),
        (b"TWFILES\x02", "version 2"),
        (b"TWFILES\x03\x03\xff\xff\xff\xff", "4294967295 bytes"),
        (b"TWFILES\x03\x44\0\0\0\0", "unknown type 0x44"),
        (b"TWFILES\x03\x02\0\0\0\x01x", "malformed ENTRY"),
        (b"TWFI", "early"),
    ] {
        let destination = Destination::open(destination.path()).unwrap();
        let (mut near, far) = duplex(1 << 10);
        let error = run(async {
            near.write_all(bytes).await.unwrap();
            near.shutdown().await.unwrap();
            receive(far, &destination, None, &|_| {}).await
        });
        let message = error.unwrap_err().to_string();
        assert!(message.contains(wanted), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn modes_and_times_arrive_and_links_do_not() {
    use std::os::unix::fs::PermissionsExt;
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tool = from.path().join("tool");
    fs::write(&tool, b"#!").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH - std::time::Duration::from_millis(1500);
    fs::File::options().write(true).open(&tool).unwrap().set_modified(old).unwrap();
    let (link, missing) = (from.path().join("link"), from.path().join("missing"));
    std::os::unix::fs::symlink(&tool, &link).unwrap();
    let ((sent, here), _) = transfer(&[link, missing, tool, "/dev/null".into()], to.path());
    assert_eq!(here.reasons(), [Reason::NotAFile, Reason::Vanished, Reason::NotAFile]);
    assert_eq!((sent.kept, sent.failed), (1, 3));
    let metadata = fs::metadata(to.path().join("tool")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o100, 0o100);
    assert_eq!(metadata.modified().unwrap(), old);
}

#[test]
fn a_source_that_vanishes_or_cannot_be_placed_is_named_and_others_go_on() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let paths: Vec<_> = ["gone", "blocked", "good"].iter().map(|name| from.path().join(name)).collect();
    fs::write(&paths[0], b"1").unwrap();
    fs::create_dir(&paths[1]).unwrap();
    fs::write(paths[1].join("f"), vec![0; 300_000]).unwrap();
    fs::write(&paths[2], b"3").unwrap();
    // A file stands where the folder should be. No user can write there, not even root.
    fs::write(to.path().join("blocked"), b"in the way").unwrap();
    let found = scan(&paths).unwrap();
    fs::remove_file(&paths[0]).unwrap();
    let destination = Destination::open(to.path()).unwrap();
    let seen = Seen::default();
    let (near, far) = duplex(PIPE);
    let (sent, received) = run(async {
        let watch = seen.watch();
        tokio::join!(send(near, &found, &watch), receive(far, &destination, None, &|_| {}))
    });
    let sent = sent.unwrap();
    assert_eq!((sent.kept, sent.failed, received.unwrap().kept), (1, 3, 1));
    let mut reasons = seen.reasons();
    reasons.sort_by_key(|reason| *reason as u8);
    assert_eq!(reasons, [Reason::Vanished, Reason::Unwritable, Reason::Unwritable]);
    assert_eq!(fs::read(to.path().join("blocked")).unwrap(), b"in the way");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_not_kept() {
    for (after, detail) in [(100_000u64, "shorter"), (600_000, "longer"), (500_000, "touched")] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = from.path().join("f");
        fs::write(&path, vec![7; 500_000]).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH;
        fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        let found = scan(std::slice::from_ref(&path)).unwrap();
        let destination = Destination::open(to.path()).unwrap();
        let seen = Seen::default();
        let record = seen.watch();
        let watch = |event: Event<'_>| {
            if matches!(event, Event::Bytes(_)) {
                fs::File::options().write(true).open(&path).unwrap().set_len(after).unwrap();
                fs::File::options()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_modified(std::time::SystemTime::now())
                    .unwrap();
            }
            record(event);
        };
        let (near, far) = duplex(PIPE);
        let (sent, _) =
            run(async { tokio::join!(send(near, &found, &watch), receive(far, &destination, None, &|_| {})) });
        assert_eq!(sent.unwrap().failed, 1, "{detail}");
        assert_eq!(seen.reasons(), [Reason::Changed], "{detail}");
        assert_eq!(tree(to.path()), BTreeMap::new(), "{detail}");
    }
}

/// Equal files are not sent again, whatever their times are. A file that only looks the same is.
#[test]
fn equal_files_are_skipped_by_content_alone() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let paths: Vec<_> = (0..40).map(|index| from.path().join(format!("f{index}"))).collect();
    let time = |path: &Path, seconds| {
        let modified = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
    };
    for (index, path) in paths.iter().enumerate() {
        fs::write(path, vec![index as u8; 1_000 * index]).unwrap();
        time(path, 1);
    }
    assert_eq!(transfer(&paths, to.path()).0.0.resumed, 0);
    // One source changes and keeps its time, one file there changes and keeps its time, and one gets another
    // time.
    fs::write(&paths[20], vec![99; 20_000]).unwrap();
    time(&paths[20], 1);
    fs::write(to.path().join("f30"), vec![98; 30_000]).unwrap();
    time(&to.path().join("f30"), 1);
    time(&to.path().join("f10"), 2);
    let ((sent, here), (received, there)) = transfer(&paths, to.path());
    assert_eq!((sent.kept, sent.failed), (40, 0));
    assert_eq!(sent, received);
    assert_eq!(sent.resumed, sent.bytes - 50_000);
    assert_eq!((*here.bytes.lock().unwrap(), *there.bytes.lock().unwrap()), (50_000, 50_000));
    assert_eq!(tree(from.path()), tree(to.path()));
    let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(modified(&paths[10]), modified(&to.path().join("f10")));
}
