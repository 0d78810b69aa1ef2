//! From the name of a host to the one of its addresses that answers: Happy Eyeballs (RFC 8305).
//!
//! A caller that connects to a host calls [`resolve`], and then [`race`] with a function that tries one
//! address: the handshake of this transport, or the connecting of a TCP socket. Invariants: the system's
//! resolver, which nothing can interrupt, runs in threads that no runtime and no end of the process waits
//! for. An address that does not answer delays the others by at most one [`STAGGER`].

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

/// Time after which the next address is tried beside those that have not answered yet (RFC 8305 section 5,
/// "Connection Attempt Delay").
pub const STAGGER: Duration = Duration::from_millis(250);
/// Limit of addresses of a name that are tried. Chosen: their attempts begin within 8 s.
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

/// Attempts a connection with one candidate after another until one succeeds. The next attempt begins
/// `stagger` after the one before it, or as soon as one fails, and those that run go on. Returns the
/// connection that was made first, and after it those that were made by the same moment and are not needed.
/// Attempts that still run are dropped.
///
/// # Errors
/// The errors of all attempts, in the order in which they failed; none if there was no candidate.
pub async fn race<C, T, E, A: Future<Output = Result<T, E>>>(
    candidates: impl IntoIterator<Item = C>,
    stagger: Duration,
    attempt: impl Fn(C) -> A,
) -> Result<Vec<T>, Vec<E>> {
    race_with(candidates, || tokio::time::sleep(stagger), attempt).await
}

/// The same with a `pause` of the caller's choice between attempts.
async fn race_with<C, T, E, A: Future<Output = Result<T, E>>, P: Future<Output = ()>>(
    candidates: impl IntoIterator<Item = C>,
    pause: impl Fn() -> P,
    attempt: impl Fn(C) -> A,
) -> Result<Vec<T>, Vec<E>> {
    let mut waiting = candidates.into_iter().peekable();
    let (mut running, mut failures) = (Vec::new(), Vec::new());
    loop {
        running.extend(waiting.next().map(|candidate| Box::pin(attempt(candidate))));
        if running.is_empty() {
            return Err(failures);
        }
        let pause = async {
            match waiting.peek() {
                Some(_) => pause().await,
                None => std::future::pending().await,
            }
        };
        let mut connected = Vec::new();
        for ended in first_of(&mut running, pause).await {
            match ended {
                Ok(connection) => connected.push(connection),
                Err(failure) => failures.push(failure),
            }
        }
        if !connected.is_empty() {
            return Ok(connected);
        }
    }
}

/// Waits until one of `running` ends, and takes out all that have ended by then. None has if `pause` ends
/// before.
async fn first_of<A: Future>(running: &mut Vec<Pin<Box<A>>>, pause: impl Future<Output = ()>) -> Vec<A::Output> {
    let mut pause = pin!(pause);
    poll_fn(|cx| {
        let mut ended = Vec::new();
        running.retain_mut(|attempt| match attempt.as_mut().poll(cx) {
            Poll::Ready(result) => {
                ended.push(result);
                false
            }
            Poll::Pending => true,
        });
        if ended.is_empty() { pause.as_mut().poll(cx).map(|()| ended) } else { Poll::Ready(ended) }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::pending;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::task::{Context, Waker};

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

    /// What a candidate of a race does.
    #[derive(Clone, Copy)]
    enum Is {
        Silent,
        Refused,
        There,
        /// It answers the second time that it is asked.
        Slow,
    }

    /// The places of those that have won, or that have failed.
    type Places = Result<Vec<usize>, Vec<usize>>;

    /// The result of a race between `candidates` if it ends at once, and the places of those that were tried.
    /// Pauses end at once, or never.
    fn raced(candidates: &[Is], pauses_end: bool) -> (Poll<Places>, Vec<usize>) {
        let tried = RefCell::new(Vec::new());
        let attempt = |(place, is)| {
            tried.borrow_mut().push(place);
            async move {
                match is {
                    Is::Silent => pending().await,
                    Is::Refused => Err(place),
                    Is::There => Ok(place),
                    Is::Slow => {
                        let mut asked = false;
                        poll_fn(|_| if std::mem::replace(&mut asked, true) { Poll::Ready(()) } else { Poll::Pending })
                            .await;
                        Ok(place)
                    }
                }
            }
        };
        let pause = || async move {
            if !pauses_end {
                pending().await
            }
        };
        let mut racing = pin!(race_with(candidates.iter().copied().enumerate(), pause, attempt));
        let ended = racing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        (ended, tried.borrow().clone())
    }

    #[test]
    fn one_that_does_not_answer_does_not_stop_the_next() {
        use Is::{Refused, Silent, Slow, There};
        let won = |place| Poll::Ready(Ok(vec![place]));
        assert_eq!(raced(&[Silent, Silent, There, There], true), (won(2), vec![0, 1, 2]));
        assert_eq!(raced(&[There, There], true), (won(0), vec![0]), "no attempt without need");
        assert_eq!(raced(&[Refused, There], false), (won(1), vec![0, 1]), "a failure ends the pause");
        assert_eq!(raced(&[Silent, There], false), (Poll::Pending, vec![0]), "the next one waits for the pause");
        assert_eq!(raced(&[Silent, Refused], true), (Poll::Pending, vec![0, 1]), "the first goes on");
        assert_eq!(raced(&[Refused, Refused], true), (Poll::Ready(Err(vec![0, 1])), vec![0, 1]));
        let both = Poll::Ready(Ok(vec![0, 1]));
        assert_eq!(raced(&[Slow, There, There], true), (both, vec![0, 1]), "the surplus is handed out");
        assert_eq!(raced(&[], true), (Poll::Ready(Err(vec![])), vec![]));
    }

    #[tokio::test]
    async fn an_address_may_have_a_zone() {
        // The loopback interface is the first of a Linux system.
        let found = resolve("fe80::1%lo", 7).await;
        if cfg!(target_os = "linux") {
            assert_eq!(found.unwrap(), ["[fe80::1%1]:7".parse().unwrap()]);
        }
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
