//! `--metrics ADDR`: the figures of a job for Prometheus (docs/metrics.md).
//!
//! [`open`] takes the port before the job begins. The consumer counts events, and the server writes the
//! figures as OpenMetrics text when it is asked. Both share only the registry. Invariant: a client costs the
//! job nothing but the text of its answers; at most [`bounded::MOST_CLIENTS`] are connected.

mod bounded;
mod figures;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::Event;

use self::bounded::Bounded;
use self::figures::Figures;
use super::{Batch, Consumer, Job};

/// The media type that `encode` writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counts the events of a job.
#[derive(Debug)]
pub struct Metrics {
    figures: Figures,
}

/// What the server needs.
#[derive(Clone, Debug)]
struct Served {
    registry: Arc<Registry>,
    /// Nobody but this machine reaches the port.
    is_loopback: bool,
}

/// Opens the port and serves the figures of `job` there until the program ends. Call it within the runtime.
///
/// # Errors
/// [`Exit::Usage`] if the port is taken, or the address is not of this machine.
pub fn open(address: SocketAddr, job: &Job) -> Result<Metrics, Failure> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok::<_, std::io::Error>((listener.local_addr()?, tokio::net::TcpListener::from_std(listener)?))
    };
    let listening = listen().with_context(|| format!("cannot listen on --metrics {address}; choose another port"));
    let (local, listener) = listening.or_exit(Exit::Usage)?;
    let mut registry = Registry::with_prefix("tidewire");
    let figures = Figures::new(&mut registry, job.verb);
    let is_loopback = local.ip().is_loopback();
    if !is_loopback {
        job.console.warn(&format!("the figures of this job are open to everyone who reaches {local}"));
    }
    let url = format!("http://{local}/metrics");
    job.console.say(&format!("figures for Prometheus: {url}"));
    job.console.event(&Event::Metrics { url });
    let served = Served { registry: Arc::new(registry), is_loopback };
    let router = Router::new().route("/metrics", get(answer)).with_state(served);
    // It ends with the runtime.
    tokio::spawn(async move { axum::serve(Bounded::new(listener), router).await });
    Ok(Metrics { figures })
}

async fn answer(State(served): State<Served>, headers: HeaderMap) -> Response {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    if served.is_loopback && !host.is_some_and(is_own_name) {
        let why = "the figures are for this machine: ask for them by its address or as localhost\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let mut text = String::new();
    match encode(&mut text, &served.registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Whether a Host header names this machine by an address or as localhost. A page of another site reaches a
/// loopback port by a name of its own that leads here (DNS rebinding).
fn is_own_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

impl Consumer for Metrics {
    fn name(&self) -> &'static str {
        "the figures for Prometheus"
    }

    fn take(&mut self, batch: &Batch, missed: u64) -> Result<(), String> {
        self.figures.miss(missed);
        batch.events.iter().for_each(|observed| self.figures.take(observed));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_names_of_this_machine() {
        for own in ["localhost", "LOCALHOST:9464", "127.0.0.1", "127.0.0.1:9464", "[::1]:9464", "[::1]"] {
            assert!(is_own_name(own), "{own}");
        }
        for other in ["", "example.com", "example.com:9464", "127.0.0.1.example.com", "localhost.example.com:1", ":1"] {
            assert!(!is_own_name(other), "{other}");
        }
    }
}
