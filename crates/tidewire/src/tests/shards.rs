//! Several sockets at one address: which shard has which connection, over real sockets, and the mailboxes
//! between shards.

use std::array::from_fn;
use std::future::{Future, poll_fn};
use std::num::{NonZeroU16, NonZeroUsize};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::connection::Received;
use tidewire_proto::crypto::AwsLc;
use tidewire_proto::endpoint::{EndpointConfig, Shard};
use tidewire_proto::handshake::{Initiator, Parameters};
use tidewire_proto::wire::{ConnectionId, Datagram, HELLO_LEN};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::mail::{MAILBOX, Mail};
use crate::placement::Loads;
use crate::shared::Shared;
#[cfg(target_os = "linux")]
use crate::socket::{Kernel, Socket};
use crate::sync::Notify;
use crate::{CloseCode, CloseReason, Config, Connection, Endpoint, EndpointStats, Secret};

const CONNECTIONS: usize = 64;
const SHARDS: usize = 4;

fn secret() -> Secret {
    Secret::new([7; 32])
}

async fn within<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("still waiting after a minute")
}

/// Bytes in which every block of a few hundred bytes is different, and different for each seed.
fn data(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * n / 251 + n * (2 * seed + 1) + seed) as u8).collect()
}

async fn listener(shards: usize) -> Endpoint {
    let shards = NonZeroUsize::new(shards).expect("not 0");
    let address = "127.0.0.1:0".parse().expect("an address");
    Endpoint::bind_sharded(address, secret(), Config::default(), shards).expect("binds")
}

/// A listener whose kernel refuses to choose sockets by the id.
#[cfg(target_os = "linux")]
async fn unsteered(shards: usize) -> Endpoint {
    let sockets = Kernel::bind_unsteered("127.0.0.1:0".parse().expect("an address"), shards).expect("binds");
    let sockets = sockets.into_iter().map(|socket| Box::new(socket) as Box<dyn Socket>).collect();
    Endpoint::over(sockets, secret().into(), Config::default()).expect("binds")
}

/// Connections of each shard.
fn connections_of_each(endpoint: &Endpoint) -> Vec<usize> {
    endpoint.shards.iter().map(|shared| shared.lock().endpoint.connections().count()).collect()
}

async fn client() -> Endpoint {
    Endpoint::bind("127.0.0.1:0".parse().expect("an address"), secret(), Config::default()).expect("binds")
}

fn stats_of_each(endpoint: &Endpoint) -> Vec<EndpointStats> {
    endpoint.shards.iter().map(|shared| shared.lock().endpoint.stats()).collect()
}

/// Sends back what arrives on each stream, until the endpoint is closed.
async fn echo(server: Arc<Endpoint>) {
    while let Ok(connection) = server.accept().await {
        tokio::spawn(async move {
            while let Ok(stream) = connection.accept().await {
                let (mut reader, mut writer) = stream.split();
                // Either fails when the connection ends.
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            }
        });
    }
}

