//! Drivers, mailboxes and handles under shuttle, which runs their tasks in many orders and says which order
//! made all of them wait for ever.
//!
//! The sources are those of the crate, compiled again with [`sync`], [`clock`] and [`socket`] of the model.
//! Its clock stands still: a wake-up that is lost is not made good by a timer, and the test ends with
//! shuttle's word of a deadlock and the schedule that replays it. The orders are random, half of them by
//! priorities, with a fixed number of runs, ten times as many with `TIDEWIRE_SEEDS=all`.

#[path = "../../src/arrival.rs"]
mod arrival;
#[allow(dead_code, unreachable_pub, reason = "the model uses a part of what the crate exports")]
#[path = "../../src/connection.rs"]
mod connection;
#[allow(dead_code, reason = "the model uses a part of it")]
#[path = "../../src/driver.rs"]
mod driver;
#[path = "../../src/mail.rs"]
mod mail;
#[path = "../../src/placement.rs"]
mod placement;
#[path = "../../src/port.rs"]
mod port;
#[allow(dead_code, reason = "the model uses a part of it")]
#[path = "../../src/shared.rs"]
mod shared;
#[allow(dead_code, unreachable_pub, reason = "the model uses a part of what the crate exports")]
#[path = "../../src/stream.rs"]
mod stream;
#[path = "../../src/workers.rs"]
mod workers;

