//! A TCP connection over one QUIC stream: quinn as `tidewire-lab run --peer quinn-bbr` meets it.
//!
//! ```sh
//! tidewire-quinn far 10.99.0.2:4200 127.0.0.1:4001 bbr           # prints its certificate, alone on a line
//! tidewire-quinn near 127.0.0.1:4000 10.99.0.2:4200 bbr CERTIFICATE
//! ```
//! The near end accepts TCP connections and opens a QUIC connection for each; the far end forwards its stream
//! to the target. Everything is quinn's default except the congestion controller, so that the measurement
//! shows what quinn's users get. Invariant: bytes are forwarded as they arrive; nothing is held back to fill
//! a packet.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, Connection, Endpoint, Incoming, ServerConfig, TransportConfig};
use tokio::io::{copy_bidirectional, join};
use tokio::net::{TcpListener, TcpStream};

type Ended<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The name in the certificate.
const NAME: &str = "localhost";
const HELP: &str = "tidewire-quinn far LISTEN TARGET cubic|bbr\ntidewire-quinn near LISTEN FAR cubic|bbr CERTIFICATE";

fn main() -> Ended {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // One thread, as one connection of quinn uses.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments[..] {
            ["far", listen, target, controller] => far(listen.parse()?, target.parse()?, transport(controller)?).await,
            ["near", listen, far, controller, certificate] => {
                near(listen.parse()?, far.parse()?, transport(controller)?, certificate).await
            }
            _ => Err(HELP.into()),
        }
    })
}

fn transport(controller: &str) -> Ended<Arc<TransportConfig>> {
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match controller {
        "cubic" => Arc::new(CubicConfig::default()),
        "bbr" => Arc::new(BbrConfig::default()),
        other => return Err(format!("no controller `{other}`\n{HELP}").into()),
    };
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(factory);
    Ok(Arc::new(transport))
}

/// Takes QUIC connections, for ever.
async fn far(listen: SocketAddr, target: SocketAddr, transport: Arc<TransportConfig>) -> Ended {
    let own = rcgen::generate_simple_self_signed(vec![NAME.into()])?;
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let certificate = CertificateDer::from(own.cert);
    let mut server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
    server.transport_config(transport);
    let endpoint = Endpoint::server(server, listen)?;
    println!("{}", certificate.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move { tell(take(incoming, target).await) });
    }
    Ok(())
}

async fn take(incoming: Incoming, target: SocketAddr) -> Ended {
    let connection = incoming.await?;
    let (send, receive) = connection.accept_bi().await?;
    let mut tcp = TcpStream::connect(target).await?;
    tcp.set_nodelay(true)?;
    copy_bidirectional(&mut tcp, &mut join(receive, send)).await?;
    // The near end closes last: closing here first could cut it off.
    connection.closed().await;
    Ok(())
}

/// Takes TCP connections, for ever.
async fn near(listen: SocketAddr, far: SocketAddr, transport: Arc<TransportConfig>, certificate: &str) -> Ended {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(bytes(certificate).ok_or("the certificate is cut short")?))?;
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots))?;
    client.transport_config(transport);
    let endpoint = Endpoint::client(SocketAddr::from(([0, 0, 0, 0], 0)))?;
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (tcp, _) = listener.accept().await?;
        let connecting = endpoint.connect_with(client.clone(), far, NAME)?;
        tokio::spawn(async move {
            let carried = async { carry(tcp, connecting.await?).await };
            tell(carried.await);
        });
    }
}

async fn carry(mut tcp: TcpStream, connection: Connection) -> Ended {
    tcp.set_nodelay(true)?;
    let (send, receive) = connection.open_bi().await?;
    copy_bidirectional(&mut tcp, &mut join(receive, send)).await?;
    connection.close(0u32.into(), b"");
    Ok(())
}

fn tell(ended: Ended) {
    if let Err(problem) = ended {
        eprintln!("{problem}");
    }
}

/// The bytes of hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes_and_anything_else_is_none() {
        assert_eq!(bytes("00ff7a"), Some(vec![0, 0xff, 0x7a]));
        assert!(["0", "0g", "0x1", "é"].iter().all(|wrong| bytes(wrong).is_none()));
        assert!(transport("reno").is_err() && transport("bbr").is_ok());
    }
}
