//! Hosts: the processor time that datagrams cost, the socket in which they wait, and the sleep of a process.
//!
//! A [`Host`] describes a machine. A process is one endpoint with its socket and takes the turns of the
//! real driver (`crates/tidewire/src/driver.rs`): it reads one batch, handles timers up to the time to
//! which it has read, and sends until nothing is due. A machine divides processors between processes.
//! [`crate::crowd`] runs them. Invariants: a datagram has the time at which it entered the socket, however
//! late it is read; the default host is infinitely fast, drops nothing and never sleeps.

mod inbox;
mod machine;
mod process;

use core::time::Duration;

pub use inbox::SocketStats;
pub(crate) use inbox::{Inbox, Parcel, Waiting};
pub(crate) use machine::{Machine, Nap};
pub use process::ProcessStats;
pub(crate) use process::{Outcome, Process, Tasks};

/// A machine and what its processes may do there. The default is infinitely fast.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Number of processors that its processes share. A process runs on one of them at a time.
    pub processors: usize,
    /// Processor time to read a datagram and handle it, the application included.
    pub read: Duration,
    /// Processor time to make a datagram and send it.
    pub send: Duration,
    /// Bytes of kernel memory for unread datagrams, for each process: on Linux twice what it asks for with
    /// `SO_RCVBUF`. `None` means that there is always room.
    pub buffer: Option<usize>,
    /// Times at which a process does not run whatever arrives; each process has its own.
    pub pauses: Option<Pauses>,
}

impl Default for Host {
    fn default() -> Self {
        Self { processors: 1, read: Duration::ZERO, send: Duration::ZERO, buffer: None, pauses: None }
    }
}

/// How a process sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// Mean time from the end of a pause to the next one; each is drawn evenly from 0 to twice this.
    pub every: Duration,
    /// The shortest and the longest pause. The logarithm of the length is drawn evenly between them.
    pub length: [Duration; 2],
}
