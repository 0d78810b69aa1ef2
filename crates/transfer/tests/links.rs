//! Symbolic links over a pipe in memory: what a sender does with them, and what a receiver takes from a
//! hostile one.
#![cfg(unix)]

mod hostile;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tidewire_transfer::{
    Attributes, Destination, Encoding, Entry, Event, Existing, Key, Kind, Link, Links, Look, Outcome, Reason, Record,
    RecordReader, RecordWriter, Scanning, TransferError, receive, scan_with, send,
};
use tokio::io::{duplex, split};

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap().block_on(future)
}

fn of(links: Links) -> Scanning {
    Scanning { links, growing: false }
}

/// Failures: paths and reasons.
type Failures = Vec<(String, Reason)>;

/// Sends `paths` to a receiver that makes links, or makes none. Returns the outcome and the failures of the
/// sender.
fn transfer(paths: &[PathBuf], to: &Path, links: Links, makes: bool) -> (Outcome, Failures) {
    let found = scan_with(paths, of(links)).unwrap();
    let destination = Destination::open(to).unwrap().with_links(makes);
    let failed = Mutex::new(Vec::new());
    let watch = |event: Event<'_>| {
        if let Event::Failed(failure) = event {
            failed.lock().unwrap().push((failure.path.to_string(), failure.reason));
        }
    };
    let (near, far) = duplex(3000);
    let (sent, received) =
        run(async { tokio::join!(send(near, &found, &watch), receive(far, &destination, None, &|_| {})) });
    assert_eq!(sent.as_ref().unwrap().kept, received.unwrap().kept);
    (sent.unwrap(), failed.into_inner().unwrap())
}

/// Two folders with a file each. The first also has links: `near` to its file, `folder` to its folder,
/// `other` to the second folder's file, `out` out of both, `up` to the folder itself, `nowhere`.
struct Stage {
    from: tempfile::TempDir,
    to: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let stage = Self { from: tempfile::tempdir().unwrap(), to: tempfile::tempdir().unwrap() };
        let root = stage.from.path();
        fs::create_dir_all(root.join("one/d")).unwrap();
        fs::create_dir(root.join("two")).unwrap();
        fs::write(root.join("one/d/f"), b"first").unwrap();
        fs::write(root.join("two/g"), b"second").unwrap();
        fs::write(root.join("secret"), b"secret").unwrap();
        let links =
            [("near", "d/f"), ("folder", "d"), ("other", "../two/g"), ("out", "../secret"), ("up", "."), ("none", "x")];
        for (name, target) in links {
            symlink(target, root.join("one").join(name)).unwrap();
        }
        stage
    }

    fn paths(&self) -> [PathBuf; 2] {
        ["one", "two"].map(|name| self.from.path().join(name))
    }

    fn failed(&self, failures: Failures) -> Vec<String> {
        let root = format!("{}/one/", self.from.path().display());
        failures
            .into_iter()
            .map(|(path, reason)| {
                assert_eq!(reason, Reason::NotAFile, "{path}");
                path.strip_prefix(&root).unwrap_or(&path).to_owned()
            })
            .collect()
    }
}

#[test]
fn links_are_skipped_unless_the_user_says_otherwise() {
    let stage = Stage::new();
    assert_eq!(scan_with(&stage.paths(), of(Links::Skip)).unwrap().skipped_links, 6);
    let (sent, failures) = transfer(&stage.paths(), stage.to.path(), Links::Skip, true);
    assert_eq!((sent.kept, sent.failed), (5, 6));
    assert_eq!(stage.failed(failures), ["folder", "near", "none", "other", "out", "up"]);
}

#[test]
fn kept_links_arrive_as_they_are_if_both_sides_want_it() {
    let stage = Stage::new();
    let to = stage.to.path().join("one");
    let (sent, failures) = transfer(&stage.paths(), stage.to.path(), Links::Keep, true);
    // Not those that lead out of the named path, even if they lead to the other.
    assert_eq!(stage.failed(failures), ["other", "out"]);
    assert_eq!((sent.kept, sent.failed), (9, 2));
    for (name, target) in [("near", "d/f"), ("folder", "d"), ("up", "."), ("none", "x")] {
        assert_eq!(fs::read_link(to.join(name)).unwrap(), Path::new(target));
    }
    assert_eq!(fs::read(to.join("near")).unwrap(), b"first");
    // The same links are no conflict, and a job never looks through them.
    let (sent, failures) = transfer(&stage.paths(), stage.to.path(), Links::Keep, true);
    assert_eq!((sent.kept, failures.len()), (9, 2));
    // A receiver that wants no links refuses them, each by name.
    let none = tempfile::tempdir().unwrap();
    let (sent, failures) = transfer(&stage.paths(), none.path(), Links::Keep, false);
    assert_eq!((sent.kept, sent.failed), (5, 6));
    assert!(failures.contains(&("one/near".into(), Reason::NotAFile)), "{failures:?}");
    assert!(fs::symlink_metadata(none.path().join("one/near")).is_err());
}

