//! Error codes, and the text of the last error of each thread.
//!
//! Every function of the edge ends in a [`Failure`] or a value. `edge.rs` stores the failure here. Invariant:
//! every code has a line in [`TEXTS`], and the values never change once they are released.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Display;
use std::io;

use tidewire::{ConnectError, ConnectionLost, StreamError};

/// An error of the system or of the connection that no other code names.
pub const TW_EIO: c_int = -5;
/// The handle is closed, or was never given out.
pub const TW_EBADF: c_int = -9;
/// A non-blocking call would wait.
pub const TW_EAGAIN: c_int = -11;
/// The system does not allow the address.
pub const TW_EACCES: c_int = -13;
/// A pointer is NULL.
pub const TW_EFAULT: c_int = -14;
/// An argument is wrong.
pub const TW_EINVAL: c_int = -22;
/// Too many sockets, or the system has no more descriptors.
pub const TW_EMFILE: c_int = -24;
/// The peer reads no more, or we ended the stream.
pub const TW_EPIPE: c_int = -32;
/// The buffer is too small.
pub const TW_ERANGE: c_int = -34;
/// There is no such option.
pub const TW_ENOPROTOOPT: c_int = -92;
/// The handle is of a kind that cannot do this.
pub const TW_EOPNOTSUPP: c_int = -95;
/// The peer cannot be reached from an address of this family.
pub const TW_EAFNOSUPPORT: c_int = -97;
/// Another program has the address.
pub const TW_EADDRINUSE: c_int = -98;
/// The machine does not have the address.
pub const TW_EADDRNOTAVAIL: c_int = -99;
/// The connection was given up by this end.
pub const TW_ECONNABORTED: c_int = -103;
/// The peer closed the connection, or gave the stream up.
pub const TW_ECONNRESET: c_int = -104;
/// The socket is connected or listens already.
pub const TW_EISCONN: c_int = -106;
/// The socket is not connected.
pub const TW_ENOTCONN: c_int = -107;
/// No answer of the peer, silence, or a timeout that was set as an option.
pub const TW_ETIMEDOUT: c_int = -110;
/// The peer answered and refused.
pub const TW_ECONNREFUSED: c_int = -111;
/// The host of the link has no address.
pub const TW_EHOSTUNREACH: c_int = -113;
/// A non-blocking connect goes on.
pub const TW_EINPROGRESS: c_int = -115;
/// A bug in the library: it caught a panic. Close the handle and report it.
pub const TW_EPANIC: c_int = -1000;
/// The library was started before `fork`, and this is the child.
pub const TW_EFORKED: c_int = -1001;

/// Why a call failed: a code for the program, and a text for a person.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub code: c_int,
    pub text: String,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub fn new(code: c_int, text: impl Display) -> Self {
        Self { code, text: text.to_string() }
    }

    /// Stores the text for [`last`], and returns the code.
    pub fn tell(self) -> c_int {
        let text = CString::new(self.text.replace('\0', " ")).unwrap_or_default();
        // A thread that ends has no place for it any more, and nobody to read it.
        let _ = LAST.try_with(|last| last.replace(text));
        self.code
    }
}

/// An error of a system call.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::AddrInUse => TW_EADDRINUSE,
            io::ErrorKind::AddrNotAvailable => TW_EADDRNOTAVAIL,
            io::ErrorKind::PermissionDenied => TW_EACCES,
            io::ErrorKind::BrokenPipe => TW_EPIPE,
            io::ErrorKind::ConnectionReset => TW_ECONNRESET,
            io::ErrorKind::ConnectionAborted => TW_ECONNABORTED,
            io::ErrorKind::NotConnected => TW_ENOTCONN,
            io::ErrorKind::TimedOut => TW_ETIMEDOUT,
            _ if error.raw_os_error().is_some_and(|number| FULL.contains(&number)) => TW_EMFILE,
            _ => TW_EIO,
        };
        let text = match code {
            TW_EADDRINUSE => format!("{error}; choose another port, or port 0 for any"),
            TW_EADDRNOTAVAIL => format!("{error}; give an address of this machine, or 0.0.0.0 for all"),
            TW_EACCES => format!("{error}; ports below 1024 need privileges"),
            TW_EMFILE => format!("{error}; close handles, or raise the limit of open files"),
            _ => error.to_string(),
        };
        Self { code, text }
    }
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        io::Error::from(error).into()
    }
}

