//! The list of files that a job has kept so far, so that a cut-off transfer does not send them again.
//!
//! A session reads it once, adds each complete file, and removes it when the job is done. Invariant: a file
//! is added after it was verified, flushed and renamed. Later it counts only if it is unchanged. A list has
//! at most [`MAX_KEPT`] files; further ones are sent again.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::time::SystemTime;

use cap_std::fs::{Dir, Metadata};

use super::standing::{MAX_KEPT, Standing};
use super::{Destination, Key, RelativePath};

/// Bytes of a record besides its path: length of the path, source, size, modified, check.
const CHECK: usize = 8;

/// The files that a job has kept.
#[derive(Debug)]
pub(super) struct Kept {
    name: String,
    known: HashMap<Key, Key>,
    /// Number of files on the list, and its length in bytes.
    length: usize,
    end: u64,
    file: Option<File>,
}

impl Kept {
    /// Reads the list of `peer`'s `job`, if there is one, and adds unchanged files to `standing`. A list that
    /// cannot be read counts as empty.
    pub(super) fn load(
        destination: &Destination,
        parts: Option<Dir>,
        peer: Key,
        job: Key,
        standing: &mut Standing,
    ) -> Self {
        let name = format!("{}.kept", Key::of_peers(peer, job));
        let mut kept = Self { name, known: HashMap::new(), length: 0, end: 0, file: None };
        if let Some(list) = parts.and_then(|parts| parts.open(&kept.name).ok()) {
            let mut list = BufReader::new(list.into_std());
            while kept.length < MAX_KEPT
                && let Some((record, bytes)) = read(&mut list)
            {
                kept.length += 1;
                kept.end += bytes;
                let path = Key::of_path(record.path.as_str().as_bytes());
                // The last record of a path counts.
                kept.known.remove(&path);
                if let Some(metadata) = record.standing(destination.root()) {
                    kept.known.insert(path, record.source);
                    standing.insert(&metadata, path);
                }
            }
        }
        kept
    }

    /// Name of the list's file.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The unchanged files: path and source of each.
    pub(super) fn known(&self) -> impl Iterator<Item = (Key, Key)> {
        self.known.iter().map(|(path, source)| (*path, *source))
    }

    /// Whether this file is one of them.
    pub(super) fn has(&self, path: Key, source: Key) -> bool {
        self.known.get(&path) == Some(&source)
    }

    /// Adds a file. A file that cannot be added will be sent again if the transfer is cut off.
    pub(super) fn add(
        &mut self,
        destination: &Destination,
        path: RelativePath,
        source: Key,
        size: u64,
        modified: SystemTime,
    ) {
        if self.length >= MAX_KEPT {
            return;
        }
        if self.file.is_none() {
            // Bytes after the end are a record that was cut off.
            let opened = destination.open_list(&self.name).ok();
            self.file = opened.filter(|file| file.set_len(self.end).is_ok());
        }
        let record = Record { path, source, size, modified: wire_time(modified) }.emit();
        if let Some(file) = &mut self.file
            && file.seek(SeekFrom::Start(self.end)).and_then(|_| file.write_all(&record)).is_ok()
        {
            self.length += 1;
            self.end += record.len() as u64;
        }
    }
}

/// A file on the list.
struct Record {
    path: RelativePath,
    source: Key,
    size: u64,
    modified: (i64, u32),
}

impl Record {
    /// The file, if it is there and unchanged.
    fn standing(&self, root: &Dir) -> Option<Metadata> {
        root.symlink_metadata(self.path.as_str()).ok().filter(|now| {
            let modified = now.modified().is_ok_and(|modified| wire_time(modified.into_std()) == self.modified);
            now.is_file() && now.len() == self.size && modified
        })
    }

    fn emit(&self) -> Vec<u8> {
        let path = self.path.as_str().as_bytes();
        let mut record = Vec::new();
        // At most 4,096 bytes, by `RelativePath`.
        record.extend_from_slice(&(path.len() as u16).to_be_bytes());
        record.extend_from_slice(path);
        record.extend_from_slice(&self.source.0);
        record.extend_from_slice(&self.size.to_be_bytes());
        record.extend_from_slice(&self.modified.0.to_be_bytes());
        record.extend_from_slice(&self.modified.1.to_be_bytes());
        let check = blake3::hash(&record);
        record.extend(check.as_bytes().iter().take(CHECK));
        record
    }
}

/// The next complete record, and its length.
fn read(from: &mut impl Read) -> Option<(Record, u64)> {
    let mut bytes = vec![0; 2];
    from.read_exact(&mut bytes).ok()?;
    let path = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let body = 2 + path + Key::LEN + 8 + 8 + 4;
    bytes.resize(body + CHECK, 0);
    from.read_exact(&mut bytes[2..]).ok()?;
    let (record, check) = bytes.split_at(body);
    if blake3::hash(record).as_bytes()[..CHECK] != *check {
        return None;
    }
    let (path, rest) = record[2..].split_at(path);
    let (source, rest) = rest.split_first_chunk()?;
    let (size, rest) = rest.split_first_chunk()?;
    let (seconds, rest) = rest.split_first_chunk()?;
    let (nanos, _) = rest.split_first_chunk()?;
    let record = Record {
        path: RelativePath::parse(path).ok()?,
        source: Key(*source),
        size: u64::from_be_bytes(*size),
        modified: (i64::from_be_bytes(*seconds), u32::from_be_bytes(*nanos)),
    };
    Some((record, bytes.len() as u64))
}

/// Seconds (rounded down) and nanoseconds since 1970.
pub(super) fn wire_time(time: SystemTime) -> (i64, u32) {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-(before.as_secs() as i64), 0),
                nanos => (-(before.as_secs() as i64) - 1, 1_000_000_000 - nanos),
            }
        }
    }
}