#[test]
fn followed_links_bring_what_lies_in_the_named_paths_and_loops_are_named() {
    let stage = Stage::new();
    let to = stage.to.path().join("one");
    let (sent, failures) = transfer(&stage.paths(), stage.to.path(), Links::Follow, false);
    assert_eq!(stage.failed(failures), ["none", "out", "up"]);
    // `near`, `folder`, `folder/f` and `other` besides the five.
    assert_eq!((sent.kept, sent.failed), (9, 3));
    for (name, content) in [("near", &b"first"[..]), ("folder/f", b"first"), ("other", b"second")] {
        assert_eq!(fs::read(to.join(name)).unwrap(), content);
        assert!(!fs::symlink_metadata(to.join(name)).unwrap().is_symlink());
    }
    // Two folders that lead to each other.
    let root = stage.from.path();
    fs::remove_dir_all(root.join("one")).unwrap();
    fs::create_dir(root.join("one")).unwrap();
    symlink("../two", root.join("one/to")).unwrap();
    symlink("../one", root.join("two/back")).unwrap();
    let again = tempfile::tempdir().unwrap();
    let (sent, failures) = transfer(&stage.paths(), again.path(), Links::Follow, false);
    assert_eq!((sent.failed, failures.len()), (2, 2), "{failures:?}");
    assert_eq!(fs::read(again.path().join("one/to/g")).unwrap(), b"second");
    // A link that was named is sent as what it leads to.
    symlink("secret", root.join("named")).unwrap();
    let (sent, _) = transfer(&[root.join("named")], again.path(), Links::Follow, false);
    assert_eq!((sent.kept, fs::read(again.path().join("named")).unwrap()), (1, b"secret".to_vec()));
}

fn link(id: u32, path: &[u8], target: &[u8]) -> Record<'static> {
    Record::Link(Link { id, encoding: Encoding::of(path), path: path.to_vec(), target: target.to_vec() })
}

fn look(id: u32, path: &str) -> Record<'static> {
    let (path, size) = (path.as_bytes().to_vec(), 1);
    Record::Look(Look { id, kind: Kind::File, encoding: Encoding::Utf8, size, source: Key::of_path(&path), path })
}

fn file(id: u32, path: &str) -> [Record<'static>; 4] {
    let source = Key::of_path(path.as_bytes());
    let entry = Entry { id, attributes: Attributes { mode: 0o644, modified: (0, 0) }, size: 1, offset: 0, source };
    [look(id, path), Record::Entry(entry), Record::Chunk(b"x"), Record::End(blake3::hash(b"x").into())]
}