impl From<ConnectionLost> for Failure {
    fn from(error: ConnectionLost) -> Self {
        io::Error::from(error).into()
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let code = match &error {
            ConnectError::NoAnswer => TW_ETIMEDOUT,
            ConnectError::AddressFamily { .. } => TW_EAFNOSUPPORT,
            ConnectError::NoAddress(_) | ConnectError::PeerKey(_) => TW_EINVAL,
            ConnectError::Lost(_) => TW_ECONNREFUSED,
            _ => TW_EIO,
        };
        Self::new(code, error)
    }
}

/// The text of the last failure of this thread. It stays where it is until the next failure.
pub(crate) fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// A short text for a code.
pub(crate) fn describe(code: c_int) -> &'static CStr {
    let found = TEXTS.iter().find(|(known, _)| *known == code);
    found.map_or(if code >= 0 { c"success" } else { c"unknown code" }, |(_, text)| text)
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// `EMFILE` and `ENFILE`, which have the same values on all Unix systems.
const FULL: [i32; 2] = [24, 23];

/// A text for each code.
const TEXTS: [(c_int, &CStr); 24] = [
    (TW_EIO, c"TW_EIO: error of the system or of the connection"),
    (TW_EBADF, c"TW_EBADF: the handle is closed or was never given out"),
    (TW_EAGAIN, c"TW_EAGAIN: a non-blocking call would wait"),
    (TW_EACCES, c"TW_EACCES: the system does not allow the address"),
    (TW_EFAULT, c"TW_EFAULT: a pointer is NULL"),
    (TW_EINVAL, c"TW_EINVAL: an argument is wrong"),
    (TW_EMFILE, c"TW_EMFILE: too many sockets or descriptors"),
    (TW_EPIPE, c"TW_EPIPE: the peer reads no more, or the stream was ended"),
    (TW_ERANGE, c"TW_ERANGE: the buffer is too small"),
    (TW_ENOPROTOOPT, c"TW_ENOPROTOOPT: there is no such option"),
    (TW_EOPNOTSUPP, c"TW_EOPNOTSUPP: the handle is of a kind that cannot do this"),
    (TW_EAFNOSUPPORT, c"TW_EAFNOSUPPORT: the peer has an address of another family"),
    (TW_EADDRINUSE, c"TW_EADDRINUSE: another program has the address"),
    (TW_EADDRNOTAVAIL, c"TW_EADDRNOTAVAIL: the machine does not have the address"),
    (TW_ECONNABORTED, c"TW_ECONNABORTED: the connection was given up by this end"),
    (TW_ECONNRESET, c"TW_ECONNRESET: the peer closed the connection or gave the stream up"),
    (TW_EISCONN, c"TW_EISCONN: the socket is connected or listens already"),
    (TW_ENOTCONN, c"TW_ENOTCONN: the socket is not connected"),
    (TW_ETIMEDOUT, c"TW_ETIMEDOUT: no answer, silence or a timeout"),
    (TW_ECONNREFUSED, c"TW_ECONNREFUSED: the peer answered and refused"),
    (TW_EHOSTUNREACH, c"TW_EHOSTUNREACH: the host has no address"),
    (TW_EINPROGRESS, c"TW_EINPROGRESS: the connect goes on"),
    (TW_EPANIC, c"TW_EPANIC: a bug in the library, which caught a panic"),
    (TW_EFORKED, c"TW_EFORKED: the library was started before fork, and this is the child"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_code_with_its_value() {
        let page = include_str!("../../../docs/c-api.md");
        let source = include_str!("code.rs");
        assert_eq!(source.lines().filter(|line| line.starts_with("pub const TW_E")).count(), TEXTS.len());
        for (code, text) in TEXTS {
            let name = text.to_str().unwrap().split(':').next().unwrap();
            assert!(page.contains(&format!("| `{name}` | {code} |")), "docs/c-api.md lacks {name} with {code}");
            assert!(source.contains(&format!("pub const {name}: c_int = {code};")), "{name} has another value");
        }
    }

    #[test]
    fn every_code_has_a_text_and_others_are_unknown() {
        assert_eq!(describe(TW_EBADF).to_str().unwrap().split(':').next(), Some("TW_EBADF"));
        assert_eq!(describe(-7777), c"unknown code");
        assert_eq!(describe(0), c"success");
    }
}
