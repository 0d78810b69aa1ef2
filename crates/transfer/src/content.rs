//! The bytes of a file of the source, and how many there are.
//!
//! Files of /proc announce 0 bytes and have more; files of /sys announce a page and have fewer. What a file
//! system generates has no blocks on a disk, so a small file without blocks is read to its end before it is
//! announced. If its length is not the announced one, what was read is sent. Invariant: the entry of a file
//! announces the bytes that its content gives, or the file fails.

use std::fs::{File, Metadata};
use std::io::{self, Cursor, Read, Seek, SeekFrom};

use super::Reason;

/// Maximum size of a file that is read before it is announced. Chosen: /proc/kallsyms has 12 MB.
const MOST_GENERATED: u64 = 16 << 20;

/// What is sent of a file.
#[derive(Debug)]
pub(super) enum Content {
    /// The bytes of a file with the announced size.
    File(File),
    /// All bytes of a file whose size means nothing.
    Generated(Cursor<Vec<u8>>),
}

impl Content {
    /// The content of a regular file, which was just opened, with the metadata that hold.
    ///
    /// # Errors
    /// Says why the file cannot be sent.
    pub(super) fn of(mut file: File, metadata: Metadata) -> Result<(Self, Metadata), (Reason, String)> {
        let unreadable = |error: io::Error| (Reason::Unreadable, error.to_string());
        if has_blocks(&metadata) || metadata.len() > MOST_GENERATED {
            return Ok((Self::File(file), metadata));
        }
        let mut bytes = Vec::new();
        file.by_ref().take(MOST_GENERATED + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let now = file.metadata().map_err(unreadable)?;
        if bytes.len() as u64 == metadata.len() || now.len() != metadata.len() {
            // The size was right, or somebody writes to the file.
            file.rewind().map_err(unreadable)?;
            return Ok((Self::File(file), now));
        }
        if bytes.len() as u64 > MOST_GENERATED {
            let detail = format!(
                "its file system announces {} bytes and it has more than {MOST_GENERATED}; send it with `tidewire pipe`",
                metadata.len()
            );
            return Err((Reason::Unreadable, detail));
        }
        Ok((Self::Generated(Cursor::new(bytes)), now))
    }

    /// The file, if what is read comes from it.
    pub(super) fn file(&self) -> Option<&File> {
        match self {
            Self::File(file) => Some(file),
            Self::Generated(_) => None,
        }
    }

    /// Number of bytes that it has.
    pub(super) fn size(&self, metadata: &Metadata) -> u64 {
        match self {
            Self::File(_) => metadata.len(),
            Self::Generated(bytes) => bytes.get_ref().len() as u64,
        }
    }
}

impl Read for Content {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(space),
            Self::Generated(bytes) => bytes.read(space),
        }
    }
}

impl Seek for Content {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::File(file) => file.seek(to),
            Self::Generated(bytes) => bytes.seek(to),
        }
    }
}

/// Reads once. An interrupted call (on some network file systems) is no error of the file.
pub(super) fn read_once(from: &mut impl Read, space: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(space) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Whether the file has bytes on a disk. A very small file, or one that is all hole, may have none.
#[cfg(unix)]
fn has_blocks(metadata: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::blocks(metadata) > 0
}

/// Only an empty file is not believed.
#[cfg(not(unix))]
fn has_blocks(metadata: &Metadata) -> bool {
    metadata.len() > 0
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of(path: &Path) -> Result<(Content, Metadata), (Reason, String)> {
        let file = File::open(path).unwrap();
        let metadata = file.metadata().unwrap();
        Content::of(file, metadata)
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn issue_40_generated_files_have_the_bytes_that_are_read() {
        for path in ["/proc/version", "/sys/class/net/lo/mtu"] {
            let read = std::fs::read(path).unwrap();
            let (content, announced) = of(Path::new(path)).unwrap();
            assert_ne!(announced.len(), read.len() as u64, "{path}");
            assert!(content.file().is_none());
            assert_eq!(content.size(&announced), read.len() as u64, "{path}");
        }
    }

    #[test]
    fn files_of_a_disk_are_read_while_they_are_sent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (written, length) in [(&b""[..], 0), (b"few bytes", 9), (b"", 1 << 20), (b"", MOST_GENERATED + 1)] {
            std::fs::write(&path, written).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
            let (mut content, announced) = of(&path).unwrap();
            assert!(content.file().is_some());
            assert_eq!((content.size(&announced), content.stream_position().unwrap()), (length, 0));
        }
    }
}
