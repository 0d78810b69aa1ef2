//! `quinn` over loopback: with its defaults, and tuned to be as fast as possible.
//!
//! Tuned means: datagrams of 1,472 bytes at once, as Tidewire's (its search would find 1,452), windows of 8
//! MiB, CUBIC's initial window of 1 MB, and socket buffers of 4 MiB. It uses GSO and GRO by itself, and reads
//! chunks without copying them. Of the windows from 1.25 to 64 MiB, with its own rule for ACKs and with one
//! every 64 packets, these gave the highest rate: 11.4 Gbit/s where the others gave 8.1 to 11.2 (one
//! run each).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::CubicConfig;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, MtuDiscoveryConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};

use super::Pattern;
use super::loopback::{Tells, Told};
use super::tidewire::block_on;

/// Windows of the tuned set-up: several times what is in flight. What a larger one lets stand between the
/// ends leaves the caches.
const WINDOW: u32 = 8 << 20;
/// The size that Tidewire's sockets request.
const SOCKET_BUFFER: usize = 4 << 20;

/// Datagrams up to this size need no change of the defaults.
const DEFAULT_DATAGRAM: u16 = 1_472;

fn transport(tuned: bool, datagram: u16) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    if datagram > DEFAULT_DATAGRAM {
        // The search of the defaults ends at 1,452 bytes.
        let mut search = MtuDiscoveryConfig::default();
        search.upper_bound(datagram);
        transport.mtu_discovery_config(Some(search));
    }
    if tuned {
        let mut cubic = CubicConfig::default();
        cubic.initial_window(1 << 20);
        transport
            .initial_mtu(datagram)
            .mtu_discovery_config(None)
            .stream_receive_window(VarInt::from_u32(WINDOW))
            .receive_window(VarInt::from_u32(WINDOW))
            .send_window(WINDOW.into())
            .congestion_controller_factory(Arc::new(cubic));
    }
    Arc::new(transport)
}

fn endpoint(tuned: bool, datagram: u16, server: Option<ServerConfig>) -> io::Result<Endpoint> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
    if tuned {
        socket.set_recv_buffer_size(SOCKET_BUFFER)?;
        socket.set_send_buffer_size(SOCKET_BUFFER)?;
    }
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(datagram).map_err(io::Error::other)?;
    Endpoint::new(config, server, UdpSocket::from(socket), Arc::new(TokioRuntime))
}

/// As ours.
pub fn receive<const TUNED: bool>(bytes: u64, datagram: u16, tells: Tells<CertificateDer<'static>>) -> io::Result<()> {
    block_on(async {
        let own = rcgen::generate_simple_self_signed(vec!["localhost".into()]).map_err(io::Error::other)?;
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let certificate = CertificateDer::from(own.cert);
        let mut server =
            ServerConfig::with_single_cert(vec![certificate.clone()], key.into()).map_err(io::Error::other)?;
        server.transport_config(transport(TUNED, datagram));
        let endpoint = endpoint(TUNED, datagram, Some(server))?;
        let _ = tells.send((endpoint.local_addr()?, certificate));
        let connection = endpoint.accept().await.ok_or(io::ErrorKind::NotConnected)?.await?;
        let (mut back, mut stream) = connection.accept_bi().await?;
        let (pattern, mut place) = (Pattern::new(), 0);
        while let Some(chunk) = stream.read_chunk(1 << 16, true).await? {
            pattern.check(place, &chunk.bytes);
            place += chunk.bytes.len() as u64;
        }
        assert_eq!(place, bytes, "bytes came that were never sent, or did not come");
        back.write_all(&place.to_be_bytes()).await?;
        back.finish()?;
        connection.closed().await;
        Ok(())
    })
}

/// As ours.
pub fn send<const TUNED: bool>(bytes: u64, datagram: u16, told: Told<CertificateDer<'static>>) -> io::Result<Duration> {
    let (remote, certificate) = told.recv().map_err(io::Error::other)?;
    block_on(async {
        let mut roots = RootCertStore::empty();
        roots.add(certificate).map_err(io::Error::other)?;
        let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(io::Error::other)?;
        client.transport_config(transport(TUNED, datagram));
        let endpoint = endpoint(TUNED, datagram, None)?;
        let connecting = endpoint.connect_with(client, remote, "localhost").map_err(io::Error::other)?;
        let connection = connecting.await?;
        let (mut stream, mut back) = connection.open_bi().await?;
        let (pattern, start, mut place) = (Pattern::new(), Instant::now(), 0);
        while place < bytes {
            let piece = pattern.at(place, (bytes - place).min(Pattern::BLOCK as u64) as usize);
            stream.write_all(piece).await?;
            place += piece.len() as u64;
        }
        stream.finish()?;
        let mut answer = [0; 8];
        back.read_exact(&mut answer).await.map_err(io::Error::other)?;
        assert_eq!(u64::from_be_bytes(answer), bytes);
        let wall = start.elapsed();
        connection.close(0u32.into(), b"");
        endpoint.wait_idle().await;
        Ok(wall)
    })
}
