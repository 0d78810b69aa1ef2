//! Messages between the two sides of a bench besides the records: JSON lines on the first stream
//! (`docs/bench.md`).

use std::io;

use serde::{Deserialize, Serialize};
use tidewire::Stream;
use tidewire_command::report::Summary;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};

use super::{Interval, Order};

/// First line of each direction: a name and the version.
const HEAD: &str = "TWBENCH 1\n";
/// Bytes that are read of a line at most, so that a peer cannot fill the memory.
const MAX_LINE: u64 = 64 << 10;

/// Sent as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum Message {
    /// The client's first message: what to measure.
    Order(Order),
    /// The server accepts the order, and names its clock.
    Ready {
        /// See [`super::clock_name`].
        clock: String,
    },
    /// The server refuses the order.
    Refused {
        /// What is wrong with the order.
        why: String,
    },
    /// Sent by the side where records arrive.
    Interval(Interval),
    /// All records have arrived at the client.
    Arrived,
    /// The server's last message: its figures.
    Outcome(Box<Summary>),
}

/// Both directions of the control stream.
pub struct Control {
    pub reader: Reader,
    pub writer: Writer,
}

pub struct Reader(BufReader<ReadHalf<Stream>>);

pub struct Writer(WriteHalf<Stream>);

impl Control {
    /// Sends our first line. The peer's is read before its first message.
    pub async fn begin(stream: Stream) -> io::Result<Self> {
        let (reader, mut writer) = tokio::io::split(stream);
        writer.write_all(HEAD.as_bytes()).await?;
        Ok(Self { reader: Reader(BufReader::new(reader)), writer: Writer(writer) })
    }

    /// Reads the peer's first line.
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

    pub async fn next(&mut self) -> io::Result<Message> {
        let line = self.line().await?;
        serde_json::from_str(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl Writer {
    pub async fn say(&mut self, message: &Message) -> io::Result<()> {
        let mut line = serde_json::to_string(message).map_err(io::Error::other)?;
        line.push('\n');
        self.0.write_all(line.as_bytes()).await
    }
}
