//! Figures of connections for Prometheus (docs/metrics.md).
//!
//! [`Metrics::open`] takes the port before the job begins. The consumer counts events, and the server writes
//! the figures as OpenMetrics text when it is asked. Both share only the registry. Invariant: a client costs
//! the job nothing but the text of its answers; at most [`BOUNDS`] are connected.

mod figures;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use self::figures::Figures;
use crate::consumer::{Batch, Consumer, ConsumerError};
use crate::http::{Bounded, is_own_host, one_request};

/// The media type that `encode` writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Connections of collectors. Chosen: more than ask at the same moment.
const MOST: usize = 16;

/// Counts events, and serves the figures.
#[derive(Debug)]
pub struct Metrics {
    figures: Figures,
    local: SocketAddr,
}

/// What the server needs.
#[derive(Clone, Debug)]
struct Served {
    registry: Arc<Registry>,
    /// Nobody but this machine reaches the port.
    is_loopback: bool,
}

impl Metrics {
    /// Opens the port and serves the figures of `job` there until the runtime ends. Call it within the
    /// runtime.
    ///
    /// # Errors
    /// The port is taken, or the address is not of this machine.
    pub fn open(address: SocketAddr, job: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let (local, listener) = (listener.local_addr()?, tokio::net::TcpListener::from_std(listener)?);
        let mut registry = Registry::with_prefix("tidewire");
        let figures = Figures::new(&mut registry, job);
        let served = Served { registry: Arc::new(registry), is_loopback: local.ip().is_loopback() };
        let router = Router::new().route("/metrics", get(answer)).layer(map_response(one_request)).with_state(served);
        // It ends with the runtime.
        tokio::spawn(async move { axum::serve(Bounded::new(listener, MOST), router).await });
        Ok(Self { figures, local })
    }

    /// The address of the port. One that is no loopback is open to everyone who reaches it.
    pub fn address(&self) -> SocketAddr {
        self.local
    }

    /// Where the figures are.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.local)
    }
}

async fn answer(State(served): State<Served>, headers: HeaderMap) -> Response {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    if served.is_loopback && !host.is_some_and(is_own_host) {
        let why = "the figures are for this machine: ask for them by its address or as localhost\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let mut text = String::new();
    match encode(&mut text, &served.registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

impl Consumer for Metrics {
    fn name(&self) -> &'static str {
        "the figures for Prometheus"
    }

    fn take(&mut self, batch: &Batch, missed: u64) -> Result<(), ConsumerError> {
        self.figures.miss(missed);
        batch.events.iter().for_each(|observed| self.figures.take(observed));
        Ok(())
    }
}
