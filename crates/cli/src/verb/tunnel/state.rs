//! The events of a tunnel, for programs.

use std::time::Duration;

use serde::Serialize;
use tidewire_command::report::Console;
use tidewire_figures::milliseconds;
use tidewire_tunnel::{Counts, Hub, Listed};

/// Time between two reports of the state with `--json`.
const INTERVAL: Duration = Duration::from_secs(5);

/// What `tunnel up` prints with `--json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// The device is up.
    Tunnel {
        /// Name of the TUN device.
        interface: &'a str,
        /// Its addresses with their prefix lengths.
        addresses: Vec<String>,
        /// Its longest packet in bytes.
        mtu: u16,
    },
    /// Another program removed parts of the tunnel from the kernel, and they are restored.
    Restored {
        /// In words for people, such as `route 10.99.0.0/16`.
        parts: Vec<String>,
        /// Whether the next restorations are not told, because there were too many.
        last_told: bool,
    },
    /// A connection of a peer has ended. A peer that connected reports `connected`.
    Lost {
        /// The peer's address.
        peer: &'a str,
        /// In words for people.
        reason: String,
    },
    /// The state, every five seconds.
    State {
        /// Connected or not.
        peers: Vec<PeerState>,
        /// What happened to packets since the start.
        packets: Counts,
    },
}

/// One entry of [`Event::State`].
#[derive(Serialize)]
pub struct PeerState {
    /// Its public key; null if both sides share a secret.
    key: Option<String>,
    networks: Vec<String>,
    /// Its address now, also after it moved; null if it is not connected.
    peer: Option<String>,
    /// Smoothed round trip in milliseconds.
    rtt_ms: Option<f64>,
    /// Fraction of our packets to it that were lost.
    loss: Option<f64>,
    /// Pace of our packets to it, in bits per second.
    pace_bps: Option<u64>,
}

impl From<&Listed> for PeerState {
    fn from(Listed { entry, peer }: &Listed) -> Self {
        let connection = peer.connection();
        let stats = connection.as_ref().map(|connection| connection.stats());
        let rtt = connection.as_ref().map(|connection| connection.rtt()).filter(|rtt| !rtt.is_zero());
        Self {
            key: entry.key.map(|key| key.to_string()),
            networks: entry.networks.iter().map(ToString::to_string).collect(),
            rtt_ms: rtt.map(milliseconds),
            loss: stats.as_ref().map(|stats| stats.loss.rate),
            pace_bps: stats.as_ref().map(|stats| stats.rate.pacing_bps),
            peer: connection.map(|connection| connection.current_remote().to_string()),
        }
    }
}

/// Reports the state from time to time, for ever.
pub async fn report<T>(hub: &Hub, console: &Console) -> T {
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        console.event(&state(hub));
    }
}

/// [`Event::State`] of all peers.
pub fn state(hub: &Hub) -> Event<'static> {
    Event::State { peers: hub.peers().listed().iter().map(PeerState::from).collect(), packets: hub.counts() }
}
