//! Two ends of a tunnel on two machines, or in two network namespaces of one. It needs root.
//!
//! `pair listen ADDRESS:PORT OWN/LENGTH` waits, and prints the secret; `pair connect ADDRESS:PORT SECRET
//! OWN/LENGTH` is the other end. After `cargo build --release -p tidewire-tunnel --example pair`:
//!
//! ```sh
//! far#  target/release/examples/pair listen 0.0.0.0:7700 10.77.0.1/24
//! near# target/release/examples/pair connect 192.0.2.7:7700 tws1... 10.77.0.2/24
//! near# ping 10.77.0.1
//! ```

#[cfg(target_os = "linux")]
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::run().await
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("a tunnel needs Linux");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::error::Error;
    use std::net::SocketAddr;

    use tidewire::{Config, Endpoint, Secret, new_secret};
    use tidewire_tunnel::{DEFAULT_MTU, Device, Hub, Outer, Routes, admit, configure, greet, only_peer, parse_address};

    /// Does what the command line says, until the device or the socket fails.
    pub async fn run() -> Result<(), Box<dyn Error>> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["listen", address, own] => listen(address.parse()?, own).await,
            ["connect", address, secret, own] => connect(address.parse()?, secret.parse()?, own).await,
            _ => Err("usage: pair listen ADDRESS:PORT OWN/LENGTH | pair connect ADDRESS:PORT SECRET OWN/LENGTH".into()),
        }
    }

    async fn listen(address: SocketAddr, own: &str) -> Result<(), Box<dyn Error>> {
        let secret = new_secret()?;
        let endpoint = Endpoint::bind(address, secret.clone(), configure(&Config::default())?)?;
        let (hub, routes) = up(own, Outer::From(address.port())).await?;
        println!("{}", secret.reveal().as_str());
        let serve = async {
            loop {
                let connection = endpoint.accept().await?;
                match admit(&connection, &hub).await {
                    Ok((peer, mtu)) => println!("lost: {}", hub.carry(&peer, &connection, mtu).await),
                    Err(error) => println!("refused: {error}"),
                }
            }
        };
        tokio::select! {
            ended = serve => ended,
            ended = hub.read_device() => Ok(ended?),
            error = routes.keep(|restored| println!("restored: {:?}", restored.parts)) => Err(error.into()),
        }
    }

    async fn connect(address: SocketAddr, secret: Secret, own: &str) -> Result<(), Box<dyn Error>> {
        let endpoint = Endpoint::bind("0.0.0.0:0".parse()?, secret, configure(&Config::default())?)?;
        let (hub, routes) = up(own, Outer::To(address)).await?;
        let listener = hub.peers().with_key(None).map(|listed| listed.peer.clone()).ok_or("no peer")?;
        let dial = async {
            // A program would pause between attempts.
            loop {
                let connection = endpoint.connect(address).await?;
                let mtu = greet(&connection, hub.mtu()).await?;
                println!("connected");
                println!("lost: {}", hub.carry(&listener, &connection, mtu).await);
            }
        };
        tokio::select! {
            ended = dial => ended,
            ended = hub.read_device() => Ok(ended?),
            error = routes.keep(|restored| println!("restored: {:?}", restored.parts)) => Err(error.into()),
        }
    }

    /// Makes the device. Its routes lead the network of `own` into it, and `outer` past it.
    async fn up(own: &str, outer: Outer) -> Result<(Hub, Routes), Box<dyn Error>> {
        let own = [parse_address(own)?];
        let device = Device::create("pair0", &own, DEFAULT_MTU).await?;
        let routes = Routes::open(&device, vec![outer], false).await?;
        let hub = Hub::new(device, own.to_vec(), DEFAULT_MTU, vec![only_peer(&own, &[])])?;
        routes.follow(hub.peers().networks()).await?;
        Ok((hub, routes))
    }
}
