//! The frames of the channel between a dashboard and its page, as `docs/dashboard.md` section 3 describes.
//!
//! The gatherer of a running job and the reader of a recording write them, and `page/stream.js` reads them.

use serde::Serialize;
use serde::ser::SerializeSeq;
use tidewire::DelayHistogram;

/// Bytes of the record of a mark.
pub const MARK_BYTES: usize = 32;
/// Most marks of one frame: it has less than a megabyte, so that the page draws between two of them.
const MOST_MARKS: usize = 32_000;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The job, as JSON; the first frame.
    Hello = 1,
    /// A connection that begins or ends, as JSON.
    Connection = 2,
    /// The counters of a connection, as JSON.
    Sample = 3,
    /// Marks of the ledger, as records.
    Marks = 4,
    /// A decision in words, as JSON.
    Note = 5,
    /// The summary of the job, as `--json` prints it.
    Summary = 6,
    /// The job is over.
    End = 7,
    /// Messages were dropped on the way to this page, as JSON.
    Dropped = 8,
    /// All delays of a connection so far, as JSON: they replace those that the page has.
    Delays = 9,
}

/// Appends the length of `payload` (4 bytes, little endian), its kind, and `payload`.
pub fn frame(kind: Kind, payload: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    to.push(kind as u8);
    to.extend_from_slice(payload);
}

/// Appends a frame with `value` as JSON.
pub fn json<T: Serialize>(kind: Kind, value: &T, to: &mut Vec<u8>) {
    // Values of this room have names as keys and no fallible parts, so they always serialize.
    if let Ok(text) = serde_json::to_vec(value) {
        frame(kind, &text, to);
    }
}

/// Appends frames with marks.
pub fn marks(records: impl Iterator<Item = [u8; MARK_BYTES]>, to: &mut Vec<u8>) {
    let mut waiting = Vec::new();
    for record in records {
        waiting.extend_from_slice(&record);
        if waiting.len() >= MOST_MARKS * MARK_BYTES {
            frame(Kind::Marks, &waiting, to);
            waiting.clear();
        }
    }
    if !waiting.is_empty() {
        frame(Kind::Marks, &waiting, to);
    }
}

/// The job.
#[derive(Debug, Serialize)]
pub struct Hello<'a> {
    /// What the page is called.
    pub title: &'a str,
    /// Whether the job is running; false for a recording.
    pub live: bool,
    /// The names of the recordings, which can be replayed. A job has none.
    pub recordings: &'a [&'a str],
    /// Examples of profiles for a replay.
    pub profiles: &'a [&'a str],
}

/// A connection.
#[derive(Debug, Serialize)]
pub struct Opened<'a> {
    /// Names the connection in later frames.
    pub id: u16,
    pub peer: &'a str,
    /// Why it ended, if it has.
    pub closed: Option<&'a str>,
}

/// A decision in words.
#[derive(Debug, Serialize)]
pub struct Note<'a> {
    /// The connection.
    pub c: u16,
    /// Seconds since the job began.
    pub t: f64,
    pub words: &'a str,
    /// Whether the target can be met.
    pub feasible: bool,
}

/// Messages that this page did not get.
#[derive(Debug, Serialize)]
pub struct Dropped {
    pub dropped: u64,
}

/// All delays of a connection.
#[derive(Debug, Serialize)]
pub struct Delays<'a> {
    /// The connection.
    pub c: u16,
    /// The delays so far.
    pub delay: Buckets<'a>,
}

/// A distribution as pairs of an upper bound in microseconds and a count.
#[derive(Debug)]
pub struct Buckets<'a>(pub &'a DelayHistogram);

impl Serialize for Buckets<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pairs = serializer.serialize_seq(None)?;
        for (upper, count) in self.0.buckets() {
            pairs.serialize_element(&(upper.as_micros() as u64, count))?;
        }
        pairs.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_length_kind_and_payload() {
        let mut bytes = Vec::new();
        json(Kind::Dropped, &Dropped { dropped: 7 }, &mut bytes);
        assert_eq!(bytes, b"\x0d\0\0\0\x08{\"dropped\":7}");
    }

    #[test]
    fn many_marks_make_several_frames() {
        let mut bytes = Vec::new();
        marks((0..MOST_MARKS + 1).map(|_| [3; MARK_BYTES]), &mut bytes);
        let first = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        assert_eq!(first, MOST_MARKS * MARK_BYTES);
        assert_eq!(bytes[first + 5..first + 10], [MARK_BYTES as u8, 0, 0, 0, Kind::Marks as u8]);
        assert_eq!(bytes.len(), first + 10 + MARK_BYTES);
    }
}
