//! Why an entry is refused: what the receiver tells the sender when it does not keep a file.
//!
//! Everything that writes into the destination returns it, and the receiver sends it on.

use std::io;

use super::Reason;

/// Why the destination refused an entry, with the error text of the operating system.
pub(super) type Refusal = (Reason, String);

/// The reason on the wire for an error of the operating system.
pub(super) fn refusal(error: io::Error) -> Refusal {
    if is_impossible_name(&error) {
        return (Reason::PathRefused, format!("the file system of the destination cannot have its name: {error}"));
    }
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let detail = match error.kind() {
        io::ErrorKind::FileTooLarge => {
            format!("{error}: beyond the limit of its file system or of the process that receives (ulimit -f)")
        }
        _ => error.to_string(),
    };
    (if full { Reason::NoSpace } else { Reason::Unwritable }, detail)
}

/// Whether a file system says that no file of it can have this name. macOS says it of names that are not
/// UTF-8, and ext4 of those in a folder that folds names strictly.
#[cfg(unix)]
fn is_impossible_name(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::ILSEQ)
}

#[cfg(not(unix))]
fn is_impossible_name(_: &io::Error) -> bool {
    false
}

/// Whether an error says that the disk, the way to it or the machine has failed. Other errors of a call that
/// only adds to a complete file (its mode, its time, a flush) say that the file system lacks this call.
///
/// The failures are listed, and not what a file system may answer in place of "not supported": EINVAL, EPERM,
/// EACCES, EBADF, EISDIR, ENOSYS, ENOTTY and EOPNOTSUPP were all seen.
pub fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    let kind = matches!(
        error.kind(),
        Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::FileTooLarge
            | Kind::ReadOnlyFilesystem
            | Kind::NotFound
            | Kind::OutOfMemory
            | Kind::TimedOut
            | Kind::BrokenPipe
            | Kind::NotConnected
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::ConnectionRefused
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::StaleNetworkFileHandle
    );
    kind || is_failed_disk(error)
}

/// Failures that the standard library has no kind for.
#[cfg(unix)]
fn is_failed_disk(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let failed = [Errno::IO, Errno::NXIO, Errno::NODEV, Errno::MFILE, Errno::NFILE];
    #[cfg(target_os = "linux")]
    let failed = [&failed[..], &[Errno::UCLEAN, Errno::REMOTEIO, Errno::HOSTDOWN, Errno::SHUTDOWN]].concat();
    Errno::from_io_error(error).is_some_and(|errno| failed.contains(&errno))
}

/// Nothing that may fail with "not supported" is called here.
#[cfg(not(unix))]
fn is_failed_disk(_: &io::Error) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_name_that_a_file_system_cannot_have_is_the_reason() {
        let (reason, detail) = refusal(Errno::ILSEQ.into());
        assert_eq!(reason, Reason::PathRefused);
        assert!(detail.contains("cannot have its name"), "{detail}");
        assert_eq!(refusal(Errno::ACCESS.into()).0, Reason::Unwritable);
    }

    #[test]
    fn a_failed_disk_differs_from_a_call_that_a_file_system_lacks() {
        let failed = [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::STALE, Errno::FBIG, Errno::NOMEM];
        for errno in failed.into_iter().chain([Errno::NFILE, Errno::MFILE, Errno::NOENT, Errno::TIMEDOUT]) {
            assert!(is_damage(&errno.into()), "{errno:?}");
        }
        let lacking = [Errno::INVAL, Errno::PERM, Errno::ACCESS, Errno::BADF, Errno::ISDIR, Errno::NOSYS];
        for errno in lacking.into_iter().chain([Errno::NOTTY, Errno::OPNOTSUPP, Errno::NOTSUP]) {
            assert!(!is_damage(&errno.into()), "{errno:?}");
        }
    }
}
