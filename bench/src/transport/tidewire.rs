//! Tidewire's own end over loopback, written as an application that uses only the public API.

use std::io;
use std::time::{Duration, Instant};

use tidewire::{CloseCode, Config, Connection, Endpoint, Secret, new_secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime;

use super::Pattern;
use super::loopback::{Tells, Told};

/// The measured settings: no option is given except the longest datagram.
fn config(datagram: u16) -> io::Result<Config> {
    Config::builder().max_datagram(datagram).build().map_err(io::Error::other)
}

/// A runtime that uses only this thread.
pub fn block_on<R>(task: impl Future<Output = io::Result<R>>) -> io::Result<R> {
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(task)
}

/// Accepts a connection and a stream, reads it to its end and answers with its number of bytes.
pub fn receive(bytes: u64, datagram: u16, tells: Tells<Secret>) -> io::Result<()> {
    block_on(async {
        let secret = new_secret()?;
        let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret.clone(), config(datagram)?)?;
        let _ = tells.send((endpoint.local_addr(), secret));
        let connection = endpoint.accept().await.map_err(io::Error::other)?;
        read_whole(connection, bytes).await
    })
}

/// Accepts a stream of a connection, reads it to its end and answers with its number of bytes.
pub async fn read_whole(connection: Connection, bytes: u64) -> io::Result<()> {
    let mut stream = connection.accept().await.map_err(io::Error::other)?;
    let (pattern, mut buffer, mut place) = (Pattern::new(), vec![0; 1 << 16], 0);
    while let read @ 1.. = stream.read(&mut buffer).await? {
        pattern.check(place, &buffer[..read]);
        place += read as u64;
    }
    assert_eq!(place, bytes, "bytes came that were never sent, or did not come");
    stream.write_u64(place).await?;
    stream.shutdown().await?;
    connection.closed().await;
    Ok(())
}

/// Connects, writes, and waits for the answer.
pub fn send(bytes: u64, datagram: u16, told: Told<Secret>) -> io::Result<Duration> {
    let (remote, secret) = told.recv().map_err(io::Error::other)?;
    block_on(async {
        let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret, config(datagram)?)?;
        let connection = endpoint.connect(remote).await.map_err(io::Error::other)?;
        let mut stream = connection.open().await?;
        let (pattern, start, mut place) = (Pattern::new(), Instant::now(), 0);
        while place < bytes {
            let piece = pattern.at(place, (bytes - place).min(Pattern::BLOCK as u64) as usize);
            stream.write_all(piece).await?;
            place += piece.len() as u64;
        }
        stream.shutdown().await?;
        assert_eq!(stream.read_u64().await?, bytes);
        let wall = start.elapsed();
        connection.close(CloseCode::Done, "");
        endpoint.close().await;
        Ok(wall)
    })
}
