//! The congestion windows of the kernel's connections over time, as `ss -ti` shows them.
//!
//! One thread asks each node in turn. Where `ss` is missing, there are no windows.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidewire_proto::Time;
use tidewire_sim::series::Series;

use super::since;
use crate::nodes::Nodes;

/// Time between two looks. Chosen: a program is started for each node, which takes some milliseconds.
const EVERY: Duration = Duration::from_millis(200);

/// What was seen of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Times and windows in segments.
    pub(super) window: Vec<(Time, f64)>,
    /// Segments with data that were sent, and those sent again.
    pub(super) packets: u64,
    pub(super) repeated: u64,
}

/// One line of `ss`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Line {
    port: u16,
    window: f64,
    packets: u64,
    repeated: u64,
}

/// A thread that samples windows.
#[derive(Debug)]
pub(super) struct Windows {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Option<Seen>>>,
}

impl Windows {
    /// Samples the windows of the sockets with these nodes and ports. Times count from `zero`.
    pub(super) fn sample(nodes: &Nodes, sockets: Vec<Option<(usize, u16)>>, zero: Instant) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut of_nodes: Vec<usize> = sockets.iter().flatten().map(|&(node, _)| node).collect();
        of_nodes.sort_unstable();
        of_nodes.dedup();
        let names: Vec<_> = of_nodes.into_iter().map(|node| (node, nodes.name(node).to_owned())).collect();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut all: Vec<_> =
                sockets.iter().map(|socket| socket.map(|_| (Series::new(EVERY), Seen::default()))).collect();
            while !stopped.load(Ordering::Acquire) {
                for (node, name) in &names {
                    for line in lines(name) {
                        let found = sockets.iter().position(|socket| *socket == Some((*node, line.port)));
                        if let Some(Some((series, seen))) = found.and_then(|found| all.get_mut(found)) {
                            series.note(since(zero), || (since(zero), line.window));
                            (seen.packets, seen.repeated) = (line.packets, line.repeated);
                        }
                    }
                }
                std::thread::sleep(EVERY);
            }
            let finish = |(series, seen): (Series<_>, Seen)| Seen { window: series.samples().to_vec(), ..seen };
            all.into_iter().map(|one| one.map(finish)).collect()
        });
        Self { stop, thread }
    }

    /// What was seen of each socket.
    pub(super) fn stop(self) -> Vec<Option<Seen>> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The connections of a namespace.
fn lines(name: &str) -> Vec<Line> {
    let output = Command::new("ip").args(["netns", "exec", name, "ss", "-HtinO"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

/// Reads a line of `ss -HtinO`: state, queues, both addresses, and pairs of a name and a value.
fn parse(line: &str) -> Option<Line> {
    let port = line.split_whitespace().nth(3)?.rsplit(':').next()?.parse().ok()?;
    let value = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name));
    let window = value("cwnd:")?.parse().ok()?;
    let packets = value("data_segs_out:").and_then(|count| count.parse().ok()).unwrap_or(0);
    let repeated = value("retrans:").and_then(|counts| counts.split('/').nth(1)?.parse().ok()).unwrap_or(0);
    Some(Line { port, window, packets, repeated })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_ss_has_port_window_and_counts() {
        let line = "ESTAB 0 2896 10.99.0.1:43210 10.99.0.10:5001 reno wscale:7,7 rto:240 rtt:40.1/2 mss:1448 cwnd:38 \
                    ssthresh:30 bytes_sent:900 bytes_retrans:1448 segs_out:90 data_segs_out:88 retrans:0/3 lost:1";
        assert_eq!(parse(line), Some(Line { port: 43_210, window: 38.0, packets: 88, repeated: 3 }));
        assert_eq!(parse("LISTEN 0 128 10.99.0.1:7 0.0.0.0:*"), None);
    }
}
