//! What the two sides of a bench say to each other beside the records: JSON lines on the first stream
//! (`docs/bench.md`).

use std::io;

use serde::{Deserialize, Serialize};
use tidewire::Stream;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};

use super::{Interval, Order};
use crate::report::Summary;

/// First line of each direction: a name and the version.
const HEAD: &str = "TWBENCH 1\n";
/// Longest line.
const MAX_LINE: u64 = 64 << 10;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum Message {
    /// The client's first: what is to be measured.
    Order(Order),
    /// The server agrees; its clock by name.
    Ready {
        /// See [`super::clock_name`].
        clock: String,
    },
    /// The server does not.
    Refused {
        /// What is wrong with the order.
        why: String,
    },
    /// From where records arrive.
    Interval(Interval),
    /// All records have arrived at the client.
    Arrived,
    /// The server's last: how the run went, as counted there.
    Outcome(Box<Summary>),
}

/// Both directions of the control stream.
pub struct Control {
    pub reader: Reader,
    pub writer: Writer,
}

/// Reads lines.
pub struct Reader(BufReader<ReadHalf<Stream>>);

/// Writes lines.
pub struct Writer(WriteHalf<Stream>);

impl Control {
    /// Says who we are; the peer's word is read with its first line.
    pub async fn begin(stream: Stream) -> io::Result<Self> {
        let (reader, mut writer) = tokio::io::split(stream);
        writer.write_all(HEAD.as_bytes()).await?;
        Ok(Self { reader: Reader(BufReader::new(reader)), writer: Writer(writer) })
    }

    /// Reads who the peer is.
    pub async fn meet(&mut self) -> io::Result<()> {
        let head = self.reader.line().await?;
        if head != HEAD {
            let other = "the other side is not `tidewire bench -s` of this version: start that there";
            return Err(io::Error::new(io::ErrorKind::InvalidData, other));
        }
        Ok(())
    }
}

impl Reader {
    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.0).take(MAX_LINE).read_line(&mut line).await?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line)
    }

    /// The next line.
    pub async fn next(&mut self) -> io::Result<Message> {
        let line = self.line().await?;
        serde_json::from_str(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl Writer {
    /// Writes a line.
    pub async fn say(&mut self, message: &Message) -> io::Result<()> {
        let mut line = serde_json::to_string(message).map_err(io::Error::other)?;
        line.push('\n');
        self.0.write_all(line.as_bytes()).await
    }
}
