//! Paths with relays over real sockets on loopback: what arrives, who is told what, and what is refused.

use std::net::SocketAddr;
use std::time::Duration;

use crate::pair::{pseudo_random, within};
use tidewire::{
    CloseCode, CloseReason, Config, ConnectError, Connection, Endpoint, Hop, Relay, Report, Secret, new_secret,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn hop(address: SocketAddr, secret: &Secret) -> Hop {
    Hop { address, credentials: secret.clone().into(), peer: None }
}

/// An end that listens, relays before it, and an end that connects through them.
struct Path {
    near: Endpoint,
    relays: Vec<Relay>,
    far: Endpoint,
}

/// A path with so many relays, each hop with a secret of its own.
fn path(relays: usize) -> Path {
    let (ends, mut secret) = (new_secret().unwrap(), new_secret().unwrap());
    let far = Endpoint::behind(loopback(), secret.clone(), ends.clone(), &Config::default()).unwrap();
    let (mut to, mut chain) = (far.local_addr(), Vec::new());
    for _ in 0..relays {
        let before = new_secret().unwrap();
        let relay = Relay::bind(loopback(), before.clone(), hop(to, &secret), &Config::default()).unwrap();
        (to, secret) = (relay.local_addr(), before);
        chain.push(relay);
    }
    let near = Endpoint::via(hop(to, &secret), ends, &Config::default()).unwrap();
    Path { near, relays: chain, far }
}

async fn connected(path: &Path) -> (Connection, Connection) {
    let (near, far) = within(async { tokio::join!(path.near.connect_via(None), path.far.accept()) }).await;
    (near.unwrap(), far.unwrap())
}

#[tokio::test]
async fn streams_cross_relays_in_both_directions() {
    for relays in [1, 2] {
        let path = path(relays);
        let (near, far) = connected(&path).await;
        let (up, down) = (pseudo_random(1, 3_000_000), pseudo_random(2, 700_000));
        let mut ours = near.open().await.unwrap();
        let sending = async {
            ours.write_all(&up).await.unwrap();
            ours.shutdown().await.unwrap();
            let mut got = Vec::new();
            ours.read_to_end(&mut got).await.unwrap();
            got
        };
        let answering = async {
            let mut theirs = far.accept().await.unwrap();
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).await.unwrap();
            theirs.write_all(&down).await.unwrap();
            theirs.shutdown().await.unwrap();
            got
        };
        let (back, there) = within(async { tokio::join!(sending, answering) }).await;
        assert!(there == up && back == down, "{relays} relays");
        for relay in &path.relays {
            let counts = relay.counts();
            assert!(counts.paths == 1 && counts.frames.innovative > 3_000, "{counts:?}");
            assert_eq!(counts.frames.malformed + counts.frames.misplaced + counts.frames.zero, 0, "{counts:?}");
        }
        // Both ends learn of the close, and the relay lets the path go.
        near.close(CloseCode::Done, "enough");
        assert_eq!(within(far.closed()).await, CloseReason::Peer { code: CloseCode::Done, reason: "enough".into() });
        within(path.near.close()).await;
        let relay = path.relays.last().expect("at least one");
        assert!(matches!(within(relay.report()).await, Ok(Report::Opened { .. })));
        let Ok(Report::Over { reason, .. }) = within(relay.report()).await else { panic!("the path is over") };
        assert_eq!(reason, CloseReason::Peer { code: CloseCode::Done, reason: String::new() });
    }
}

#[tokio::test]
async fn several_ends_share_a_relay_and_an_end_behind_it() {
    let (ends, to_far, to_relay) = (new_secret().unwrap(), new_secret().unwrap(), new_secret().unwrap());
    let far = Endpoint::behind(loopback(), to_far.clone(), ends.clone(), &Config::default()).unwrap();
    let next = hop(far.local_addr(), &to_far);
    let relay = Relay::bind(loopback(), to_relay.clone(), next, &Config::default()).unwrap();
    let mut held = Vec::new();
    for number in 0..3u8 {
        let near = Endpoint::via(hop(relay.local_addr(), &to_relay), ends.clone(), &Config::default()).unwrap();
        let (ours, theirs) = within(async { tokio::join!(near.connect_via(None), far.accept()) }).await;
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
        ours.open().await.unwrap().write_all(&[number; 9]).await.unwrap();
        let mut got = [0; 9];
        within(within(theirs.accept()).await.unwrap().read_exact(&mut got)).await.unwrap();
        assert_eq!(got, [number; 9]);
        held.push((near, ours, theirs));
    }
    assert_eq!(relay.counts().paths, 3);
}

