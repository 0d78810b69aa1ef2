//! What the directions of an emulated link did, as `link`, `sim` and `run` print it.

use serde::Serialize;
use tidewire_figures::milliseconds;
use tidewire_sim::link::LinkStats;

/// The event that `link` and `sim` share.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// What `link` has carried so far, or `sim` in all.
    LinkStats {
        /// Counts of the direction toward the target.
        forward: LinkCounts,
        /// Counts of the direction from the target.
        back: LinkCounts,
        /// Clients that have sent something.
        clients: u64,
    },
}

/// What one direction of an emulated link did with its datagrams.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LinkCounts {
    /// Datagrams that arrived at the link.
    offered: u64,
    /// Datagrams that the link handed on.
    delivered: u64,
    /// Datagrams dropped by the loss model, by a blackout, or because they exceed the MTU.
    lost: u64,
    /// Datagrams dropped because the queue was full.
    queue_dropped: u64,
    /// Datagrams dropped by CoDel.
    codel_dropped: u64,
    /// Datagrams dropped by the policer.
    policed: u64,
    /// Datagrams handed on with a congestion mark, if their senders know marks.
    marked: u64,
    /// Attempts that the link made again.
    attempts_repeated: u64,
    /// Mean time in the queue.
    queueing_ms: f64,
    /// IP bytes that arrived at the link.
    offered_bytes: u64,
    /// IP bytes that the link handed on.
    delivered_bytes: u64,
}

/// Converts the counts of one direction for `--json`.
pub fn counts(link: &LinkStats) -> LinkCounts {
    LinkCounts {
        offered: link.offered,
        delivered: link.delivered,
        lost: link.lost + link.blacked_out + link.too_long,
        queue_dropped: link.queue_dropped,
        codel_dropped: link.codel_dropped,
        policed: link.policed(),
        marked: link.marked,
        attempts_repeated: link.attempts_repeated(),
        queueing_ms: milliseconds(link.mean_queueing()),
        offered_bytes: link.offered_bytes,
        delivered_bytes: link.delivered_bytes,
    }
}

/// Describes the counts of the two directions, a line each.
pub fn describe(forward: &LinkStats, back: &LinkStats) -> String {
    let way = |link: &LinkStats| {
        let LinkCounts { offered, delivered, lost, queue_dropped, policed, queueing_ms, .. } = counts(link);
        format!(
            "{offered} came, {delivered} went on, {lost} lost, {queue_dropped} queue full, {policed} policed, \
             {queueing_ms:.1} ms queueing"
        )
    };
    format!("there: {}\nback:  {}", way(forward), way(back))
}
