//! Why an entry is refused: what the receiver tells the sender when it does not keep a file.
//!
//! Everything that writes into the destination returns it, and the receiver sends it on.

use std::io;

use super::Reason;

/// Why the destination refused an entry, with the error text of the operating system.
pub(super) type Refusal = (Reason, String);

/// The reason on the wire for an error of the operating system.
pub(super) fn refusal(error: io::Error) -> Refusal {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    (if full { Reason::NoSpace } else { Reason::Unwritable }, error.to_string())
}
