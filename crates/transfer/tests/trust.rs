//! A peer of the file transfer cannot read what the sender did not name, overwrite the files of another, or
//! leave files that others can read. Over a pipe in memory.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tidewire::{PrivateKey, PublicKey};
use tidewire_transfer::{Destination, Event, GROUP, Outcome, Reason, receive, scan, send};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, duplex, split};

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap().block_on(future)
}

fn content(bytes: u64) -> Vec<u8> {
    let mut content = vec![0; bytes as usize];
    blake3::Hasher::new().update(b"trust").finalize_xof().fill(&mut content);
    content
}

/// Sends `paths` as `peer`, while `meanwhile` sees the first event of the sender and each of the receiver.
/// Returns the sender's outcome, and the reasons of its failures.
fn transfer(
    paths: &[PathBuf],
    to: &Path,
    peer: Option<&PublicKey>,
    meanwhile: &(dyn Fn(&Event<'_>) + Sync),
) -> (Outcome, Vec<Reason>) {
    let found = scan(paths).unwrap();
    let destination = Destination::open(to).unwrap();
    let failed = Mutex::new(Vec::new());
    let (near, far) = duplex(100_000);
    let sent = run(async {
        let note = |event: Event<'_>| match event {
            Event::Failed(failure) => failed.lock().unwrap().push(failure.reason),
            Event::Total { .. } => meanwhile(&event),
            _ => {}
        };
        let watch = |event: Event<'_>| meanwhile(&event);
        tokio::join!(send(near, &found, &note), receive(far, &destination, peer, &watch)).0
    });
    (sent.unwrap(), failed.into_inner().unwrap())
}

/// Sends `path` as `peer` until `most` bytes have passed.
fn cut_off(path: &Path, to: &Path, peer: Option<&PublicKey>, most: u64) {
    let found = scan(&[path.to_owned()]).unwrap();
    let destination = Destination::open(to).unwrap();
    run(async {
        let ((near, middle_near), (middle_far, far)) = (duplex(100_000), duplex(100_000));
        let ((near_read, mut near_write), (mut far_read, mut far_write)) = (split(middle_near), split(middle_far));
        let forth = async {
            let _ = copy(&mut near_read.take(most), &mut far_write).await;
            let _ = far_write.shutdown().await;
        };
        let receiving = async { tokio::join!(receive(far, &destination, peer, &|_| {}), forth).0 };
        tokio::select! {
            received = receiving => assert!(received.is_err()),
            _ = async { tokio::join!(send(near, &found, &|_| {}), copy(&mut far_read, &mut near_write)) } => {
                panic!("the sender ended first")
            }
        }
    });
}

fn public(byte: u8) -> PublicKey {
    PrivateKey::new([byte; 32]).public()
}

fn names(folder: &Path) -> Vec<String> {
    let found =
        fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = found.collect();
    names.sort();
    names
}

#[test]
fn a_part_is_its_owners_alone_until_it_has_its_mode() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = from.path().join("f");
    fs::write(&path, content(2 * GROUP)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
    let parts = to.path().join(".tidewire-parts");
    let looked = Mutex::new(0);
    transfer(&[path], to.path(), None, &|event| {
        if matches!(event, Event::Bytes(_)) {
            for name in names(&parts) {
                let mode = fs::metadata(parts.join(&name)).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "{name}");
                *looked.lock().unwrap() += 1;
            }
            assert_eq!(fs::metadata(&parts).unwrap().permissions().mode() & 0o777, 0o700);
        }
    });
    assert!(*looked.lock().unwrap() > 0);
    // Whatever the umask of this test is, the owner keeps access and nobody else gets it.
    let mode = fs::metadata(to.path().join("f")).unwrap().permissions().mode() & 0o777;
    assert!(mode & 0o700 == 0o600 && mode & !0o604 == 0, "{mode:o}");
}

#[test]
fn issue_13_another_key_neither_goes_on_with_a_part_nor_removes_it() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = from.path().join("f");
    fs::write(&path, content(3 * GROUP)).unwrap();
    let (ann, eve) = (public(1), public(2));
    cut_off(&path, to.path(), Some(&ann), 2 * GROUP + 100_000);
    let left = names(&to.path().join(".tidewire-parts"));
    assert_eq!(left.len(), 2);
    let resumed = |peer: Option<&PublicKey>| {
        let resumed = Mutex::new(0);
        transfer(std::slice::from_ref(&path), to.path(), peer, &|event| {
            if let Event::Resumed { offset, .. } = event {
                *resumed.lock().unwrap() += offset;
            }
        });
        resumed.into_inner().unwrap()
    };
    // The same source, path and job, once with another key and once with a secret.
    for other in [Some(&eve), None] {
        assert_eq!(resumed(other), 0);
        fs::remove_file(to.path().join("f")).unwrap();
    }
    assert_eq!(names(&to.path().join(".tidewire-parts")), left);
    assert_eq!(resumed(Some(&ann)), 2 * GROUP);
    assert_eq!(names(to.path()), ["f"]);
}