#[tokio::test]
async fn an_end_learns_whether_the_relay_or_the_other_end_is_silent() {
    let config = Config::builder().handshake_timeout(Duration::from_millis(400)).build().unwrap();
    let (ends, first, second) = (new_secret().unwrap(), new_secret().unwrap(), new_secret().unwrap());
    // Nothing listens at the address of the relay.
    let closed = Endpoint::bind(loopback(), first.clone(), Config::default()).unwrap();
    let near = Endpoint::via(hop(closed.local_addr(), &second), ends.clone(), &config).unwrap();
    let silent = CloseReason::Hop(Box::new(CloseReason::NoAnswer));
    assert_eq!(within(near.connect_via(None)).await.unwrap_err(), ConnectError::Lost(silent));
    // The relay answers, and its next host does not.
    let next = hop(closed.local_addr(), &second);
    let relay = Relay::bind(loopback(), first.clone(), next, &config).unwrap();
    let patient = Config::default();
    let near = Endpoint::via(hop(relay.local_addr(), &first), ends.clone(), &patient).unwrap();
    let Err(ConnectError::Lost(CloseReason::Hop(reason))) = within(near.connect_via(None)).await else {
        panic!("the hop is over");
    };
    assert!(reason.to_string().contains("no answer: wrong host, port or secret"), "{reason}");
    // All hops answer, and the end behind them has another secret.
    let far = Endpoint::behind(loopback(), second.clone(), new_secret().unwrap(), &patient).unwrap();
    let relay = Relay::bind(loopback(), first.clone(), hop(far.local_addr(), &second), &patient).unwrap();
    let near = Endpoint::via(hop(relay.local_addr(), &first), ends, &config).unwrap();
    assert_eq!(within(near.connect_via(None)).await.unwrap_err(), ConnectError::NoAnswer);
    assert!(far.stats().strangers > 0, "{:?}", far.stats());
}

#[tokio::test]
async fn a_connection_ends_with_its_relay() {
    let path = path(1);
    let (near, far) = connected(&path).await;
    within(path.relays[0].close()).await;
    for (connection, name) in [(near, "near"), (far, "far")] {
        let reason = within(connection.closed()).await;
        let CloseReason::Hop(hop) = &reason else { panic!("{name}: {reason}") };
        assert!(hop.to_string().contains("the relay was stopped"), "{name}: {hop}");
    }
}

/// A stream over a hop itself would end at the relay, which keeps nothing.
#[tokio::test]
async fn a_relay_takes_no_streams() {
    let (secret, next) = (new_secret().unwrap(), new_secret().unwrap());
    let far = Endpoint::behind(loopback(), next.clone(), new_secret().unwrap(), &Config::default()).unwrap();
    let relay = Relay::bind(loopback(), secret.clone(), hop(far.local_addr(), &next), &Config::default()).unwrap();
    let stranger = Endpoint::bind(loopback(), secret, Config::default()).unwrap();
    let connection = within(stranger.connect(relay.local_addr())).await.unwrap();
    connection.open().await.unwrap().write_all(b"for you").await.unwrap();
    let CloseReason::Peer { code, reason } = within(connection.closed()).await else { panic!("closed by the relay") };
    assert_eq!((code, &*reason), (CloseCode::Refused, "a relay takes no streams and no messages"));
}

#[test]
fn profiles_that_no_hop_can_follow_are_refused() {
    let refused = |profile: &str| {
        let config = Config::builder().profile(profile.parse().unwrap()).build().unwrap();
        tidewire_proto::relay::relaying(&config).map_err(|error| error.to_string())
    };
    for profile in ["block:32,8", "sphinx", "pipeline:16,2.5", "pipeline:16,combo", "pipeline:16,1.25,systematic"] {
        assert!(refused(profile).is_err_and(|error| error.contains("R from 1 to 2")), "{profile}");
    }
    let pipeline = refused("pipeline:16,1.25").unwrap();
    assert_eq!((pipeline.length, pipeline.redundancy), (16, Some(1.25)));
    assert_eq!(refused("pipeline:64,min").unwrap().redundancy, None);
    assert_eq!(refused("stream"), Ok(tidewire::Relaying::default()));
}
