//! One TCP connection and its stream: copies bytes both ways, each until its own end.
//!
//! The end that accepted the TCP connection calls [`Copier::open`], or [`Copier::copy`] if it has the answer;
//! the end that connected to the target calls [`Copier::answer`]. Invariant: unless both directions ended in
//! order, the stream is given up and the TCP connection is reset, also when the task is dropped.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tidewire::{ReadHalf, Stream, WriteHalf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, tcp};

use crate::header::{Answer, Code, Request, read_answer, write_answer, write_request};
use crate::sockets::ReceiveBuffer;
use crate::{abandon, sockets};

/// Counts of the bytes that one TCP connection has carried so far.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// Bytes written toward the target.
    pub(crate) there: AtomicU64,
    /// Bytes written back from the target.
    pub(crate) back: AtomicU64,
}

/// A TCP connection and the stream that carries it.
pub(crate) struct Copier {
    tcp: TcpStream,
    reader: ReadHalf,
    writer: WriteHalf,
    /// Whether both directions have ended in order.
    is_whole: bool,
}

impl Copier {
    pub(crate) fn new(tcp: TcpStream, stream: Stream) -> Self {
        sockets::tune(&tcp);
        let (reader, writer) = stream.split();
        Self { tcp, reader, writer, is_whole: false }
    }

    /// Sends the request, and copies without waiting for the answer: the first bytes of the application
    /// follow the request, and wait at the other end until the target has accepted. `on_share` is told how
    /// much the stream takes.
    ///
    /// # Errors
    /// The answer, if the other end refuses; the error of stream or TCP connection.
    pub(crate) async fn open(
        mut self,
        request: &Request,
        carried: &Copied,
        on_share: impl Fn(usize),
    ) -> io::Result<()> {
        let Self { tcp, reader, writer, is_whole } = &mut self;
        let (mut tcp_reader, mut tcp_writer) = tcp.split();
        let there = async {
            write_request(writer, request).await?;
            tcp_to_stream(&mut tcp_reader, writer, &carried.there, on_share).await
        };
        let back = async {
            let answer = read_answer(reader).await?;
            if !answer.is_ready() {
                return Err(io::Error::other(answer));
            }
            stream_to_tcp(reader, &mut tcp_writer, &carried.back).await
        };
        tokio::try_join!(there, back)?;
        *is_whole = true;
        Ok(())
    }

    /// Copies after the answer was read.
    ///
    /// # Errors
    /// The error of stream or TCP connection.
    pub(crate) async fn copy(mut self, carried: &Copied, on_share: impl Fn(usize)) -> io::Result<()> {
        self.both_ways(&carried.there, &carried.back, on_share).await
    }

    /// Answers that the target has accepted, and copies.
    ///
    /// # Errors
    /// The error of stream or TCP connection.
    pub(crate) async fn answer(mut self, carried: &Copied) -> io::Result<()> {
        write_answer(&mut self.writer, &Answer::new(Code::Ready, "")).await?;
        self.both_ways(&carried.back, &carried.there, |_| ()).await
    }

    async fn both_ways(
        &mut self,
        to_stream: &AtomicU64,
        to_tcp: &AtomicU64,
        on_share: impl Fn(usize),
    ) -> io::Result<()> {
        let (mut tcp_reader, mut tcp_writer) = self.tcp.split();
        tokio::try_join!(
            tcp_to_stream(&mut tcp_reader, &mut self.writer, to_stream, on_share),
            stream_to_tcp(&mut self.reader, &mut tcp_writer, to_tcp),
        )?;
        self.is_whole = true;
        Ok(())
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        if !self.is_whole {
            abandon(&mut self.reader, &mut self.writer);
            // A reset tells the application that the bytes it received may be incomplete.
            let _ = self.tcp.set_zero_linger();
        }
    }
}

/// Copies bytes of a stream into its TCP connection until their end, then ends that direction. `written`
/// counts them.
async fn stream_to_tcp(from: &mut ReadHalf, to: &mut tcp::WriteHalf<'_>, written: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        written.fetch_add(length as u64, Ordering::Relaxed);
    }
}

/// Copies bytes of a TCP connection into its stream until their end, then ends that direction. `written`
/// counts them. It reads only what the stream takes at once, so that the rest waits in the sockets and blocks
/// the application.
async fn tcp_to_stream(
    from: &mut tcp::ReadHalf<'_>,
    to: &mut WriteHalf,
    written: &AtomicU64,
    on_share: impl Fn(usize),
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut receive_buffer = ReceiveBuffer::of(from.as_ref());
    loop {
        let share = to.share();
        on_share(share);
        receive_buffer.follow(from.as_ref(), share);
        let length = from.read(&mut buffer[..share.clamp(1, BUFFER)]).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        written.fetch_add(length as u64, Ordering::Relaxed);
    }
}

/// Size of a read from either side: the bytes that leave in 1.3 ms at 100 Mbit/s.
const BUFFER: usize = 16 << 10;
