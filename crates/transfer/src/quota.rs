//! How much a receiver accepts: bytes, and files and folders, over all its connections since it was started.
//!
//! [`Destination`](super::Destination) charges each file with the announced size before it creates anything,
//! so a sender is refused before a byte beyond the limit is written. What does not stay at the destination is
//! given back. Invariant: everything written and not removed is charged, and the charges are at most the
//! limits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Reason;
use super::refusal::Refusal;

/// Limits of a destination; `None` is no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Bytes of files.
    pub bytes: Option<u64>,
    /// Files and new folders.
    pub files: Option<u64>,
}

/// Sum of the charges.
#[derive(Debug, Default)]
pub(super) struct Quota {
    limits: Limits,
    used: Mutex<Used>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    bytes: u64,
    files: u64,
}

impl Quota {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, used: Mutex::default() })
    }

    /// Charges `bytes` and `files`, or refuses both.
    pub(super) fn charge(self: &Arc<Self>, bytes: u64, files: u64) -> Result<Charge, Refusal> {
        let mut used = self.used();
        let over = |what: &str, limit: u64, used: u64, asked: u64| {
            let left = limit.saturating_sub(used);
            (Reason::OverQuota, format!("{asked} more {what} than the {left} that are left of --max-{what} {limit}"))
        };
        let sum = |used: u64, asked: u64, limit: Option<u64>| {
            let sum = used.checked_add(asked).filter(|sum| limit.is_none_or(|limit| *sum <= limit));
            sum.ok_or(limit.unwrap_or(u64::MAX))
        };
        let all_bytes =
            sum(used.bytes, bytes, self.limits.bytes).map_err(|limit| over("bytes", limit, used.bytes, bytes))?;
        let all_files =
            sum(used.files, files, self.limits.files).map_err(|limit| over("files", limit, used.files, files))?;
        *used = Used { bytes: all_bytes, files: all_files };
        Ok(Charge { quota: Arc::clone(self), bytes, files })
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        // Every change is a single store, so a poisoned sum is still consistent.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The charge of one file or folder. What was not settled is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    quota: Arc<Quota>,
    bytes: u64,
    files: u64,
}

impl Charge {
    /// The file stays, with `bytes` of the charged bytes.
    pub(super) fn settle(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.files = 0;
    }

    /// The file or folder stays as charged.
    pub(super) fn settle_all(&mut self) {
        self.settle(self.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut used = self.quota.used();
        used.bytes -= self.bytes;
        used.files -= self.files;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_stay_is_given_back_and_nothing_goes_beyond() {
        let quota = Quota::new(Limits { bytes: Some(100), files: Some(2) });
        let used = || *quota.used();
        let mut first = quota.charge(60, 1).unwrap();
        let (reason, detail) = quota.charge(41, 1).unwrap_err();
        assert_eq!(reason, Reason::OverQuota);
        assert!(detail.contains("--max-bytes 100") && detail.contains("41") && detail.contains("40"), "{detail}");
        assert!(quota.charge(u64::MAX, 0).is_err());
        drop(quota.charge(40, 1).unwrap());
        assert_eq!(used(), Used { bytes: 60, files: 1 });
        // Cut off after 20 bytes, which stay.
        first.settle(20);
        drop(first);
        assert_eq!(used(), Used { bytes: 20, files: 1 });
        let mut second = quota.charge(80, 0).unwrap();
        second.settle_all();
        drop(second);
        assert_eq!(used(), Used { bytes: 100, files: 1 });
        let _third = quota.charge(0, 1).unwrap();
        assert!(quota.charge(0, 1).unwrap_err().1.contains("--max-files 2"));
        assert!(Quota::new(Limits::default()).charge(u64::MAX, u64::MAX).is_ok());
    }
}
