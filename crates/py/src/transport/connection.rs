//! [`Connection`]: one session with a peer, its streams and messages.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tidewire::{CloseCode, ConnectionLost, Delivery, Endpoint, LaneConfig, LaneId, Message, MessageError, Plan};

use super::bell::Bell;
use super::operation::{Answer, Operation};
use super::runtime::{Owned, runtime};
use super::stream::Stream;
use super::{endpoint, fault, stats};
use crate::buffer::Access;
use crate::error::{BLOCKED, TRANSPORT};
use crate::symbols::flat;

/// One session with a peer.
#[pyclass(frozen, module = "tidewire._native")]
pub struct Connection {
    connection: Owned<tidewire::Connection>,
    /// The socket of a connection that this side opened.
    endpoint: Owned<Arc<Endpoint>>,
    /// The plan that was explained last.
    explained: Mutex<Option<Plan>>,
}

#[pymethods]
impl Connection {
    fn open(&self, py: Python<'_>, bell: &Bell, token: u64) -> PyResult<Operation> {
        let connection = self.get(py)?;
        Ok(Operation::new(bell, token, async move { stream(connection.open().await) }))
    }

    fn accept(&self, py: Python<'_>, bell: &Bell, token: u64) -> PyResult<Operation> {
        let connection = self.get(py)?;
        Ok(Operation::new(bell, token, async move { stream(connection.accept().await) }))
    }

    fn open_lane(&self, py: Python<'_>, in_order: bool) -> PyResult<u32> {
        let delivery = if in_order { Delivery::InOrder } else { Delivery::AsComplete };
        let mut config = LaneConfig::default();
        config.delivery = Some(delivery);
        let connection = self.get(py)?;
        py.detach(|| connection.open_lane(&config))
            .map(|lane| lane.0)
            .map_err(|error| TRANSPORT.raise(py, format!("no lane for messages: {error}")))
    }

    fn send_message(
        &self,
        py: Python<'_>,
        lane: u32,
        data: &Bound<'_, PyAny>,
        seconds: f64,
        bell: &Bell,
        token: u64,
    ) -> PyResult<Operation> {
        let connection = self.get(py)?;
        let lifetime = Duration::try_from_secs_f64(seconds)
            .map_err(|_| fault::setting(py, format!("a lifetime of {seconds} s: give seconds of at least 0")))?;
        // The message may wait for room longer than the caller's buffer lives.
        let data = flat(data, "data", Access::Read)?.as_slice().to_vec();
        Ok(Operation::new(bell, token, async move {
            let sent = connection.send_message(LaneId(lane), &data, lifetime).await;
            let answer: Answer = match sent {
                Ok(()) => Box::new(|py| Ok(py.None())),
                Err(error @ MessageError::Blocked) => {
                    Box::new(move |py| Err(BLOCKED.raise(py, format!("{error}, within its lifetime of {seconds} s"))))
                }
                Err(error) => Box::new(move |py| Err(fault::message(py, error))),
            };
            answer
        }))
    }

    fn receive_message(&self, py: Python<'_>, bell: &Bell, token: u64) -> PyResult<Operation> {
        let connection = self.get(py)?;
        Ok(Operation::new(bell, token, async move {
            let answer: Answer = match connection.receive_message().await {
                Ok(Message { lane, data, .. }) => {
                    Box::new(move |py| Ok((lane.0, PyBytes::new(py, &data)).into_pyobject(py)?.into_any().unbind()))
                }
                Err(lost) => Box::new(move |py| Err(fault::lost(py, &lost))),
            };
            answer
        }))
    }

    /// Ends the connection at once.
    fn abort(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let connection = self.get(py)?;
        py.detach(|| connection.close(CloseCode::Done, reason));
        Ok(())
    }

    /// Whether this side opened the socket, which then has no other connection.
    #[getter]
    fn has_socket(&self) -> bool {
        self.endpoint.is_some()
    }

    /// Closes the socket when the peer was told.
    fn close_socket(&self, py: Python<'_>, bell: &Bell, token: u64) -> PyResult<Operation> {
        runtime(py)?;
        let endpoint = self.endpoint.clone().ok_or_else(|| fault::closed(py, "socket"))?;
        Ok(endpoint::close(endpoint, bell, token))
    }

    fn closed(&self, py: Python<'_>, bell: &Bell, token: u64) -> PyResult<Operation> {
        let connection = self.get(py)?;
        Ok(Operation::new(bell, token, async move {
            let reason = connection.closed().await.to_string();
            let answer: Answer = Box::new(move |py| Ok(reason.into_pyobject(py)?.into_any().unbind()));
            answer
        }))
    }

    #[getter]
    fn has_delivered(&self, py: Python<'_>) -> PyResult<bool> {
        let connection = self.get(py)?;
        Ok(py.detach(|| connection.has_delivered()))
    }

    /// The smoothed round trip in seconds.
    #[getter]
    fn rtt(&self, py: Python<'_>) -> PyResult<f64> {
        let connection = self.get(py)?;
        Ok(py.detach(|| connection.rtt()).as_secs_f64())
    }

    #[getter]
    fn remote(&self, py: Python<'_>) -> PyResult<(String, u16)> {
        let connection = self.get(py)?;
        let address = py.detach(|| connection.current_remote());
        Ok((address.ip().to_string(), address.port()))
    }

    #[getter]
    fn peer_key(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let connection = self.get(py)?;
        Ok(py.detach(|| connection.peer_key()).map(|key| key.to_string()))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let connection = self.get(py)?;
        let found = py.detach(|| connection.stats());
        stats::of_connection(py, &found)
    }

    /// The plan of repair, if it differs from the one that was returned last.
    fn explain<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let connection = self.get(py)?;
        let plan = py.detach(|| connection.stats()).plan;
        let mut said = self.explained.lock().unwrap_or_else(PoisonError::into_inner);
        let news = plan.filter(|plan| said.as_ref().is_none_or(|said| !said.is_like(plan)));
        let Some(plan) = news else { return Ok(None) };
        let explained = stats::of_plan(py, &plan)?;
        *said = Some(plan);
        Ok(Some(explained))
    }
}

impl Connection {
    /// A connection; `endpoint` is its socket if this side opened it.
    pub fn new(connection: tidewire::Connection, endpoint: Option<Arc<Endpoint>>) -> Self {
        Self { connection: Owned::new(connection), endpoint: Owned::from(endpoint), explained: Mutex::default() }
    }

    /// The connection, unless it was closed.
    pub(super) fn get(&self, py: Python<'_>) -> PyResult<tidewire::Connection> {
        runtime(py)?;
        self.connection.clone().ok_or_else(|| fault::closed(py, "connection"))
    }
}

fn stream(opened: Result<tidewire::Stream, ConnectionLost>) -> Answer {
    match opened {
        Ok(stream) => Box::new(move |py| Ok(Py::new(py, Stream::new(stream))?.into_any())),
        Err(lost) => Box::new(move |py| Err(fault::lost(py, &lost))),
    }
}
