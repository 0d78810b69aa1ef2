//! The ports that one far end has open for its clients, and which client may have which.
//!
//! [`crate::far`] makes one for all connections, [`crate::listener`] opens ports through it. Invariants: a
//! client with a public key takes a port over from its own older sessions, so that a client that was killed
//! and started again need not wait until its dead session is found out. It never takes one from another key,
//! or from a later session, so two clients that live with one key do not take a port in turns.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidewire::PublicKey;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::header::{Answer, Code};
use crate::sockets::Port;

/// Time for an older session to let a port go. Chosen: ten times the pause of a port that cannot accept.
const PATIENCE: Duration = Duration::from_secs(5);

/// A session of a client. Later sessions have greater numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    number: u64,
    key: Option<PublicKey>,
}

/// All open ports of a far end.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    held: Mutex<Vec<Held>>,
    sessions: AtomicU64,
    /// Number of the next opening.
    next: AtomicU64,
}

/// What others see of an open port.
#[derive(Debug)]
struct Held {
    number: u64,
    by: Session,
    address: SocketAddr,
    let_go: Arc<Notify>,
    gone: watch::Receiver<()>,
}

/// An open port of a session. Dropping it closes the port.
#[derive(Debug)]
pub(crate) struct Opening {
    /// It is dropped before `entry` tells others that it is closed.
    pub(crate) port: Arc<Port>,
    let_go: Arc<Notify>,
    _entry: Entry,
}

#[derive(Debug)]
struct Entry {
    openings: Arc<Openings>,
    number: u64,
    _gone: watch::Sender<()>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.openings.held().retain(|held| held.number != self.number);
    }
}

impl Opening {
    /// Waits until a later session of the same client asks for the port.
    pub(crate) async fn wanted(&self) {
        self.let_go.notified().await;
    }
}

impl Openings {
    /// A new session of the client that `key` authenticates. Without one, all clients share a secret.
    pub(crate) fn session(&self, key: Option<PublicKey>) -> Session {
        Session { number: self.sessions.fetch_add(1, Ordering::Relaxed), key }
    }

    /// Opens a port, if need be by taking it over.
    ///
    /// # Errors
    /// The answer that refuses it: [`Code::InUse`] if the port may become free, else [`Code::NotListening`].
    pub(crate) async fn open(self: &Arc<Self>, by: Session, address: SocketAddr) -> Result<Opening, Answer> {
        match self.try_open(by, address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            opened => return opened.map_err(|error| Answer::new(Code::NotListening, error.to_string())),
        }
        let (mut is_own, mut gone) = (false, Vec::new());
        for held in self.held().iter().filter(|held| overlap(held.address, address)) {
            is_own |= held.by == by;
            if by.key.is_some() && held.by.key == by.key && held.by.number < by.number {
                held.let_go.notify_one();
                gone.push(held.gone.clone());
            }
        }
        let all_gone = async {
            for mut gone in gone {
                // Nothing is ever sent: it returns when the sender is dropped.
                let _ = gone.changed().await;
            }
        };
        // If it takes longer, the port is still in use.
        let _ = timeout(PATIENCE, all_gone).await;
        self.try_open(by, address).map_err(|error| {
            let may_become_free = error.kind() == io::ErrorKind::AddrInUse && !is_own;
            Answer::new(if may_become_free { Code::InUse } else { Code::NotListening }, error.to_string())
        })
    }

    fn try_open(self: &Arc<Self>, by: Session, address: SocketAddr) -> io::Result<Opening> {
        let mut held = self.held();
        let port = Arc::new(Port::listen(address)?);
        let (let_go, (tell, gone)) = (Arc::<Notify>::default(), watch::channel(()));
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        held.push(Held { number, by, address: port.address(), let_go: Arc::clone(&let_go), gone });
        Ok(Opening { port, let_go, _entry: Entry { openings: Arc::clone(self), number, _gone: tell } })
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether two ports cannot be open at once.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    one.port() == other.port() && (a == b || a.is_unspecified() || b.is_unspecified())
}

#[cfg(test)]
mod tests {
    use tidewire::new_private_key;

    use super::*;

    fn key() -> Option<PublicKey> {
        Some(new_private_key().unwrap().public())
    }

    /// What a session gets that asks for `address`.
    async fn ask(openings: &Arc<Openings>, by: Session, address: SocketAddr) -> Result<Opening, u8> {
        openings.open(by, address).await.map_err(|answer| answer.code)
    }

    /// Keeps a port as [`crate::listener`] does.
    fn keep(opening: Opening) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move { opening.wanted().await })
    }

    #[tokio::test]
    async fn a_key_takes_its_port_over_from_its_older_sessions_only() {
        let openings = Arc::<Openings>::default();
        let (own, other) = (key(), key());
        let [older, later, foreign] = [own, own, other].map(|key| openings.session(key));
        let opening = ask(&openings, older, ([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = opening.port.address();
        let kept = keep(opening);
        let in_use = Code::InUse as u8;
        assert_eq!(ask(&openings, foreign, address).await.unwrap_err(), in_use);
        assert_eq!(ask(&openings, older, address).await.unwrap_err(), Code::NotListening as u8, "it has it itself");
        let taken = keep(ask(&openings, later, address).await.unwrap());
        kept.await.unwrap();
        assert_eq!(ask(&openings, older, address).await.unwrap_err(), in_use, "no taking in turns");
        taken.abort();
        assert!(taken.await.unwrap_err().is_cancelled());
        assert!(ask(&openings, older, address).await.is_ok(), "the port is free again");
        assert!(openings.held().is_empty());
    }

    #[tokio::test]
    async fn clients_that_share_a_secret_wait_for_a_port() {
        let openings = Arc::<Openings>::default();
        let [older, later] = [None, None].map(|key| openings.session(key));
        let opening = ask(&openings, older, ([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = opening.port.address();
        assert_eq!(ask(&openings, later, address).await.unwrap_err(), Code::InUse as u8);
        drop(opening);
        assert!(ask(&openings, later, address).await.is_ok());
        // No interface has this address (RFC 5737).
        let nowhere = ([192, 0, 2, 1], 1).into();
        assert_eq!(ask(&openings, later, nowhere).await.unwrap_err(), Code::NotListening as u8);
    }

    #[test]
    fn ports_overlap_with_those_on_all_addresses() {
        let overlap = |one: &str, other: &str| overlap(one.parse().unwrap(), other.parse().unwrap());
        assert!(overlap("127.0.0.1:80", "127.0.0.1:80") && overlap("0.0.0.0:80", "127.0.0.1:80"));
        assert!(overlap("[::ffff:127.0.0.1]:80", "127.0.0.1:80") && overlap("10.0.0.1:80", "[::]:80"));
        assert!(!overlap("127.0.0.1:80", "127.0.0.1:81") && !overlap("127.0.0.1:80", "127.0.0.2:80"));
    }
}
