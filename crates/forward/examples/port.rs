//! Both ends of a forwarding in one process: a TCP connection to a port of the near end reaches a target of
//! the far end, over Tidewire on the loopback device.
//!
//! Run it with `cargo run --release -p tidewire-forward --example port [PORT TARGET]`, as in `8080
//! web.example:80`, which forwards until Ctrl-C. Without arguments it starts a target itself, sends one line
//! through, and ends.

use std::error::Error;
use std::sync::{Arc, mpsc};

use tidewire::{Config, Endpoint, Secret, new_secret};
use tidewire_forward::{Allowed, Far, MAX_STREAMS, Near, News, Ports, Report, Rule, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (port, target, is_test) = match (arguments.next(), arguments.next()) {
        (Some(port), Some(target)) => (port, target.parse()?, false),
        _ => ("0".to_owned(), echo().await?, true),
    };
    let secret = new_secret()?;
    let config = Config::builder().max_streams(MAX_STREAMS).build()?;

    // The far end allows this target and nothing else.
    let far = Endpoint::bind("127.0.0.1:0".parse()?, secret.clone(), config.clone())?;
    let (address, end) = (far.local_addr(), Arc::new(Far::new(Allowed::new([Rule::from(&target)]))));
    tokio::spawn(async move {
        let report: Report = Arc::new(|news| println!("far:  {news:?}"));
        while let Ok(connection) = far.accept().await {
            tidewire_forward::serve(&connection, &end, &report).await;
        }
    });

    let (told, listening) = mpsc::channel();
    let report: Report = Arc::new(move |news| {
        println!("near: {news:?}");
        if let News::Listening { port, .. } = news {
            let _ = told.send(*port);
        }
    });
    let ports = Ports { local: vec![format!("{port}:{target}").parse()?], ..Ports::default() };
    let near = Near::bind(&ports, report)?;
    if !is_test {
        return keep(near, address, &secret, &config).await;
    }
    let keeping =
        tokio::spawn(async move { keep(near, address, &secret, &config).await.map_err(|error| error.to_string()) });
    let port = tokio::task::spawn_blocking(move || listening.recv()).await??;
    let mut tcp = TcpStream::connect(port).await?;
    tcp.write_all(b"across a path that loses packets").await?;
    tcp.shutdown().await?;
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await?;
    println!("{answer}");
    keeping.abort();
    Ok(())
}

/// Connects, forwards until the connection is lost, and connects again. A program would pause between
/// attempts.
async fn keep(
    mut near: Near,
    address: std::net::SocketAddr,
    secret: &Secret,
    config: &Config,
) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::bind("127.0.0.1:0".parse()?, secret.clone(), config.clone())?;
    let mut connection = endpoint.connect(address).await?;
    near.begin(&connection).await?;
    loop {
        println!("near: {}", near.run(&connection).await);
        connection = endpoint.connect(address).await?;
    }
}

/// A target that sends back what it gets.
async fn echo() -> Result<Target, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let target = listener.local_addr()?.to_string().parse()?;
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let (mut reader, mut writer) = tcp.split();
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        }
    });
    Ok(target)
}
