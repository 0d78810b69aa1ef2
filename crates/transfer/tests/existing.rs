//! What becomes of files that stand at the destination, over a pipe in memory: a peer replaces only what the
//! receiver lets it replace.
#![cfg(unix)]

mod cut_off;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tidewire::{PrivateKey, PublicKey};
use tidewire_transfer::{Destination, Event, Existing, GROUP, Outcome, Reason, receive, scan, send};
use tokio::io::duplex;

use cut_off::cut_off;

const ALL: [Existing; 4] = [Existing::Update, Existing::Replace, Existing::Keep, Existing::Rename];

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap().block_on(future)
}

fn public(seed: u8) -> PublicKey {
    PrivateKey::new([seed; 32]).public()
}

/// Two folders, and how the second one receives.
struct Stage {
    from: tempfile::TempDir,
    to: tempfile::TempDir,
    existing: Existing,
}

impl Stage {
    fn new(existing: Existing) -> Self {
        Self { from: tempfile::tempdir().unwrap(), to: tempfile::tempdir().unwrap(), existing }
    }

    /// Writes a file of the sender.
    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.from.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes a file of the receiver.
    fn own(&self, name: &str, content: &[u8]) {
        fs::write(self.to.path().join(name), content).unwrap();
    }

    /// Sends `paths` as the peer `seed`, while `meanwhile` sees each event of the receiver. Returns the
    /// outcome, and the reasons of failures at the sender and at the receiver.
    fn send(
        &self,
        paths: &[PathBuf],
        seed: u8,
        meanwhile: &(dyn Fn(&Event<'_>) + Sync),
    ) -> (Outcome, [Vec<Reason>; 2]) {
        let found = scan(paths).unwrap();
        let destination = Destination::open(self.to.path()).unwrap().with_existing(self.existing);
        let (here, there) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let note = |list: &Mutex<Vec<Reason>>, event: &Event<'_>| {
            if let Event::Failed(failure) = event {
                list.lock().unwrap().push(failure.reason);
            }
        };
        let (near, far) = duplex(100_000);
        let sent = run(async {
            let watch_here = |event: Event<'_>| note(&here, &event);
            let watch_there = |event: Event<'_>| {
                note(&there, &event);
                meanwhile(&event);
            };
            let peer = public(seed);
            tokio::join!(send(near, &found, &watch_here), receive(far, &destination, Some(&peer), &watch_there)).0
        });
        (sent.unwrap(), [here.into_inner().unwrap(), there.into_inner().unwrap()])
    }

    /// Sends `paths` as the peer 1 until `most` bytes have passed.
    fn cut_off(&self, paths: &[PathBuf], most: u64) {
        let found = scan(paths).unwrap();
        let destination = Destination::open(self.to.path()).unwrap().with_existing(self.existing);
        run(cut_off(&found, &destination, Some(&public(1)), most));
    }

    /// The files of the receiver. The folder of parts must be gone.
    fn there(&self) -> BTreeMap<String, Vec<u8>> {
        read_all(self.to.path())
    }
}

