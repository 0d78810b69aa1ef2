//! [`Operation`]: a Rust future that Python's event loop polls.
//!
//! `tidewire.transport` polls it once, and again whenever its token was rung. Invariants: the future runs and
//! is dropped on the thread of the event loop only, without the GIL, and inside of the tokio runtime; its
//! answer is taken by the poll that returns it, so an `await` that was cancelled before took nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use pyo3::prelude::*;

use super::bell::Bell;
use super::runtime::{Owned, runtime};
use crate::error::TRANSPORT;

/// Makes the Python object of a result, or the exception.
pub type Answer = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// Something that waits.
#[pyclass(frozen, module = "tidewire._native")]
pub struct Operation {
    future: Mutex<Owned<Pin<Box<dyn Future<Output = Answer> + Send>>>>,
    waker: Waker,
}

impl Operation {
    /// An operation that rings the bell with this token when it can go on.
    pub fn new(bell: &Bell, token: u64, future: impl Future<Output = Answer> + Send + 'static) -> Self {
        Self { future: Mutex::new(Owned::new(Box::pin(future))), waker: bell.waker(token) }
    }
}

#[pymethods]
impl Operation {
    /// Goes on. Returns a tuple with the result, or None if it has to wait.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>,)>> {
        let runtime = runtime(py)?;
        let polled = py.detach(|| {
            let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
            let _inside = runtime.enter();
            let polled = future.as_mut()?.as_mut().poll(&mut Context::from_waker(&self.waker));
            if polled.is_ready() {
                **future = None;
            }
            Some(polled)
        });
        match polled {
            Some(Poll::Ready(answer)) => Ok(Some((answer(py)?,))),
            Some(Poll::Pending) => Ok(None),
            None => Err(TRANSPORT.raise(py, "this operation is over")),
        }
    }

    /// Gives the operation up.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let runtime = runtime(py)?;
        py.detach(|| {
            let _inside = runtime.enter();
            **self.future.lock().unwrap_or_else(PoisonError::into_inner) = None;
        });
        Ok(())
    }
}
