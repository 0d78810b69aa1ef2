//! A server in a process of its own, which a test can kill or start with fewer rights.
//!
//! The process is the test's own binary: it runs the same test, which finds a variable set and serves.

use std::io::Read as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use tidewire::{Config, Connection, Endpoint, XdpConfig};
use tokio::io::AsyncWriteExt as _;

use crate::namespaces::{Host, INTERFACE};
use crate::pair::{secret, within};

/// The address of the server, in its process.
const SERVE: &str = "TIDEWIRE_TEST_SERVE";

/// The process; killed when it is dropped.
pub struct Server {
    pub process: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Starts the test `name` again at a host, by the command `wrapper`.
    pub fn start(host: &Host, name: &str, wrapper: &[String]) -> Self {
        let address = SocketAddr::new(host.v4[0], 7_700);
        let itself = std::env::current_exe().expect("a path");
        let words = wrapper.iter().map(std::ffi::OsStr::new);
        let mut words = words.chain([itself.as_os_str(), "--exact".as_ref(), name.as_ref(), "--nocapture".as_ref()]);
        let mut command = Command::new(words.next().expect("at least the binary"));
        command
            .args(words)
            .env(SERVE, address.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let process = host.enter(|| command.spawn()).expect("starts");
        Self { process, address }
    }

    /// Connects to the process. If it does not answer, the error has what it said.
    pub async fn connected(&mut self, client: &Endpoint) -> Connection {
        match within(client.connect(self.address)).await {
            Ok(connection) => connection,
            Err(error) => {
                self.process.kill().expect("killed");
                panic!("{error}, and the server said: {}", self.said());
            }
        }
    }

    /// What a process says that ends by itself.
    pub fn said(&mut self) -> String {
        let mut said = String::new();
        let mut stderr = self.process.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut said).expect("text");
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves until it is killed, in a process that was started for it. Streams are echoed.
pub async fn serve_if_told() {
    let Ok(address) = std::env::var(SERVE) else { return };
    let (address, one) = (address.parse().expect("an address"), std::num::NonZeroUsize::MIN);
    let endpoint = Endpoint::bind_xdp(address, secret(), Config::default(), one, &XdpConfig::new(INTERFACE));
    let endpoint = endpoint.unwrap_or_else(|error| panic!("{error}"));
    while let Ok(connection) = endpoint.accept().await {
        tokio::spawn(async move {
            while let Ok(stream) = connection.accept().await {
                let (mut reader, mut writer) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            }
        });
    }
}
