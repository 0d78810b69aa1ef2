//! The flow of a recording: of its connections the one that wrote most.
//!
//! A recording that was cut off, because its job was killed, is used as far as it goes. A damaged one is
//! refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::stats::DelayHistogram;
use tidewire_recording::{Item, ReadError, Reader};
use tidewire_sim::replay::{Gather, Recorded};

use super::{News, ReplayError, Tell};

/// Most connections of a recording that are looked at. Chosen: memory for the packets of each.
const MOST_CONNECTIONS: usize = 1_000;

/// What was gathered of each connection, by endpoint and handle.
#[derive(Default)]
struct Connections {
    gathered: BTreeMap<(u32, ConnectionHandle), Gather>,
    /// Number of events that were not recorded.
    missed: u64,
}

impl Connections {
    fn take(&mut self, item: &Item) {
        match item {
            Item::Event(entry) => {
                let key = (entry.endpoint, entry.connection);
                if self.gathered.len() < MOST_CONNECTIONS || self.gathered.contains_key(&key) {
                    self.gathered.entry(key).or_default().take(entry.at, &entry.event);
                }
            }
            Item::Missed { events, .. } => self.missed = self.missed.saturating_add(*events),
        }
    }
}

/// The flow of `file`, with the delays of `peer` if that is given. `None` if `tell` stopped the reading.
pub(super) fn of(file: &Path, peer: Option<&Path>, tell: &mut Tell<'_>) -> Result<Option<Recorded>, ReplayError> {
    let Some(Connections { gathered, missed }) = read(file, tell)? else { return Ok(None) };
    if missed > 0 {
        tell(News::Warning(&format!("{missed} events were not recorded, so the replay differs from the run")));
    }
    let count = gathered.len();
    if count > 1 {
        tell(News::Remark(&format!("{count} connections; the one that wrote most is replayed")));
    }
    let most = gathered.into_values().max_by_key(Gather::written).unwrap_or_default();
    let mut recorded = most.finish().map_err(|error| ReplayError::Flow(file.to_owned(), error))?;
    if let Some(peer) = peer {
        let Some(Connections { gathered, .. }) = read(peer, tell)? else { return Ok(None) };
        let most = gathered.values().map(Gather::received).max_by_key(|delays| delays.count());
        let delays: DelayHistogram = most.cloned().unwrap_or_default();
        if delays.count() == 0 {
            return Err(ReplayError::ReceivedNothing(peer.to_owned()));
        }
        recorded.delays_of(delays);
    }
    Ok(Some(recorded))
}

/// Reads a recording, and tells the share that was read as the progress of the recorded run.
fn read(path: &Path, tell: &mut Tell<'_>) -> Result<Option<Connections>, ReplayError> {
    let failed = |error| ReplayError::File(path.to_owned(), error);
    let wrong = |error| ReplayError::Recording(path.to_owned(), error);
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len().max(1);
    let mut reader = Reader::open(BufReader::new(file)).map_err(wrong)?;
    let mut connections = Connections::default();
    loop {
        match reader.next_items(&mut |item| connections.take(item)) {
            Ok(true) if tell(News::Progress("recorded", reader.offset() as f64 / length as f64)) => {}
            Ok(true) => return Ok(None),
            Ok(false) => return Ok(Some(connections)),
            Err(error @ ReadError::Truncated { .. }) => {
                tell(News::Warning(&format!("`{}`: {error}; what precedes it is used", path.display())));
                return Ok(Some(connections));
            }
            Err(error) => return Err(wrong(error)),
        }
    }
}