#[test]
fn a_link_planted_after_the_scan_leads_nowhere() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (inside, outside) = (from.path().join("inside"), from.path().join("outside"));
    fs::create_dir_all(inside.join("d")).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(inside.join("a"), b"first").unwrap();
    fs::write(inside.join("d/f"), b"mine").unwrap();
    fs::write(outside.join("f"), b"secret").unwrap();
    let planted = Mutex::new(false);
    let (outcome, reasons) = transfer(std::slice::from_ref(&inside), to.path(), None, &|event| {
        // The sender has not announced anything yet.
        if matches!(event, Event::Total { .. }) && !std::mem::replace(&mut *planted.lock().unwrap(), true) {
            fs::rename(inside.join("d"), from.path().join("moved")).unwrap();
            symlink(&outside, inside.join("d")).unwrap();
        }
    });
    assert_eq!(reasons, [Reason::NotAFile, Reason::NotAFile]);
    assert_eq!((outcome.kept, outcome.failed), (2, 2));
    assert_eq!(names(&to.path().join("inside")), ["a"]);
}

/// A hard link stands for a file system on which `A` and `a` are one name: both lead to one file.
#[test]
fn two_files_of_a_job_never_become_one_at_the_destination() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let paths: Vec<_> = ["A", "a", "b"].iter().map(|name| from.path().join(name)).collect();
    for path in &paths {
        fs::write(path, path.as_os_str().as_encoded_bytes()).unwrap();
    }
    let (outcome, reasons) = transfer(&paths, to.path(), None, &|event| {
        if matches!(event, Event::Kept { path: "A", .. }) {
            fs::hard_link(to.path().join("A"), to.path().join("a")).unwrap();
        }
    });
    assert_eq!(reasons, [Reason::PathRefused]);
    assert_eq!((outcome.kept, outcome.failed), (2, 1));
    assert_eq!(fs::read(to.path().join("A")).unwrap(), paths[0].as_os_str().as_encoded_bytes());
    // The same path again is the same file.
    assert_eq!(transfer(&paths[..1], to.path(), None, &|_| {}).1, []);
}

/// The same test on a file system that folds cases, if this machine can make one.
#[test]
#[ignore = "needs root, mkfs.ext4 and a kernel with casefold"]
fn names_that_differ_by_case_are_told_apart_where_the_file_system_folds_them() {
    let folder = tempfile::tempdir().unwrap();
    let mount = Folding::mount(folder.path());
    tidewire_testing::needs("root, mkfs.ext4 and a kernel with casefold", mount.is_some());
    let (from, to) = (folder.path().join("from"), folder.path().join("mount/into"));
    fs::create_dir(&from).unwrap();
    let names = ["A", "a", "b", "é", "e\u{301}"];
    let paths: Vec<_> = names.iter().map(|name| from.join(name)).collect();
    for (path, name) in paths.iter().zip(names) {
        fs::write(path, name).unwrap();
    }
    let (outcome, reasons) = transfer(&paths, &to, None, &|_| {});
    assert_eq!(reasons, [Reason::PathRefused, Reason::PathRefused]);
    assert_eq!((outcome.kept, outcome.failed), (3, 2));
    assert_eq!(fs::read(to.join("A")).unwrap(), b"A");
}

/// An ext4 file system, mounted below a folder, whose folder `into` folds cases.
struct Folding(PathBuf);

impl Folding {
    fn mount(folder: &Path) -> Option<Self> {
        let script = "truncate -s 16M image && mkfs.ext4 -q -O casefold image && mkdir mount && mount -o loop image mount \
             && mkdir mount/into && chattr +F mount/into";
        let made = std::process::Command::new("sh").args(["-ec", script]).current_dir(folder).output().ok()?;
        let mount = Self(folder.join("mount"));
        made.status.success().then_some(mount)
    }
}

impl Drop for Folding {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).output();
    }
}