/// Sends data there and back, and compares every byte.
async fn exchange(connection: &Connection, data: &[u8]) {
    let (mut reader, mut writer) = connection.open().await.expect("open").split();
    let mut back = Vec::new();
    let write = async {
        writer.write_all(data).await.expect("taken");
        writer.shutdown().await.expect("ended");
    };
    tokio::join!(write, async { reader.read_to_end(&mut back).await.expect("comes") });
    assert!(back == data);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_connections_spread_over_the_shards_and_end_together() {
    many_connections(listener(SHARDS).await, true).await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_connections_stay_where_they_come_if_the_kernel_does_not_help() {
    many_connections(unsteered(SHARDS).await, false).await;
}

#[cfg(target_os = "linux")]
async fn many_connections(server: Endpoint, is_steered: bool) {
    let server = Arc::new(server);
    let echo = tokio::spawn(echo(Arc::clone(&server)));
    let mut tasks = JoinSet::new();
    for seed in 0..CONNECTIONS {
        let address = server.local_addr();
        tasks.spawn(async move {
            let client = client().await;
            let connection = client.connect(address).await.expect("connects");
            exchange(&connection, &data(seed, 50_000)).await;
            (client, connection)
        });
    }
    let clients = within(tasks.join_all()).await;
    let shards = stats_of_each(&server);
    assert!(shards.len() == SHARDS && shards.iter().all(|stats| stats.hellos.accepted > 0), "{shards:?}");
    let sum = server.stats();
    assert_eq!((sum.hellos.accepted, sum.overrun), (CONNECTIONS as u64, 0));
    if is_steered {
        assert_eq!(connections_of_each(&server), [CONNECTIONS / SHARDS; SHARDS]);
        assert_eq!(sum.passed_on, 0);
    } else {
        // Only HELLOs are passed on. Data arrives where its connection is.
        assert!(sum.passed_on > 0 && sum.passed_on <= sum.hellos.accepted + sum.hellos.repeated, "{sum:?}");
    }

    within(server.close()).await;
    within(echo).await.expect("no panic");
    for (_, connection) in &clients {
        let reason = CloseReason::Peer { code: CloseCode::Done, reason: String::new() };
        assert_eq!(within(connection.closed()).await, reason);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_client_that_moves_reaches_its_connection_without_a_mailbox() {
    let stats = move_often(listener(SHARDS).await).await;
    assert_eq!((stats.hellos.accepted, stats.passed_on), (1, 0));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_client_that_moves_reaches_its_connection_if_the_kernel_does_not_help() {
    let stats = move_often(unsteered(SHARDS).await).await;
    // With twelve ports, some lead to another shard.
    assert_eq!(stats.hellos.accepted, 1);
    assert!(stats.passed_on > 2 * (stats.hellos.accepted + stats.hellos.repeated), "{stats:?}");
}

/// One client that exchanges data over twelve ports, and what its server counts.
#[cfg(target_os = "linux")]
async fn move_often(server: Endpoint) -> EndpointStats {
    const MOVES: u64 = 12;
    let server = Arc::new(server);
    let echo = tokio::spawn(echo(Arc::clone(&server)));
    let client = client().await;
    let connection = within(client.connect(server.local_addr())).await.expect("connects");
    for turn in 0..MOVES {
        let data = data(turn as usize, 300_000);
        let moves = async {
            let before = connection.stats().bytes.app_received;
            while connection.stats().bytes.app_received < before + 100_000 {
                tokio::task::yield_now().await;
            }
            client.rebind("127.0.0.1:0".parse().expect("an address")).expect("binds");
        };
        within(async { tokio::join!(exchange(&connection, &data), moves) }).await;
    }
    let stats = server.stats();
    within(server.close()).await;
    within(echo).await.expect("no panic");
    stats
}

/// Connections that are made at once, from ports that the system chooses, lie one on each shard: from clients
/// of their own, from one client, and from one client with as many shards, which has one on each as well.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_lie_one_on_each_shard() {
    let addresses = ["127.0.0.1:0", "[::1]:0"].map(|address| address.parse().expect("an address"));
    let runs = if tidewire_testing::few_seeds() { 20 } else { 200 };
    for (run, count) in (0..runs).flat_map(|run| [2, 4, 8].map(|count| (run, count))) {
        let address = addresses[run % 2];
        let bind = |count: usize| {
            let shards = NonZeroUsize::new(count).expect("not 0");
            Arc::new(Endpoint::bind_sharded(address, secret(), Config::default(), shards).expect("binds"))
        };
        let server = bind(count);
        let shared = bind(if run % 3 == 1 { count } else { 1 });
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let client = if run % 3 == 0 { bind(1) } else { Arc::clone(&shared) };
            let to = server.local_addr();
            tasks.spawn(async move { (client.connect(to).await.expect("connects"), client) });
        }
        let clients = within(tasks.join_all()).await;
        for _ in 0..count {
            // Dropped connections of a server are closed, so they are counted first.
            std::mem::forget(within(server.accept()).await.expect("accepts"));
        }
        assert_eq!(connections_of_each(&server), vec![1; count], "{run}");
        if run % 3 == 1 {
            assert_eq!(connections_of_each(&shared), vec![1; count], "{run}");
        }
        assert_eq!(server.stats().passed_on, 0);
        drop(clients);
    }
}

/// A connection that ends makes room where it was.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_new_connection_takes_the_place_of_one_that_ended() {
    let server = listener(SHARDS).await;
    let mut connections = Vec::new();
    for round in 0..4 * SHARDS {
        let client = client().await;
        let both = async { tokio::join!(client.connect(server.local_addr()), server.accept()) };
        let (ours, theirs) = within(both).await;
        connections.push((ours.expect("connects"), theirs.expect("accepts"), client));
        if round >= SHARDS {
            assert_eq!(connections_of_each(&server), [1; SHARDS], "{round}");
        }
        if connections.len() == SHARDS {
            let (ours, theirs, client) = connections.swap_remove(round % SHARDS);
            drop((ours, theirs));
            within(client.close()).await;
            within(async {
                while connections_of_each(&server).iter().sum::<usize>() == SHARDS {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
            .await;
        }
    }
}

/// Dropping the endpoint keeps its connections: shards that have a connection continue, and the others end.
#[tokio::test]
async fn connections_of_every_shard_outlive_the_endpoint() {
    let server = listener(SHARDS).await;
    let mut connections = Vec::new();
    for _ in 0..2 * SHARDS {
        let client = client().await;
        let both = async { tokio::join!(client.connect(server.local_addr()), server.accept()) };
        let (ours, theirs) = within(both).await;
        connections.push((ours.expect("connects"), theirs.expect("accepts"), client));
    }
    drop(server);
    for (ours, theirs, client) in connections {
        let answer = async {
            let (mut reader, mut writer) = theirs.accept().await.expect("a stream").split();
            tokio::io::copy(&mut reader, &mut writer).await.expect("copied");
            writer.shutdown().await.expect("ended");
        };
        let data = data(1, 20_000);
        within(async { tokio::join!(exchange(&ours, &data), answer) }).await;
        drop(client);
    }
}

/// Each shard counts handshakes without proof for itself, and a cookie is valid only at the shard that made
/// it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_flood_is_asked_for_proof_by_each_shard_and_a_client_gets_in() {
    const SENDERS: usize = 64;
    const EACH: usize = 12;
    let server = listener(2).await;
    for sender in 0..SENDERS {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("binds");
        for n in 0..EACH {
            let (hello, _) = hello((sender * EACH + n) as u16);
            socket.send_to(&hello, server.local_addr()).await.expect("sent");
        }
    }
    let client = client().await;
    let (ours, theirs) = within(async { tokio::join!(client.connect(server.local_addr()), server.accept()) }).await;
    assert!(ours.is_ok() && theirs.is_ok());
    for shared in &server.shards {
        let state = shared.lock();
        let stats = state.endpoint.stats();
        assert!(stats.hellos.accepted > 0 && state.endpoint.half_open() as u64 <= stats.hellos.accepted, "{stats:?}");
    }
}

/// A different HELLO for each `n`, and the id that it asks about.
fn hello(n: u16) -> ([u8; HELLO_LEN], ConnectionId) {
    let [a, b] = n.to_be_bytes();
    let (now, mut seed) = (Time::from_millis(1), [0; 32]);
    (seed[0], seed[1]) = (a, b);
    let id = ConnectionId([a, b, 1, 1, 1, 1, 1, 1]);
    let mut initiator = Initiator::new(&secret(), id, &Parameters::default(), Arc::new(AwsLc), seed, now);
    let mut bytes = [0; HELLO_LEN];
    initiator.poll_transmit(now, &mut bytes).expect("a HELLO");
    let Ok(Datagram::Long(header)) = Datagram::parse(&bytes) else { panic!("no HELLO") };
    let asks = header.destination;
    (bytes, asks)
}

/// HELLOs that ask one of two shards.
fn hellos_of(shard: u16) -> impl Iterator<Item = [u8; HELLO_LEN]> {
    let count = NonZeroU16::new(2).expect("not 0");
    (0..).map(hello).filter(move |(_, asks)| Shard::of_id(asks, count) == shard).map(|(hello, _)| hello)
}

/// Two shards without sockets, and their mailboxes.
struct Two {
    shards: Vec<(Shared, Mail)>,
    loads: Arc<Loads>,
}

impl Two {
    fn new(is_steered: bool) -> Self {
        let (count, clock) = (NonZeroU16::new(2).expect("not 0"), Clock::start());
        let shared = |index| {
            let config = EndpointConfig {
                credentials: secret().into(),
                listen: true,
                connection: Config::default(),
                provider: Arc::new(AwsLc),
            };
            let endpoint = tidewire_proto::endpoint::Endpoint::new(config, [index as u8; 32]);
            let endpoint = endpoint.with_shard(Shard::new(index, count).expect("one of two"));
            Shared::new(endpoint, ([127, 0, 0, 1], 1).into(), clock, Arc::<Notify>::default())
        };
        let loads = Arc::new(Loads::new(2, is_steered));
        let mail = Mail::new(count, 1_472, &loads);
        Self { shards: [shared(0), shared(1)].into_iter().zip(mail).collect(), loads }
    }

    /// Delivers a datagram to the socket of one shard.
    fn comes(&mut self, shard: usize, datagram: &[u8]) {
        let (shared, mail) = &mut self.shards[shard];
        let received = Received {
            at: shared.clock.now(),
            from: ([127, 0, 0, 1], 2).into(),
            to: None,
            ecn: None,
            datagram: &mut datagram.to_vec(),
        };
        mail.sort(&mut shared.lock(), received);
    }

    /// Runs each driver until nothing is left.
    async fn settle(&mut self) {
        for _ in 0..2 {
            for (shared, mail) in &mut self.shards {
                poll_fn(|cx| {
                    while mail.take(cx, shared) {}
                    Poll::Ready(())
                })
                .await;
                // Yields to the runtime, so that the task gets a new budget.
                tokio::task::yield_now().await;
            }
        }
    }

    fn received(&self) -> [u64; 2] {
        [0, 1].map(|shard: usize| self.shards[shard].0.lock().endpoint.stats().received)
    }

    fn half_open(&self) -> [usize; 2] {
        [0, 1].map(|shard: usize| self.shards[shard].0.lock().endpoint.half_open())
    }

    fn passed(&self) -> [u64; 2] {
        [0, 1].map(|shard: usize| self.shards[shard].0.lock().passed_on)
    }
}

#[tokio::test]
async fn mail_finds_its_shard() {
    let mut two = Two::new(true);
    // A HELLO is answered by the shard that its random id names. The session goes to the shard with the least
    // load; if both have the same, to the one whose socket received the HELLO.
    let (mut first, mut second) = (hellos_of(0), hellos_of(1));
    let others: [_; 4] = from_fn(|n| if n == 0 { first.next() } else { second.next() }.expect("endless"));
    let expected = [([1, 0], 0), ([1, 1], 1), ([2, 1], 2), ([2, 2], 3)];
    for ((sessions, passed), hello) in expected.into_iter().zip(&others) {
        two.comes(0, hello);
        two.settle().await;
        assert_eq!((two.half_open(), two.passed()), (sessions, [passed, 0]));
    }
    assert_eq!(two.received(), [1, 3]);
    // A copy is answered again where its first was.
    two.comes(1, &others[3]);
    two.settle().await;
    assert_eq!((two.half_open(), two.received()), ([2, 2], [1, 4]));

    // The id in the REPLY names shard 0, so shard 0 gets every datagram with it, whichever socket receives
    // it.
    let mut reply = [0; 1_472];
    let len = {
        let mut state = two.shards[0].0.lock();
        let now = two.shards[0].0.clock.now();
        state.endpoint.poll_transmit(now, 1, &mut reply).expect("a REPLY").len
    };
    let Ok(Datagram::Long(header)) = Datagram::parse(&reply[..len]) else { panic!("no REPLY") };
    let id = header.source.0;
    let mut short = vec![0x40; 100];
    short[1..9].copy_from_slice(&id);
    let mut question = second.next().expect("endless");
    question[5..13].copy_from_slice(&id);
    for (n, datagram) in [(1, &short[..]), (2, &question[..])] {
        two.comes(1, datagram);
        two.settle().await;
        assert_eq!((two.received(), two.passed()), ([n + 1, 4], [3, n]));
    }
    // A datagram that is no packet, or is longer than we accept, is counted by the shard that received it.
    two.comes(1, b"garbage");
    short.resize(1_473, 0);
    two.comes(1, &short);
    two.settle().await;
    assert_eq!(two.received(), [3, 6]);
}

/// Whichever shard answers, the session belongs to the one where the sender's datagrams come. A full mailbox
/// keeps it at the one that answers.
#[tokio::test]
async fn without_steering_a_session_goes_back_to_the_socket_of_its_hello() {
    let (mut two, mut hellos) = (Two::new(false), hellos_of(1));
    for (by, expected) in [(0, [1, 0]), (1, [1, 1]), (0, [2, 1])] {
        two.comes(by, &hellos.next().expect("endless"));
        two.settle().await;
        assert_eq!((two.half_open(), two.passed()), (expected, [expected[0] as u64, 0]));
    }
    two.comes(0, &hellos.next().expect("endless"));
    let mut short = [0x40; 100];
    short[1..9].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0]);
    (0..MAILBOX).for_each(|_| two.comes(1, &short));
    {
        let (shared, mail) = &mut two.shards[1];
        poll_fn(|cx| Poll::Ready(mail.take(cx, shared))).await;
    }
    assert_eq!(two.half_open(), [2, 2]);
}

/// A session is there before the first packet that needs it, even if the mailbox was read earlier. When a
/// driver has ended, its shard gets none.
#[tokio::test]
async fn a_session_is_never_late_and_never_lost() {
    let (mut two, mut hellos) = (Two::new(true), hellos_of(0));
    // The second goes to shard 1, since shard 0 has the first.
    (0..2).for_each(|_| two.comes(0, &hellos.next().expect("endless")));
    assert_eq!(two.half_open(), [1, 0]);
    let mut short = [0x40; 100];
    short[1..9].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    two.comes(1, &short);
    assert_eq!((two.half_open(), two.received()), ([1, 1], [2, 1]));

    drop(two.shards.pop());
    (0..4).for_each(|_| two.comes(0, &hellos.next().expect("endless")));
    assert_eq!((two.shards[0].0.lock().endpoint.half_open(), two.loads.choose(1)), (5, 0));
}

#[tokio::test]
async fn a_full_mailbox_loses_and_counts() {
    let mut two = Two::new(true);
    let mut short = [0x40; 100];
    short[1..9].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    for _ in 0..MAILBOX + 10 {
        two.comes(0, &short);
    }
    assert_eq!(two.shards[0].0.lock().overrun, 10);
    while two.received()[1] < MAILBOX as u64 {
        two.settle().await;
    }
    assert_eq!(two.passed(), [MAILBOX as u64, 0]);
}