/// Sends `records` to a receiver that makes links and replaces what stands. Returns how it ended, and its
/// RESULTs.
fn play(records: &[Record<'_>], to: &Path) -> (Result<Outcome, TransferError>, Vec<Option<Reason>>) {
    let destination = Destination::open(to).unwrap().with_links(true).with_existing(Existing::Replace);
    let (received, results) = run(hostile::play(records, &destination));
    (received, results.into_iter().map(|(_, failure)| failure).collect())
}

#[test]
fn a_hostile_sender_makes_no_link_that_leads_out_and_nothing_goes_through_one() {
    let outside = tempfile::tempdir().unwrap();
    let inside = outside.path().join("inside");
    fs::create_dir(&inside).unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    fs::create_dir(inside.join("d")).unwrap();
    fs::write(inside.join("d/own"), b"own").unwrap();
    let refused = Some(Reason::PathRefused);
    let links: [(&[u8], &[u8], Option<Reason>); 13] = [
        (b"a/l", b"/etc/passwd", refused),
        (b"a/l", b"../../secret", refused),
        (b"a/l", b"..", refused),
        (b"a/l", b"../d/own", refused),
        (b"a/l", b"s/s/../../..", refused),
        (b"l", b"d/own", refused),
        (b"../l", b"x", refused),
        (b".tidewire-parts/l", b"x", refused),
        (b"a/l\xff", b"x\0", refused),
        (b"a/l\xff", b"x", None),
        (b"a/s", b".", None),
        // Through the link that was just made.
        (b"a/s/x", b"y", refused),
        // In the place of a folder.
        (b"a/b", b"y", Some(Reason::Unwritable)),
    ];
    fs::create_dir_all(inside.join("a/b")).unwrap();
    let mut records: Vec<_> = (0..).zip(links).map(|(id, (path, target, _))| link(id, path, target)).collect();
    records.push(Record::Done { announced: 13, unsent: 0 });
    let (received, results) = play(&records, &inside);
    assert_eq!(results, links.map(|(_, _, wanted)| wanted));
    assert_eq!(received.unwrap().kept, 2);
    // A later job does not go through it either.
    let mut records = file(0, "a/s/x").to_vec();
    records.push(link(1, b"a/s/y/z", b"q"));
    records.push(Record::Done { announced: 2, unsent: 0 });
    assert_eq!(play(&records, &inside).1, [refused, refused]);
    let mut names: Vec<_> = fs::read_dir(inside.join("a")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 2, "something was made outside");
}

#[test]
fn links_come_last_and_once() {
    let to = tempfile::tempdir().unwrap();
    let [asked, entry, chunk, end] = file(0, "f");
    for (records, name) in [
        (vec![asked.clone(), link(1, b"a/l", b"x")], "LINK"),
        (vec![asked.clone(), entry.clone(), link(1, b"a/l", b"x")], "LINK"),
        (vec![asked, entry, chunk, end, link(0, b"a/l", b"x")], "LINK"),
        (vec![link(1, b"a/l", b"x"), link(1, b"a/m", b"x")], "LINK"),
        (vec![link(1, b"a/l", b"x"), look(2, "g")], "file after LINK"),
        (vec![link(1, b"a/l", b"x"), Record::Skip(2)], "file after LINK"),
        (vec![link(1, b"a/l", b"x"), Record::Done { announced: 0, unsent: 0 }], "DONE"),
    ] {
        match play(&records, to.path()).0 {
            Err(TransferError::Unexpected(found)) => assert_eq!(found, name),
            other => panic!("{records:?} gave {other:?}"),
        }
    }
}

#[test]
fn a_link_replaces_only_what_it_may() {
    for (existing, wanted) in [
        (Existing::Update, Some(Reason::Exists)),
        (Existing::Keep, Some(Reason::Exists)),
        (Existing::Replace, None),
        (Existing::Rename, None),
    ] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (here, there) = (from.path().join("d"), to.path().join("d"));
        fs::create_dir(&here).unwrap();
        fs::create_dir(&there).unwrap();
        symlink("target", here.join("l")).unwrap();
        fs::write(there.join("l"), b"mine").unwrap();
        let found = scan_with(&[here], of(Links::Keep)).unwrap();
        let destination = Destination::open(to.path()).unwrap().with_links(true).with_existing(existing);
        for _ in 0..2 {
            let failed = Mutex::new(None);
            let watch = |event: Event<'_>| {
                if let Event::Failed(failure) = event {
                    *failed.lock().unwrap() = Some(failure.reason);
                }
            };
            let (near, far) = duplex(3000);
            let (sent, _) =
                run(async { tokio::join!(send(near, &found, &watch), receive(far, &destination, None, &|_| {})) });
            assert_eq!((failed.into_inner().unwrap(), sent.unwrap().failed), (wanted, wanted.is_some().into()));
            let name = if existing == Existing::Rename { "l (2)" } else { "l" };
            assert_eq!(fs::read_link(there.join(name)).is_ok(), wanted.is_none(), "{existing:?}");
            assert_eq!(fs::read(there.join("l")).is_ok(), existing != Existing::Replace);
            assert_eq!(fs::read_dir(&there).unwrap().count(), 1 + usize::from(existing == Existing::Rename));
        }
    }
}

/// A receiver that answers a LINK which did not come, or the same twice, is cut off.
#[test]
fn a_hostile_receiver_answers_no_link_that_was_not_sent() {
    let from = tempfile::tempdir().unwrap();
    fs::create_dir(from.path().join("d")).unwrap();
    symlink("x", from.path().join("d/l")).unwrap();
    let found = scan_with(&[from.path().join("d")], of(Links::Keep)).unwrap();
    for (early, times, id) in [(true, 1, 1), (false, 2, 1), (false, 1, 2)] {
        // So little fits into the pipe that the sender comes to no LINK before the early answer.
        let (near, far) = duplex(if early { 64 } else { 100_000 });
        let sent = run(async {
            let hostile = async {
                let (read, write) = split(far);
                let mut records = RecordReader::open(read).await.unwrap();
                let mut answers = RecordWriter::open(write).await.unwrap();
                while !early && !matches!(records.next().await.unwrap(), Record::Link(_)) {}
                for _ in 0..times {
                    let _ = answers.write(&Record::Result { id, failure: None, detail: "" }).await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                sent = send(near, &found, &|_| {}) => sent,
                () = hostile => unreachable!(),
            }
        });
        assert!(matches!(sent, Err(TransferError::Unexpected("RESULT"))), "{early} {times} {id}: {sent:?}");
    }
}
