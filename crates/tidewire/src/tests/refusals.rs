//! A system that refuses to send (row S11 of the survival list). System calls fail by a schedule, and the
//! tests check what endpoints do. `refusals.rs` and `routes.rs` of `tests/sockets` test the real system.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tidewire_proto::connection::Transmit;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::socket::{Kernel, Udp};
use crate::{Config, ConnectError, Connection, Endpoint, Secret, SendFailure};

// Linux's numbers on every system. To connections, all except EAGAIN and EMSGSIZE mean the same.
const EPERM: i32 = 1;
const ENETUNREACH: i32 = 101;
const ENOBUFS: i32 = 105;
const ECONNREFUSED: i32 = 111;
const EHOSTUNREACH: i32 = 113;
/// A call that is really made.
const PASSES: i32 = 0;

/// Errors of a socket's system calls, shared with the test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule(Arc<Mutex<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    /// Errors of the next calls, repeated for ever.
    errors: Vec<i32>,
    made: usize,
    refused: u64,
}

impl Schedule {
    /// Repeats these errors from now on.
    fn set(&self, errors: &[i32]) {
        *self.0.lock().expect("no panic") = Calls { errors: errors.to_vec(), made: 0, refused: 0 };
    }

    /// Number of calls made since, and how many of them failed.
    fn counts(&self) -> (usize, u64) {
        let calls = self.0.lock().expect("no panic");
        (calls.made, calls.refused)
    }

    /// Error of the call that is made now.
    pub fn call(&self) -> Option<i32> {
        let calls = &mut *self.0.lock().expect("no panic");
        let next = calls.errors.get(calls.made % calls.errors.len().max(1));
        let error = next.copied().filter(|&error| error != PASSES);
        calls.made += 1;
        calls.refused += u64::from(error.is_some());
        error
    }
}

/// A limit that only a fault exceeds.
async fn within<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("still waiting after a minute")
}

fn endpoint(config: Config) -> (Endpoint, Schedule) {
    let socket = Udp::bind("127.0.0.1:0".parse().expect("an address")).expect("binds");
    let schedule = socket.schedule.clone();
    (
        Endpoint::over(vec![Box::new(Kernel::from(socket))], Secret::new([7; 32]).into(), config)
            .expect("a good configuration"),
        schedule,
    )
}

async fn connected() -> (Endpoint, Endpoint, Schedule, Connection, Connection) {
    let ((client, schedule), (server, _)) = (endpoint(Config::default()), endpoint(Config::default()));
    let (ours, theirs) = within(async { tokio::join!(client.connect(server.local_addr()), server.accept()) }).await;
    (client, server, schedule, ours.expect("connects"), theirs.expect("accepts"))
}

/// Sends bytes to the peer and checks that all arrive.
async fn transfer(ours: &Connection, theirs: &Connection) {
    let data: Vec<u8> = (0..400_000_u64).map(|n| ((n * n) >> 8) as u8).collect();
    let send = async {
        let mut stream = ours.open().await.expect("open");
        stream.write_all(&data).await.expect("taken");
        stream.shutdown().await.expect("ended");
        stream
    };
    let receive = async {
        let mut received = Vec::new();
        theirs.accept().await.expect("a stream").read_to_end(&mut received).await.expect("comes");
        received
    };
    let (_stream, received) = within(async { tokio::join!(send, receive) }).await;
    assert!(received == data);
}

#[tokio::test]
async fn s11_what_the_system_refuses_is_counted_and_sent_again() {
    for error in [ENOBUFS, ENETUNREACH, EHOSTUNREACH, ECONNREFUSED, EPERM] {
        let (_client, _server, schedule, ours, theirs) = connected().await;
        let before = ours.stats().packets;
        // The third call comes soon, whatever the size of the batches.
        schedule.set(&[PASSES, PASSES, error, PASSES, PASSES, PASSES, error]);
        transfer(&ours, &theirs).await;
        let (packets, (made, refused)) = (ours.stats().packets, schedule.counts());
        assert!(refused > 0 && packets.refused >= refused, "{error}: {refused} calls, {packets:?}");
        assert!(made as u64 <= packets.sent - before.sent, "{error}: {made} calls, {packets:?}");
    }
}

#[tokio::test]
async fn s11_nothing_but_refusals_is_no_busy_loop() {
    let config = Config::builder().handshake_timeout(Duration::from_secs(1)).build().expect("in range");
    let (client, schedule) = endpoint(config);
    schedule.set(&[ENETUNREACH]);
    let refused = within(client.connect("127.0.0.1:9".parse().expect("an address"))).await;
    assert_eq!(refused.err(), Some(ConnectError::NoAnswer));
    let (made, refused) = schedule.counts();
    // HELLOs in pairs, at least a quarter of a second apart.
    assert!((2..=10).contains(&made) && made as u64 == refused, "{made} calls in a second");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_this_machine_itself_refuses_is_told_and_the_rest_is_not() {
    for (errors, wanted) in [
        ([ENETUNREACH, PASSES], SendFailure::NoRoute),
        ([EHOSTUNREACH, PASSES], SendFailure::NoRoute),
        ([EPERM, PASSES], SendFailure::NotPermitted),
        // A stranger can have made an ECONNREFUSED, and buffers become free.
        ([ECONNREFUSED, EPERM], SendFailure::NotPermitted),
        ([ENOBUFS, ENETUNREACH], SendFailure::NoRoute),
    ] {
        let (client, schedule) = endpoint(Config::default());
        schedule.set(&errors);
        let connecting = client.connect("127.0.0.1:9".parse().expect("an address"));
        let told = async {
            tokio::select! {
                _ = connecting => panic!("nobody answers"),
                told = client.refused() => told,
            }
        };
        assert_eq!(within(told).await, wanted, "{errors:?}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn s11_a_datagram_too_long_lowers_the_size() {
    const EMSGSIZE: i32 = 90;
    let (_client, _server, schedule, ours, theirs) = connected().await;
    transfer(&ours, &theirs).await;
    assert_eq!(ours.stats().datagram_size, 1_472);
    schedule.set(&[EMSGSIZE]);
    let mut stream = ours.open().await.expect("open");
    stream.write_all(&[1; 1_400]).await.expect("taken");
    within(async {
        while ours.stats().datagram_size > 1_200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    schedule.set(&[]);
    stream.shutdown().await.expect("ended");
    let mut received = Vec::new();
    let mut theirs = within(theirs.accept()).await.expect("a stream");
    within(theirs.read_to_end(&mut received)).await.expect("comes");
    assert_eq!(received, [1; 1_400]);
}

/// The socket's own buffer is full. The batch waits until there is room, and nothing is lost.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn s11_a_full_buffer_is_waited_for() {
    const EAGAIN: i32 = 11;
    let bind = || Udp::bind("127.0.0.1:0".parse().expect("an address")).expect("binds");
    let (mut from, to) = (bind(), bind());
    from.schedule.set(&[EAGAIN, PASSES]);
    let destination = to.local_addr().expect("bound");
    let transmit = Transmit { destination, source: None, ecn: None, len: 1, segment_size: None };
    let waits = poll_fn(|cx| Poll::Ready(from.poll_send(cx, &transmit, b"x").is_pending())).await;
    assert_eq!((waits, from.schedule.counts().0), (true, 1), "no second call before the system says so");
    assert_eq!(within(poll_fn(|cx| from.poll_send(cx, &transmit, b"x"))).await, Ok(()));
}
