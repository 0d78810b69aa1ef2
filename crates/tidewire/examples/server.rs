//! A server that answers every stream with the same bytes in upper case.
//!
//! Run it with `cargo run --release -p tidewire --example server [ADDRESS]`. It prints the arguments for the
//! example `client`, and ends after one connection.

use std::error::Error;
use std::net::SocketAddr;

use tidewire::{Config, Connection, Endpoint, Stream, new_secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address: SocketAddr = std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:0").parse()?;
    let secret = new_secret()?;
    let endpoint = Endpoint::bind(address, secret.clone(), Config::default())?;
    println!("{} {}", endpoint.local_addr(), &*secret.reveal());
    let connection = endpoint.accept().await?;
    serve(&connection).await;
    println!("{} left: {}", connection.remote(), connection.closed().await);
    endpoint.close().await;
    Ok(())
}

/// Takes streams until the connection ends.
async fn serve(connection: &Connection) {
    while let Ok(stream) = connection.accept().await {
        // A task for each stream: a slow one does not hold up the others.
        tokio::spawn(async move {
            if let Err(error) = answer(stream).await {
                eprintln!("a stream failed: {error}");
            }
        });
    }
}

async fn answer(mut stream: Stream) -> std::io::Result<()> {
    let mut question = Vec::new();
    stream.read_to_end(&mut question).await?;
    question.make_ascii_uppercase();
    stream.write_all(&question).await?;
    stream.shutdown().await
}
