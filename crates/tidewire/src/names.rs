//! From the name of a host to its addresses.
//!
//! Whoever connects to a host calls [`resolve`]. Invariant: the system's resolver, which nothing can
//! interrupt, runs in threads that neither a runtime nor the end of the process waits for.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::thread;

use tokio::sync::{Semaphore, oneshot};

/// Limit of addresses of a name that are tried. Chosen: more than names of services have.
const MOST_ADDRESSES: usize = 32;
/// Limit of calls in threads of their own, all callers together. More of them wait. Chosen: tokio's own limit
/// of blocking threads.
const MOST_THREADS: usize = 512;

/// Places of calls in threads of their own.
static ROOM: Semaphore = Semaphore::const_new(MOST_THREADS);

/// Finds the addresses of `host` with the resolver of the system, in the order in which they should be tried:
/// that of the system, with the address families in turn (RFC 8305 section 4). Dropping it abandons the
/// resolver. `host` is a name or an address without brackets, also one with a zone, as in `fe80::1%eth0`.
///
/// # Errors
/// The error of the resolver; that of the system if it gives no thread.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    #[expect(clippy::disallowed_methods, reason = "in a thread that nobody waits for")]
    let call = move || (host.as_str(), port).to_socket_addrs().map(Vec::from_iter);
    let found = apart(call).await??;
    Ok(in_turn(found))
}

/// Runs a call that may block for long, such as one that resolves a name, in a thread of its own. Dropping
/// the future abandons the call, and the end of the process does not wait for it. So it must not be one that
/// writes.
///
/// # Errors
/// The error of the system if it gives no thread, and one if the call panics.
pub async fn apart<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let place = ROOM.acquire().await.map_err(io::Error::other)?;
    let (tell, told) = oneshot::channel();
    thread::Builder::new().name("names".into()).spawn(move || {
        let result = call();
        drop(place);
        let _ = tell.send(result);
    })?;
    told.await.map_err(io::Error::other)
}

/// The addresses without repetition, with the families in turn, that of the first address first.
fn in_turn(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let begins = found.first().is_some_and(SocketAddr::is_ipv6);
    let mut seen = BTreeSet::new();
    let (one, other): (Vec<_>, Vec<_>) =
        found.into_iter().filter(|address| seen.insert(*address)).partition(|address| address.is_ipv6() == begins);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut sorted = Vec::new();
    loop {
        match (one.next(), other.next()) {
            (None, None) => break,
            (first, second) => sorted.extend(first.into_iter().chain(second)),
        }
    }
    sorted.truncate(MOST_ADDRESSES);
    sorted
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::*;

    fn addresses(hosts: &[&str]) -> Vec<SocketAddr> {
        hosts.iter().map(|host| SocketAddr::new(host.parse().unwrap(), 1)).collect()
    }

    #[test]
    fn families_take_turns_and_no_address_comes_twice() {
        for (found, wanted) in [
            (&["::1", "::2", "::1", "10.0.0.1", "10.0.0.2"][..], &["::1", "10.0.0.1", "::2", "10.0.0.2"][..]),
            (&["10.0.0.1", "::1", "::2", "::3"], &["10.0.0.1", "::1", "::2", "::3"]),
            (&["10.0.0.1", "10.0.0.2"], &["10.0.0.1", "10.0.0.2"]),
            (&[], &[]),
        ] {
            assert_eq!(in_turn(addresses(found)), addresses(wanted), "{found:?}");
        }
        let many = (0..u16::MAX).map(|port| SocketAddr::from(([10, 0, 0, 1], port))).collect();
        assert_eq!(in_turn(many).len(), MOST_ADDRESSES);
    }

    #[test]
    fn a_call_that_hangs_is_abandoned_and_nothing_waits_for_it() {
        let (hold, held) = mpsc::channel::<()>();
        let is_over = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        runtime.block_on(async {
            let is_over = Arc::clone(&is_over);
            let mut hangs = pin!(apart(move || {
                // Long enough for a runtime that waits for it to be found out.
                let _ = held.recv_timeout(Duration::from_secs(3));
                is_over.store(true, Ordering::Relaxed);
            }));
            assert!(hangs.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        });
        drop(runtime);
        assert!(!is_over.load(Ordering::Relaxed), "the end of the runtime waited for the call");
        drop(hold);
    }
}
