//! A flow that a peer of the lab's table carries: its programs on two nodes, and an application at each.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;
use tidewire_sim::network::{Content, FlowPlan, FlowReport, Plan};
use tidewire_sim::video::Pace;

use super::content::Run;
use super::datagrams::Datagrams;
use super::kernel::{Far, Kernel};
use super::{Flow, Place};
use crate::nodes::Nodes;
use crate::opening::Sink;
use crate::peer::{Kind, Peer, Surroundings, Table};
use crate::processes::Processes;
use crate::records::Way;

/// The kinds that reports name: of a stream, and of datagrams, which may get lost.
const NAMES: [&str; 2] = ["peer", "peer-udp"];
/// Ports of the first flow; each further one has the next ones. The nodes are new, so these are free.
const ENTRY: u16 = 4_000;
/// See [`ENTRY`].
const SINK: u16 = 5_000;
/// See [`ENTRY`].
const WIRE: u16 = 6_000;
/// Flows of peers at most, so that their ports stay apart.
const MOST: usize = 1_000;

/// The table of peers, and the file of the command `tidewire`, which some of them are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Programs<'a> {
    pub table: &'a Table,
    pub program: &'a Path,
}

/// A running flow. Its programs end with it.
pub(super) struct PeerFlow {
    inner: Box<dyn Flow>,
    processes: Processes,
    _folder: TempDir,
}

/// The peer of this name, if a flow can use it.
///
/// # Errors
/// Says why not.
pub(super) fn usable<'a>(table: &'a Table, name: &str) -> anyhow::Result<&'a Peer> {
    let peer = table.named(name)?;
    match &peer.kind {
        Kind::Kernel(tcp) => bail!("peer {name} is kernel TCP: write kind = \"{}\", cubic or bbr", tcp.control),
        Kind::Itself(..) => bail!("peer {name} makes its own load: run it with --at and --other (docs/networks.md)"),
        Kind::Stream(_) | Kind::Datagrams(_) => peer.check().map(|()| peer),
    }
}

impl PeerFlow {
    /// Starts the programs of flow number `n`, and waits until a byte came through.
    pub(super) fn start(
        nodes: &Nodes,
        ends: [Place; 2],
        (plan, n): (&Plan, usize),
        (name, content): (&str, &Content),
        programs: Programs<'_>,
        seed: u64,
        run: &Arc<Run>,
    ) -> anyhow::Result<Self> {
        let [from, to] = ends;
        let peer = usable(programs.table, name)?;
        let (is_stream, lines) = match &peer.kind {
            Kind::Stream(lines) => (true, lines),
            Kind::Datagrams(lines) => (false, lines),
            Kind::Kernel(_) | Kind::Itself(..) => bail!("peer {name} carries no flow"),
        };
        let mut content = content.clone();
        match &mut content {
            Content::Bulk { .. } if !is_stream => {
                bail!("{name} carries datagrams, and nothing holds those back: write rate = \"2mbit\" or so");
            }
            Content::Video { video, .. } if !is_stream => video.pace = Pace::Live,
            _ => {}
        }
        let own = u16::try_from(n.min(MOST))?;
        let local = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let setting = Surroundings {
            program: programs.program,
            far: to.address,
            near: from.address,
            entry: local(ENTRY + own),
            sink: local(SINK + own),
            wire: WIRE + own,
            rtt: plan.topology.round_trip(&plan.topology.routes(), from.node, to.node),
            time: plan.limit(),
        };
        let folder = tempfile::tempdir()?;
        let processes = Processes::start(nodes, [from.node, to.node], lines, &setting, folder.path())?;
        let sink = Sink::open(nodes, to.node, SINK + own, is_stream)?;
        let met = sink.meet(nodes, from.node, setting.entry).with_context(|| processes.last_words())?;
        let FlowPlan { start, .. } = plan.flows[n];
        let inner = carry(from.node, met, &content, start, seed, run)?;
        Ok(Self { inner, processes, _folder: folder })
    }
}

fn carry(
    node: usize,
    met: (Way, Way),
    content: &Content,
    start: Duration,
    seed: u64,
    run: &Arc<Run>,
) -> anyhow::Result<Box<dyn Flow>> {
    Ok(match met {
        (Way::Stream(near), Way::Stream(far)) => {
            near.set_nodelay(!matches!(content, Content::Bulk { .. }))?;
            far.set_read_timeout(None)?;
            Box::new(Kernel::carry(NAMES[0], node, (near, Far::Connected(far)), content, start, seed, run)?)
        }
        (Way::Datagrams(near), Way::Datagrams(far)) => {
            Box::new(Datagrams::carry(NAMES[1], (near, far), content, start, seed, run)?)
        }
        _ => bail!("the two ends of a peer are of two kinds"),
    })
}

impl Flow for PeerFlow {
    fn is_over(&self) -> bool {
        self.inner.is_over()
    }

    fn end(self: Box<Self>) -> anyhow::Result<FlowReport> {
        let Self { inner, processes, _folder } = *self;
        let report = inner.end()?;
        if report.bytes == 0 {
            bail!("no byte of the flow arrived: {}", processes.last_words());
        }
        Ok(report)
    }
}