fn read_all(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

fn files<const N: usize>(files: [(&str, &[u8]); N]) -> BTreeMap<String, Vec<u8>> {
    files.into_iter().map(|(name, content)| (name.to_owned(), content.to_vec())).collect()
}

#[test]
fn what_stands_is_kept_replaced_or_passed_by() {
    for existing in ALL {
        let stage = Stage::new(existing);
        stage.own("f.txt", b"mine");
        let path = stage.file("f.txt", b"theirs");
        let (sent, [here, there]) = stage.send(&[path, stage.file("g", b"new")], 1, &|_| {});
        assert_eq!(here, there);
        let wanted = match existing {
            Existing::Replace => files([("f.txt", b"theirs"), ("g", b"new")]),
            Existing::Rename => files([("f.txt", b"mine"), ("f (2).txt", b"theirs"), ("g", b"new")]),
            _ => files([("f.txt", b"mine"), ("g", b"new")]),
        };
        assert_eq!(stage.there(), wanted, "{existing:?}");
        match existing {
            Existing::Update | Existing::Keep => {
                assert_eq!((sent.kept, sent.failed, here), (1, 1, vec![Reason::Exists]));
            }
            _ => assert_eq!((sent.kept, sent.failed), (2, 0)),
        }
    }
}

#[test]
fn a_newer_version_replaces_only_what_the_same_peer_delivered() {
    let stage = Stage::new(Existing::Update);
    let send = |content: &[u8], seed: u8| stage.send(&[stage.file("f", content)], seed, &|_| {}).1[0].clone();
    for content in [&b"one"[..], b"another", b"again"] {
        assert_eq!(send(content, 1), []);
        assert_eq!(stage.there(), files([("f", content)]));
    }
    // Another peer does not take it over, not even one that knows its content.
    assert_eq!(send(b"eve", 2), [Reason::Exists]);
    assert_eq!(send(b"again", 2), []);
    assert_eq!(send(b"eve", 2), [Reason::Exists]);
    // The first still may.
    assert_eq!(send(b"last", 1), []);
    stage.own("f", b"mine now");
    assert_eq!(send(b"more", 1), [Reason::Exists]);
    assert_eq!(stage.there(), files([("f", b"mine now")]));
}

#[test]
fn an_equal_file_is_no_conflict_and_its_new_time_is_noted() {
    for existing in ALL {
        let stage = Stage::new(existing);
        stage.own("f", b"equal");
        let path = stage.file("f", b"equal");
        let (sent, _) = stage.send(&[path], 1, &|_| {});
        assert_eq!((sent.kept, sent.failed, sent.resumed), (1, 0, 5), "{existing:?}");
        assert_eq!(stage.there(), files([("f", b"equal")]));
    }
    // A file that was delivered stays the sender's when only its time has changed.
    let stage = Stage::new(Existing::Update);
    let path = stage.file("f", b"one");
    assert_eq!(stage.send(std::slice::from_ref(&path), 1, &|_| {}).1[0], []);
    fs::File::options().write(true).open(&path).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(stage.send(std::slice::from_ref(&path), 1, &|_| {}).0.resumed, 3);
    assert_eq!(stage.send(&[stage.file("f", b"another")], 1, &|_| {}).1[0], []);
    assert_eq!(stage.there(), files([("f", b"another")]));
}

#[test]
fn a_repeated_command_gives_no_second_name() {
    let stage = Stage::new(Existing::Rename);
    stage.own("f.txt", b"mine");
    let path = stage.file("f.txt", b"theirs");
    for _ in 0..3 {
        assert_eq!(stage.send(std::slice::from_ref(&path), 1, &|_| {}).0.kept, 1);
        // The second name has the same length as the first has.
        assert_eq!(stage.there(), files([("f.txt", b"mine"), ("f (2).txt", b"theirs")]));
    }
}

/// A file comes under the name while the bytes of another arrive.
#[test]
fn a_file_that_appears_meanwhile_is_not_lost() {
    for existing in ALL {
        let stage = Stage::new(existing);
        let path = stage.file("f", &[7; 300_000]);
        let (_, [here, _]) = stage.send(&[path], 1, &|event| {
            if matches!(event, Event::Bytes(_)) {
                stage.own("f", b"mine");
            }
        });
        let there = stage.there();
        match existing {
            Existing::Replace => assert_eq!(there["f"], [7; 300_000]),
            Existing::Rename => assert_eq!((&there["f"][..], &there["f (2)"][..]), (&b"mine"[..], &[7; 300_000][..])),
            _ => assert_eq!((here, there), (vec![Reason::Exists], files([("f", b"mine")])), "{existing:?}"),
        }
    }
}

#[test]
fn an_equal_file_that_appears_meanwhile_is_no_conflict() {
    for existing in ALL {
        let stage = Stage::new(existing);
        let path = stage.file("f", &[7; 300_000]);
        let (sent, [here, _]) = stage.send(&[path], 1, &|event| {
            if matches!(event, Event::Bytes(_)) {
                stage.own("f", &[7; 300_000]);
            }
        });
        assert_eq!((sent.kept, here), (1, vec![]), "{existing:?}");
        assert_eq!(stage.there(), files([("f", &[7; 300_000])]));
    }
}

/// A job that is cut off has given a file its name, or has put it where nothing stood. Its next session does
/// not decide again.
#[test]
fn a_job_that_goes_on_keeps_its_decision() {
    let large = vec![9; 3 * GROUP as usize];
    for existing in ALL {
        let stage = Stage::new(existing);
        if existing == Existing::Rename {
            stage.own("a", b"mine");
        }
        let paths = [stage.file("a", b"first"), stage.file("large", &large)];
        stage.cut_off(&paths, GROUP);
        let name = if existing == Existing::Rename { "a (2)" } else { "a" };
        assert_eq!(fs::read(stage.to.path().join(name)).unwrap(), b"first", "{existing:?}");
        // The same file, and then a newer version of it.
        stage.cut_off(&paths, GROUP);
        stage.file("a", b"second version");
        let (sent, [here, _]) = stage.send(&paths, 1, &|_| {});
        assert_eq!((sent.kept, here), (2, vec![]), "{existing:?}");
        let mut wanted = files([(name, b"second version"), ("large", &large)]);
        if existing == Existing::Rename {
            wanted.insert("a".into(), b"mine".to_vec());
        }
        assert!(stage.there() == wanted, "{existing:?}: {:?}", stage.there().keys());
    }
}

/// What the user puts in the place of a file of a job that was cut off is the user's.
#[test]
fn what_was_changed_between_two_sessions_is_kept() {
    for existing in [Existing::Update, Existing::Keep] {
        let stage = Stage::new(existing);
        let paths = [stage.file("a", b"first"), stage.file("large", &vec![9; 3 * GROUP as usize])];
        stage.cut_off(&paths, GROUP);
        stage.own("a", b"mine now");
        let (sent, [here, _]) = stage.send(&paths, 1, &|_| {});
        assert_eq!((sent.kept, here), (1, vec![Reason::Exists]));
        assert_eq!(stage.there()["a"], b"mine now");
    }
}
