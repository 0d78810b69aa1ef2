//! [`Listener`] and [`connect`]: the sockets of Python programs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use tidewire::link::{Link, Peer};
use tidewire::{ConnectError, Credentials, Endpoint, names};

use super::bell::Bell;
use super::connection::Connection;
use super::fault;
use super::operation::{Answer, Operation};
use super::runtime::{Owned, runtime};
use super::settings::{Keys, Texts, config};
use crate::error::{CONNECT, SETTING, TRANSPORT};

/// A UDP socket that accepts connections.
#[pyclass(frozen, module = "tidewire._native")]
pub struct Listener {
    endpoint: Owned<Arc<Endpoint>>,
    address: SocketAddr,
    peer: Peer,
}

#[pymethods]
impl Listener {
    #[new]
    fn new(
        py: Python<'_>,
        address: &str,
        secret: Option<String>,
        private_key: Option<String>,
        authorized_keys: Vec<String>,
        settings: Texts,
    ) -> PyResult<Self> {
        let address = parse_address(py, address)?;
        let (credentials, peer) = Keys { secret, private: private_key, authorized: authorized_keys }.to_listen(py)?;
        let config = config(py, &settings, None)?;
        let _inside = runtime(py)?.enter();
        let endpoint = Endpoint::bind(address, credentials, config)
            .map_err(|error| TRANSPORT.raise(py, format!("cannot listen at {address}: {error}")))?;
        Ok(Self { address: endpoint.local_addr(), endpoint: Owned::new(Arc::new(endpoint)), peer })
    }

    #[getter]
    fn address(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    fn link(&self, host: Option<String>) -> String {
        let unspecified = if self.address.is_ipv4() { "127.0.0.1" } else { "::1" };
        let own =
            || if self.address.ip().is_unspecified() { unspecified.into() } else { self.address.ip().to_string() };
        let host = host.unwrap_or_else(own);
        Link { host, port: self.address.port(), query: Vec::new(), peer: self.peer.clone() }.reveal()
    }

    fn accept(&self, py: Python<'_>, bell: &Bell, token: u64) -> PyResult<Operation> {
        let endpoint = self.endpoint(py)?;
        Ok(Operation::new(bell, token, async move {
            let accepted = endpoint.accept().await;
            let answer: Answer = match accepted {
                Ok(connection) => Box::new(move |py| Ok(Py::new(py, Connection::new(connection, None))?.into_any())),
                Err(ended) => Box::new(move |py| Err(crate::error::CLOSED.raise(py, ended))),
            };
            answer
        }))
    }

    fn close(&self, py: Python<'_>, bell: &Bell, token: u64) -> PyResult<Operation> {
        Ok(close(self.endpoint(py)?, bell, token))
    }
}

impl Listener {
    fn endpoint(&self, py: Python<'_>) -> PyResult<Arc<Endpoint>> {
        runtime(py)?;
        self.endpoint.clone().ok_or_else(|| fault::closed(py, "listener"))
    }
}

/// Closes an endpoint and waits until its peers were told.
pub fn close(endpoint: Arc<Endpoint>, bell: &Bell, token: u64) -> Operation {
    Operation::new(bell, token, async move {
        endpoint.close().await;
        let answer: Answer = Box::new(|py| Ok(py.None()));
        answer
    })
}

/// Connects to the listener of a link.
#[pyfunction]
pub fn connect(
    py: Python<'_>,
    link: &str,
    address: Option<&str>,
    private_key: Option<String>,
    settings: Texts,
    bell: &Bell,
    token: u64,
) -> PyResult<Operation> {
    runtime(py)?;
    let link: Link = link.parse().map_err(|error| SETTING.raise(py, error))?;
    let config = config(py, &settings, Some(&link))?;
    let credentials = Keys { secret: None, private: private_key, authorized: Vec::new() }.to_open(py, &link)?;
    let from = address.map(|address| parse_address(py, address)).transpose()?;
    let attempt = Attempt { link, credentials, config, from };
    Ok(Operation::new(bell, token, async move {
        let answer: Answer = match attempt.run().await {
            Ok((endpoint, connection)) => {
                Box::new(move |py| Ok(Py::new(py, Connection::new(connection, Some(Arc::new(endpoint))))?.into_any()))
            }
            Err(Failed::Text(text)) => Box::new(move |py| Err(CONNECT.raise(py, text))),
            Err(Failed::Connect(error)) => Box::new(move |py| Err(fault::connect(py, &error))),
        };
        answer
    }))
}

/// What an attempt to connect needs.
struct Attempt {
    link: Link,
    credentials: Credentials,
    config: tidewire::Config,
    from: Option<SocketAddr>,
}

enum Failed {
    Text(String),
    Connect(ConnectError),
}

impl Attempt {
    /// Connects to the first address of the host that answers (RFC 8305).
    async fn run(self) -> Result<(Endpoint, tidewire::Connection), Failed> {
        let host = &self.link.host;
        let unknown = |error: &dyn std::fmt::Display| {
            Failed::Text(format!("no address of `{host}`: {error}; check the host in the link"))
        };
        let addresses = self.link.resolve().await.map_err(|error| unknown(&error))?;
        let none = || unknown(&"the name has none");
        match names::race(addresses, self.stagger(), |address| self.try_address(address)).await {
            Ok(connected) => connected.into_iter().next().ok_or_else(none),
            Err(failed) => Err(failed.into_iter().next_back().unwrap_or_else(none)),
        }
    }

    /// When the next address is tried beside the one before it. A fixed port has room for one attempt at a
    /// time.
    fn stagger(&self) -> Duration {
        if self.from.is_some_and(|from| from.port() != 0) { Duration::MAX } else { names::STAGGER }
    }

    async fn try_address(&self, address: SocketAddr) -> Result<(Endpoint, tidewire::Connection), Failed> {
        let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let from = self.from.unwrap_or(SocketAddr::new(any, 0));
        let endpoint = Endpoint::bind(from, self.credentials.clone(), self.config.clone())
            .map_err(|error| Failed::Text(format!("cannot bind {from}: {error}")))?;
        let connection = match self.link.peer.key() {
            Some(key) => endpoint.connect_to(address, key).await,
            None => endpoint.connect(address).await,
        };
        Ok((endpoint, connection.map_err(Failed::Connect)?))
    }
}

fn parse_address(py: Python<'_>, text: &str) -> PyResult<SocketAddr> {
    text.parse().map_err(|_| SETTING.raise(py, format!("{text:?} is not an address with a port, like 0.0.0.0:7700")))
}
