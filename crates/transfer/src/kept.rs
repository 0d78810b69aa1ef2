//! The list of paths under which a job has kept files so far.
//!
//! A session reads it once, adds each complete file, and removes it when the job is done. It proves nothing
//! about content. It has two uses: a cut-off job does not put two of its files under one name of a file
//! system that folds names ([`Standing`]), and it puts a newer version of a file where it has put the
//! first ([`Placed`]). A list has at most [`MAX_KEPT`] files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};

use cap_std::fs::Dir;

use super::existing::identity;
use super::standing::{MAX_KEPT, Standing};
use super::{Destination, Encoding, Key, RelativePath};

/// Bytes of the hash behind a path.
const CHECK: usize = 8;

/// Where a job has put a file.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// The path, if it is not the sender's.
    pub(super) other: Option<RelativePath>,
    /// Which file that is.
    pub(super) identity: Key,
}

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
    /// Reads the list of `peer`'s `job`, if there is one, and adds the files that are there to `standing`,
    /// and to `files` those that nobody has written to since. A list that cannot be read counts as empty.
    pub(super) fn load(
        destination: &Destination,
        parts: Option<Dir>,
        job: Key,
        standing: &mut Standing,
        files: &mut HashMap<Key, Placed>,
    ) -> Self {
        let name = format!("{job}.kept");
        let mut kept = Self { name, length: 0, end: 0, file: None };
        if let Some(list) = parts.and_then(|parts| parts.open(&kept.name).ok()) {
            let mut list = BufReader::new(list.into_std());
            while kept.length < MAX_KEPT
                && let Some((path, placed, bytes)) = read(&mut list)
            {
                kept.length += 1;
                kept.end += bytes;
                let at = placed.other.as_ref().unwrap_or(&path);
                let there = destination.find(at).and_then(|(directory, name)| directory.symlink_metadata(name));
                if let Ok(there) = there {
                    let key = Key::of_path(path.as_bytes());
                    standing.insert(&there, key);
                    if identity(&there) == placed.identity {
                        files.insert(key, placed);
                    }
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
    pub(super) fn add(&mut self, destination: &Destination, path: &RelativePath, placed: &Placed) {
        if self.length >= MAX_KEPT {
            return;
        }
        if self.file.is_none() {
            // Bytes after the end are a record that was cut off.
            let opened = destination.open_list(&self.name).ok();
            self.file = opened.filter(|file| file.set_len(self.end).is_ok());
        }
        let record = emit(path, placed);
        if let Some(file) = &mut self.file
            && file.seek(SeekFrom::Start(self.end)).and_then(|_| file.write_all(&record)).is_ok()
        {
            self.length += 1;
            self.end += record.len() as u64;
        }
    }
}

/// A record: the path and the path where the file is, each behind its length (0 if it is the same), the
/// key of the file, and the beginning of the hash of all this.
fn emit(path: &RelativePath, placed: &Placed) -> Vec<u8> {
    let other = placed.other.as_ref().map_or(&[][..], RelativePath::as_bytes);
    let mut record = Vec::new();
    for path in [path.as_bytes(), other] {
        // At most 4,096 bytes, by `RelativePath`.
        record.extend_from_slice(&(path.len() as u16).to_be_bytes());
        record.extend_from_slice(path);
    }
    record.extend_from_slice(&placed.identity.0);
    let check = blake3::hash(&record);
    record.extend(check.as_bytes().iter().take(CHECK));
    record
}

/// The next complete record, and its length.
fn read(from: &mut impl Read) -> Option<(RelativePath, Placed, u64)> {
    let mut record = Vec::new();
    let mut take = |length: usize| {
        let begin = record.len();
        record.resize(begin + length, 0);
        from.read_exact(&mut record[begin..]).ok().map(|()| record[begin..].to_vec())
    };
    let mut paths = [Vec::new(), Vec::new()];
    for path in &mut paths {
        let length: [u8; 2] = take(2)?.try_into().ok()?;
        *path = take(u16::from_be_bytes(length).into())?;
    }
    let identity = Key(take(Key::LEN)?.try_into().ok()?);
    let check = take(CHECK)?;
    let (body, _) = record.split_at(record.len() - CHECK);
    let whole = blake3::hash(body).as_bytes()[..CHECK] == check;
    let parse = |path: &[u8]| RelativePath::parse(path, Encoding::of(path)).ok().filter(|_| whole);
    let [path, other] = &paths;
    let other = if other.is_empty() { None } else { Some(parse(other)?) };
    Some((parse(path)?, Placed { other, identity }, record.len() as u64))
}
