//! The endpoint under test: that of the library, with its socket and its driver in a thread of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidewire::{Config, Connection, Endpoint, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::host::secret;

/// The first byte of a stream says what the application does with the stream: it counts its bytes, sends them
/// back, or sends bytes without an end. It forgets the bytes of any other stream.
pub const BULK: u8 = b'b';
pub const ECHO: u8 = b'e';
pub const SOURCE: u8 = b's';

/// The endpoint under test and its application.
pub struct Server {
    pub address: SocketAddr,
    /// Where the system says how long the thread ran.
    schedstat: String,
    app: Arc<App>,
}

#[derive(Default)]
struct App {
    /// Bytes of streams that are counted.
    read: AtomicU64,
    /// Whether the connection of a [`SOURCE`] follows a POLICY.
    follows: AtomicBool,
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

impl Server {
    pub fn start(config: Config) -> Self {
        let (tell, told) = mpsc::channel();
        let app = Arc::new(App::default());
        let served = Arc::clone(&app);
        thread::spawn(move || {
            runtime().block_on(async move {
                let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into(), secret(), config).expect("binds");
                let thread = std::fs::read_link("/proc/thread-self").expect("Linux");
                let schedstat = format!("/proc/{}/schedstat", thread.display());
                tell.send((endpoint.local_addr(), schedstat)).expect("awaited");
                let mut kept = Vec::new();
                while let Ok(connection) = endpoint.accept().await {
                    let (connection, app) = (Arc::new(connection), Arc::clone(&served));
                    kept.push(Arc::clone(&connection));
                    tokio::spawn(async move {
                        while let Ok(stream) = connection.accept().await {
                            tokio::spawn(serve(Arc::clone(&app), Arc::clone(&connection), stream));
                        }
                    });
                }
            });
        });
        let (address, schedstat) = told.recv().expect("started");
        Self { address, schedstat, app }
    }

    /// How long its thread ran.
    pub fn ran(&self) -> Duration {
        let line = std::fs::read_to_string(&self.schedstat).expect("the thread runs");
        Duration::from_nanos(line.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("nanoseconds"))
    }

    /// Bytes of the honest connection that the application read.
    pub fn read(&self) -> u64 {
        self.app.read.load(Ordering::Relaxed)
    }

    /// Whether it sends to a peer as that peer's POLICY says.
    pub fn follows(&self) -> bool {
        self.app.follows.load(Ordering::Relaxed)
    }
}

async fn serve(app: Arc<App>, connection: Arc<Connection>, stream: Stream) {
    let (mut reader, mut writer) = stream.split();
    let (mut buffer, mut kind) = (vec![0; 1 << 16], None);
    while let Ok(n @ 1..) = reader.read(&mut buffer).await {
        match *kind.get_or_insert(buffer[0]) {
            BULK => _ = app.read.fetch_add(n as u64, Ordering::Relaxed),
            ECHO if writer.write_all(&buffer[..n]).await.is_err() => return,
            SOURCE => {
                // The POLICY came before, in the same packet.
                app.follows.fetch_or(connection.stats().policy_followed, Ordering::Relaxed);
                while writer.write_all(&buffer).await.is_ok() {}
            }
            _ => {}
        }
    }
}
