//! The folder that a receiver opens: made if it is missing, and refused at once if nothing can be put there.

use std::fs;

use tidewire_transfer::{Destination, receive, scan, send};
use tokio::io::duplex;

#[test]
fn a_missing_destination_is_created_for_its_owner_and_a_missing_parent_is_an_error() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(from.path().join("a"), b"a").unwrap();
    let new = to.path().join("new");
    let (found, destination) = (scan(&[from.path().join("a")]).unwrap(), Destination::open(&new).unwrap());
    let (near, far) = duplex(3000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let sent = runtime
        .block_on(async { tokio::join!(send(near, &found, &|_| {}), receive(far, &destination, None, &|_| {})) })
        .0;
    assert_eq!((sent.unwrap().kept, fs::read(new.join("a")).unwrap()), (1, b"a".to_vec()));
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&new).unwrap().permissions());
        assert_eq!(mode & 0o077, 0, "others may enter: mode {mode:o}");
    }
    let error = Destination::open(&to.path().join("missing/new")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
