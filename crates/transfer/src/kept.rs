//! The list of paths under which a job has kept files so far.
//!
//! A session reads it once, adds each complete file, and removes it when the job is done. It proves nothing
//! about content: what it is for is that a cut-off job does not put two of its files under one name of a file
//! system that folds names ([`Standing`]). A list has at most [`MAX_KEPT`] files.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};

use cap_std::fs::Dir;

use super::standing::{MAX_KEPT, Standing};
use super::{Destination, Encoding, Key, RelativePath};

/// Bytes of the hash behind a path.
const CHECK: usize = 8;

/// The files that a job has kept.
#[derive(Debug)]
pub(super) struct Kept {
    name: String,
    /// Number of files on the list, and its length in bytes.
    length: usize,
    end: u64,
    file: Option<File>,
}

impl Kept {
    /// Reads the list of `peer`'s `job`, if there is one, and adds the files that are there to `standing`. A
    /// list that cannot be read counts as empty.
    pub(super) fn load(
        destination: &Destination,
        parts: Option<Dir>,
        peer: Key,
        job: Key,
        standing: &mut Standing,
    ) -> Self {
        let name = format!("{}.kept", Key::of_peers(peer, job));
        let mut kept = Self { name, length: 0, end: 0, file: None };
        if let Some(list) = parts.and_then(|parts| parts.open(&kept.name).ok()) {
            let mut list = BufReader::new(list.into_std());
            while kept.length < MAX_KEPT
                && let Some((path, bytes)) = read(&mut list)
            {
                kept.length += 1;
                kept.end += bytes;
                if let Ok(there) = destination.root().symlink_metadata(path.as_os_str()) {
                    standing.insert(&there, Key::of_path(path.as_bytes()));
                }
            }
        }
        kept
    }

    /// Name of the list's file.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Adds a file. If it cannot be added, a later session does not know that this job put it there.
    pub(super) fn add(&mut self, destination: &Destination, path: &RelativePath) {
        if self.length >= MAX_KEPT {
            return;
        }
        if self.file.is_none() {
            // Bytes after the end are a record that was cut off.
            let opened = destination.open_list(&self.name).ok();
            self.file = opened.filter(|file| file.set_len(self.end).is_ok());
        }
        let record = emit(path);
        if let Some(file) = &mut self.file
            && file.seek(SeekFrom::Start(self.end)).and_then(|_| file.write_all(&record)).is_ok()
        {
            self.length += 1;
            self.end += record.len() as u64;
        }
    }
}

/// A record: the length of the path, the path, and the beginning of their hash.
fn emit(path: &RelativePath) -> Vec<u8> {
    let path = path.as_bytes();
    let mut record = Vec::new();
    // At most 4,096 bytes, by `RelativePath`.
    record.extend_from_slice(&(path.len() as u16).to_be_bytes());
    record.extend_from_slice(path);
    let check = blake3::hash(&record);
    record.extend(check.as_bytes().iter().take(CHECK));
    record
}

/// The next complete record, and its length.
fn read(from: &mut impl Read) -> Option<(RelativePath, u64)> {
    let mut bytes = vec![0; 2];
    from.read_exact(&mut bytes).ok()?;
    let body = 2 + usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    bytes.resize(body + CHECK, 0);
    from.read_exact(&mut bytes[2..]).ok()?;
    let (record, check) = bytes.split_at(body);
    let whole = blake3::hash(record).as_bytes()[..CHECK] == *check;
    let path = RelativePath::parse(&record[2..], Encoding::of(&record[2..])).ok().filter(|_| whole)?;
    Some((path, bytes.len() as u64))
}