mod clock;
mod socket;
mod sync;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use clock::{Clock, Timer};
use connection::Connection;
#[cfg(doc)]
use connection::ConnectionLost;
use driver::Driver;
use mail::Mail;
use placement::Loads;
use shared::Shared;
use shuttle::future::{block_on, spawn};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use socket::Network;
use sync::Notify;
use tidewire_proto::config::Config;
use tidewire_proto::connection::Received;
use tidewire_proto::crypto::{AwsLc, Secret};
use tidewire_proto::endpoint::{Endpoint, EndpointConfig, Shard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Datagrams in the model's mailboxes, at most: all that an exchange has, since no timer would send a lost
/// one again.
const MAILBOX: usize = 32;
const SHARDS: NonZeroU16 = NonZeroU16::new(2).unwrap();
const DATAGRAM: u16 = 1_472;
/// Priorities change at two moments of a run: one that stops a waiter between its look and its registration,
/// and one to spare (Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding
/// Bugs", ASPLOS 2010).
const DEPTH: usize = 3;

/// Checks `model` in `runs` random orders, and in as many orders by priority. A random order lets each task
/// run again soon. In an order by priority a task may stop between any two of its steps until all others
/// wait, which is what it takes to find a waiter that registers late. A task's stack holds the frames of the
/// handshake.
fn check(runs: usize, model: impl Fn() + Clone + Send + Sync + 'static) {
    let runs = if tidewire_testing::few_seeds() { runs / 10 } else { runs };
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::FailAfter(200_000);
    shuttle::Runner::new(RandomScheduler::new(runs), config.clone()).run(model.clone());
    shuttle::Runner::new(PctScheduler::new(DEPTH, runs), config).run(model);
}

fn shared(
    index: u16,
    of: NonZeroU16,
    address: SocketAddr,
    (connection, clock): (Config, &Clock),
    changed: &Arc<Notify>,
) -> Arc<Shared> {
    let (credentials, provider) = (Secret::new([7; 32]).into(), Arc::new(AwsLc));
    let config = EndpointConfig { credentials, listen: true, connection, provider };
    let mut seed = [index as u8 + 1; 32];
    seed[31] = address.port() as u8;
    let endpoint = Endpoint::new(config, seed);
    let endpoint = endpoint.with_shard(Shard::new(index, of).expect("one of them"));
    Arc::new(Shared::new(endpoint, address, clock.clone(), Arc::clone(changed)))
}

/// Both shards get datagrams for the other one at once. Each is taken by its owner or counted as lost where
/// it came, never both, and none stays in a mailbox whose owner sleeps.
#[test]
fn a_mailbox_delivers_or_counts_each_datagram_once() {
    check(2_000, || {
        // More than a mailbox holds: what comes while its owner sleeps is lost.
        const EACH: u64 = MAILBOX as u64 + 4;
        let (clock, changed) = (Clock::default(), Arc::<Notify>::default());
        let shards: Vec<_> =
            (0..2).map(|index| shared(index, SHARDS, address(1), (Config::default(), &clock), &changed)).collect();
        let tasks: Vec<_> = Mail::new(SHARDS, DATAGRAM.into(), &Arc::new(Loads::new(2, true)))
            .into_iter()
            .zip(0..)
            .map(|(mut mail, index)| {
                let shards = shards.clone();
                spawn(async move {
                    let (mine, other) = (&shards[index], &shards[1 - index]);
                    for _ in 0..EACH {
                        // A short packet to a connection id that names the other shard.
                        let mut datagram = [0x40; 100];
                        datagram[1..9].copy_from_slice(&[0, 1 - index as u8, 0, 0, 0, 0, 0, 0]);
                        let (at, from) = (mine.clock.now(), address(9));
                        mail.sort(
                            &mut mine.lock(),
                            Received { at, from, to: None, ecn: None, datagram: &mut datagram },
                        );
                        shuttle::future::yield_now().await;
                    }
                    poll_fn(|cx| {
                        while mail.take(cx, mine) {}
                        let lost = other.lock().overrun;
                        let taken = mine.lock().endpoint.stats().received;
                        assert!(taken + lost <= EACH, "{taken} taken, {lost} lost");
                        // The other one may still lose some; then it is known, since each of its datagrams
                        // was sorted by then.
                        let sorted = lost + other.lock().passed_on;
                        if taken + lost == EACH && sorted == EACH { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                })
            })
            .collect();
        block_on(async {
            for task in tasks {
                task.await.expect("no panic");
            }
        });
    });
}

fn address(port: u16) -> SocketAddr {
    ([192, 0, 2, 1], port).into()
}

/// Drivers of one endpoint with so many sockets.
fn endpoint(
    network: &Network,
    port: u16,
    count: NonZeroU16,
    (config, clock): (&Config, &Clock),
) -> (Vec<Arc<Shared>>, Arc<Notify>, Tasks) {
    let changed = Arc::<Notify>::default();
    let loads = Arc::new(Loads::new(count.get().into(), true));
    let mut mail = Mail::new(count, DATAGRAM.into(), &loads).into_iter().filter(|_| count > NonZeroU16::MIN);
    let sockets = network.bind(address(port), count.get().into());
    let (mut shards, mut tasks) = (Vec::new(), Vec::new());
    for (index, socket) in (0..count.get()).zip(sockets) {
        let shared = shared(index, count, address(port), (config.clone(), clock), &changed);
        shards.push(Arc::clone(&shared));
        let driver = Driver::new(shared, socket, Timer::new(clock.clone()), mail.next(), DATAGRAM, config.workers());
        tasks.push(spawn(driver.expect("threads").run()));
    }
    (shards, changed, tasks)
}

type Tasks = Vec<shuttle::future::JoinHandle<()>>;

/// The next connection of any shard, waited for as [`tidewire::Endpoint::accept`] does.
async fn accept(shards: &[Arc<Shared>], changed: &Notify) -> Connection {
    loop {
        let mut changed = std::pin::pin!(changed.notified());
        changed.as_mut().enable();
        for shared in shards {
            if let Some((slot, remote)) = shared.lock().accept() {
                return Connection::new(Arc::clone(shared), slot, remote);
            }
        }
        changed.await;
    }
}

async fn connect(shared: &Arc<Shared>, to: SocketAddr) -> Connection {
    let now = shared.clock.now();
    let slot = shared.lock().connect(now, to, None).expect("both have the secret");
    let connection = Connection::new(Arc::clone(shared), slot, to);
    shared.wake_driver();
    connection.connected().await.expect("connects");
    connection
}

/// A client and a server of `shards` shards: connect, ask `question`, answer, end; then both endpoints shut,
/// and all drivers end.
fn exchange(network: Network, shards: NonZeroU16, config: Config, question: Vec<u8>) -> impl Future<Output = ()> {
    let clock = Clock::default();
    let (ours, _, ours_tasks) = endpoint(&network, 1, NonZeroU16::MIN, (&config, &clock));
    let (theirs, theirs_changed, theirs_tasks) = endpoint(&network, 2, shards, (&config, &clock));
    let len = question.len();
    async move {
        let listeners = theirs.clone();
        let server = spawn(async move {
            let connection = accept(&listeners, &theirs_changed).await;
            let (mut reader, mut writer) = connection.accept().await.expect("a stream").split();
            let mut asked = vec![0; len];
            reader.read_exact(&mut asked).await.expect("comes");
            writer.write_all(&asked).await.expect("taken");
            connection
        });
        let connection = connect(&ours[0], address(2)).await;
        let (mut reader, mut writer) = connection.open().await.expect("allowed").split();
        let answer = spawn(async move {
            let mut answer = vec![0; len];
            reader.read_exact(&mut answer).await.expect("comes");
            answer
        });
        writer.write_all(&question).await.expect("taken");
        assert!(answer.await.expect("no panic") == question);
        let theirs_connection = server.await.expect("no panic");
        let repaired = theirs_connection.stats().symbols.repaired;
        assert!(config.workers() == 0 || repaired > 0, "nothing was decoded");
        // Waits in one task while another one closes.
        let closed = spawn(async move { theirs_connection.closed().await });
        drop((writer, connection));
        closed.await.expect("no panic");
        for shared in ours.iter().chain(&theirs) {
            let mut state = shared.lock();
            state.shut(shared.clock.now());
            state.abandoned = true;
            drop(state);
            shared.wake_driver();
        }
        // What a connection remembers after its end is a matter of time.
        clock.advance(Duration::from_secs(60));
        for task in ours_tasks.into_iter().chain(theirs_tasks) {
            task.await.expect("the driver ends");
        }
    }
}

#[test]
fn no_wake_up_is_lost_and_every_driver_ends() {
    check(500, || block_on(exchange(Network::default(), NonZeroU16::MIN, Config::default(), b"question".to_vec())));
}

/// The network gives datagrams to the two sockets in turns, so that half of them go through mailboxes.
#[test]
fn no_wake_up_is_lost_between_shards() {
    check(500, || block_on(exchange(Network::default(), SHARDS, Config::default(), b"question".to_vec())));
}

/// Of each block of two symbols and two repairs some packets are lost, so that jobs decode what other jobs
/// encoded: drivers hand jobs over, workers bring their results, and every worker ends with its driver.
/// Whatever the order in which symbols and repairs leave, no block loses more than two packets: nothing has
/// to be sent again, which takes time.
#[test]
fn no_job_and_no_result_is_lost_and_every_worker_ends() {
    check(200, || {
        let config = Config::builder()
            .profile(tidewire_proto::profile::block(2, 2))
            .workers(2)
            .inline_products(0)
            .probe_size(false)
            .build()
            .expect("in range");
        let question = (0..5_000_u16).map(|n| (n % 251) as u8).collect();
        block_on(exchange(Network::losing(2), NonZeroU16::MIN, config, question));
    });
}
