//! [`Bell`]: tells an event loop which of its waiting operations can go on.
//!
//! Each event loop has one, and watches its descriptor. Wakers add their token and make the descriptor
//! readable. Invariants: a waker takes neither the GIL nor a lock that is held while Python runs, so tokio's
//! thread never waits for Python; a token that was added makes the descriptor readable once.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use pyo3::prelude::*;

use crate::error::TRANSPORT;

/// What wakers and the event loop share.
struct Shared {
    /// Tokens of operations that can go on, since the last look.
    tokens: Mutex<Vec<u64>>,
    near: UnixStream,
}

/// The bell of one event loop.
#[pyclass(frozen, module = "tidewire._native")]
pub struct Bell {
    shared: Arc<Shared>,
    /// The end that the event loop watches.
    far: UnixStream,
}

#[pymethods]
impl Bell {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let pair = UnixStream::pair().and_then(|(near, far)| {
            near.set_nonblocking(true)?;
            far.set_nonblocking(true)?;
            Ok((near, far))
        });
        let (near, far) =
            pair.map_err(|error| TRANSPORT.raise(py, format!("no descriptor for the event loop: {error}")))?;
        Ok(Self { shared: Arc::new(Shared { tokens: Mutex::default(), near }), far })
    }

    /// The descriptor that is readable when there are tokens.
    fn fileno(&self) -> i32 {
        self.far.as_raw_fd()
    }

    /// Takes the tokens that were added.
    fn drain(&self) -> Vec<u64> {
        // First the descriptor, then the tokens: one that is added between the two is taken, and only looks
        // twice.
        let mut bytes = [0; 64];
        while matches!((&self.far).read(&mut bytes), Ok(read) if read == bytes.len()) {}
        std::mem::take(&mut *self.shared.tokens())
    }
}

impl Bell {
    /// A waker that adds `token`.
    pub fn waker(&self, token: u64) -> Waker {
        Arc::new(Rope { shared: Arc::clone(&self.shared), token }).into()
    }
}

impl Shared {
    fn tokens(&self) -> MutexGuard<'_, Vec<u64>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is pulled for one operation.
struct Rope {
    shared: Arc<Shared>,
    token: u64,
}

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut tokens = self.shared.tokens();
        let is_first = tokens.is_empty();
        if tokens.last() != Some(&self.token) {
            tokens.push(self.token);
        }
        drop(tokens);
        if is_first {
            // A full descriptor is readable already, and one that is closed belongs to a loop that is over.
            while matches!((&self.shared.near).write(&[1]), Err(error) if error.kind() == ErrorKind::Interrupted) {}
        }
    }
}
