//! Ways over an interface: for each address of a peer, the station that frames to it are addressed to.
//!
//! The kernel has routes and neighbours; a task asks it for them through netlink, and the sockets of the
//! interface read what it found. What has no way yet, or leads over another interface, is sent by the
//! kernel's socket, which also makes the kernel find the neighbour. Each second the task asks again for all
//! ways, and tells the kernel that the neighbours are in use, so that it notices when one moves. Invariant: a
//! way is at most two seconds old, and there are at most [`MOST_WAYS`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourState};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMetric};
use rtnetlink::{Handle, RouteMessageBuilder, new_connection};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// More peers go through the kernel. Chosen: their routes are asked for each second, which takes some
/// 20 us each.
const MOST_WAYS: usize = 4_096;
/// How often the kernel is asked again. Chosen: a peer that moves to another station is lost no longer.
const PERIOD: Duration = Duration::from_secs(1);

/// Where frames to an address go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The station.
    pub station: [u8; 6],
    /// Our address, where the socket has none.
    pub source: IpAddr,
    /// Longest IP packet.
    pub mtu: usize,
}

/// The ways of one interface; see the module. The task ends when this is dropped.
#[derive(Debug)]
pub(super) struct Ways {
    known: Arc<Known>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Known {
    ways: Mutex<HashMap<IpAddr, Entry>>,
    /// Notified when an address is new.
    wanted: Notify,
}

#[derive(Debug)]
struct Entry {
    way: Option<Way>,
    /// When a socket asked for it last.
    used: Instant,
}

impl Ways {
    /// Starts the task. Needs a runtime.
    ///
    /// # Errors
    /// Netlink cannot be used.
    pub fn over(interface: u32, mtu: usize) -> std::io::Result<Self> {
        let (connection, handle, _) = new_connection()?;
        let known = Arc::new(Known { ways: Mutex::default(), wanted: Notify::new() });
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        tasks.spawn(keep(Arc::clone(&known), Kernel { handle, interface, mtu }));
        Ok(Self { known, _tasks: tasks })
    }

    /// The way to an address, if it is known.
    pub fn find(&self, to: IpAddr) -> Option<Way> {
        let mut ways = self.known.lock();
        if let Some(entry) = ways.get_mut(&to) {
            entry.used = Instant::now();
            return entry.way;
        }
        if ways.len() < MOST_WAYS {
            ways.insert(to, Entry { way: None, used: Instant::now() });
            self.known.wanted.notify_one();
        }
        None
    }
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Entry>> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the ways for ever.
async fn keep(known: Arc<Known>, kernel: Kernel) {
    loop {
        // A new address is asked for at once, and again after a while: the kernel has to find its neighbour.
        let _ = tokio::time::timeout(PERIOD, known.wanted.notified()).await;
        let used: Vec<IpAddr> = {
            let mut ways = known.lock();
            ways.retain(|_, entry| entry.used.elapsed() < UNUSED);
            ways.keys().copied().collect()
        };
        if used.is_empty() {
            continue;
        }
        let stations = kernel.stations().await;
        for to in used {
            let way = kernel.way(to, &stations).await;
            if let Some(entry) = known.lock().get_mut(&to) {
                entry.way = way;
            }
        }
        tokio::time::sleep(SETTLING).await;
    }
}

/// A way that no socket asked for in this time is forgotten. Chosen: longer than two keep-alives.
const UNUSED: Duration = Duration::from_secs(60);
/// Least time between two rounds. Chosen: ten times what a neighbour in a local network takes to answer.
const SETTLING: Duration = Duration::from_millis(20);

/// The kernel's routes and neighbours.
struct Kernel {
    handle: Handle,
    interface: u32,
    mtu: usize,
}

impl Kernel {
    /// The stations of all neighbours on the interface.
    async fn stations(&self) -> HashMap<IpAddr, [u8; 6]> {
        let mut stations = HashMap::new();
        let mut found = self.handle.neighbours().get().execute();
        while let Ok(Some(neighbour)) = found.try_next().await {
            let is_known = !matches!(
                neighbour.header.state,
                NeighbourState::Incomplete | NeighbourState::Failed | NeighbourState::None
            );
            if neighbour.header.ifindex != self.interface || !is_known {
                continue;
            }
            let (mut address, mut station) = (None, None);
            for attribute in &neighbour.attributes {
                match attribute {
                    NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some(IpAddr::V4(*v4)),
                    NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some(IpAddr::V6(*v6)),
                    NeighbourAttribute::LinkLayerAddress(bytes) => station = bytes[..].try_into().ok(),
                    _ => {}
                }
            }
            stations.extend(address.zip(station));
        }
        stations
    }

    /// The way to an address, if it leads over the interface to a known station.
    async fn way(&self, to: IpAddr, stations: &HashMap<IpAddr, [u8; 6]>) -> Option<Way> {
        let message = match to {
            IpAddr::V4(v4) => RouteMessageBuilder::<std::net::Ipv4Addr>::new().destination_prefix(v4, 32).build(),
            IpAddr::V6(v6) => RouteMessageBuilder::<std::net::Ipv6Addr>::new().destination_prefix(v6, 128).build(),
        };
        let route = self.handle.route().get(message).execute().try_next().await.ok()??;
        let (mut next, mut source, mut mtu, mut interface) = (to, None, self.mtu, None);
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => interface = Some(*index),
                RouteAttribute::Gateway(address) => next = ip(address)?,
                RouteAttribute::PrefSource(address) => source = ip(address),
                RouteAttribute::Metrics(metrics) => {
                    let of_path = metrics.iter().find_map(|metric| match metric {
                        RouteMetric::Mtu(bytes) => Some(*bytes as usize),
                        _ => None,
                    });
                    mtu = of_path.unwrap_or(mtu).min(mtu);
                }
                _ => {}
            }
        }
        if interface != Some(self.interface) {
            return None;
        }
        let station = *stations.get(&next)?;
        // The kernel then checks by itself whether the neighbour is still there.
        let using = self.handle.neighbours().add(self.interface, next).flags(NeighbourFlags::Use);
        let _ = using.state(NeighbourState::None).replace().execute().await;
        Some(Way { station, source: source?, mtu })
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}
