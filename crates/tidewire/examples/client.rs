//! A client of the example `server`: sends one line over a stream and prints the answer.
//!
//! Run it with `cargo run --release -p tidewire --example client ADDRESS SECRET [TEXT]`.

use std::error::Error;
use std::net::SocketAddr;

use tidewire::{CloseCode, Config, Endpoint, Secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(secret)) = (arguments.next(), arguments.next()) else {
        return Err("usage: client ADDRESS SECRET [TEXT]; the example `server` prints the first two".into());
    };
    let (address, secret): (SocketAddr, Secret) = (address.parse()?, secret.parse()?);
    let text = arguments.next().unwrap_or_else(|| "across a path that loses packets".into());

    let endpoint = Endpoint::bind("127.0.0.1:0".parse()?, secret, Config::default())?;
    let connection = endpoint.connect(address).await?;
    let mut stream = connection.open().await?;
    stream.write_all(text.as_bytes()).await?;
    // The server reads to the end, so the end has to be sent before the answer can come.
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    println!("{answer}");
    // This side received last, so nothing of its peer's is lost when it closes.
    connection.close(CloseCode::Done, "thank you");
    endpoint.close().await;
    Ok(())
}
