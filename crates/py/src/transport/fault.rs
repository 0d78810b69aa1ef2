//! The exceptions of the transport, made from the errors of the library.

use std::io;

use pyo3::prelude::*;
use tidewire::{ConnectError, ConnectionLost, MessageError, StreamError};

use crate::error::{CLOSED, CONNECT, LOST, MESSAGE, NO_ANSWER, RESET, SETTING, STOPPED, TRANSPORT};

pub fn connect(py: Python<'_>, error: &ConnectError) -> PyErr {
    match error {
        ConnectError::NoAnswer => NO_ANSWER.raise(py, error),
        error => CONNECT.raise(py, error),
    }
}

pub fn lost(py: Python<'_>, error: &ConnectionLost) -> PyErr {
    LOST.raise(py, error)
}

pub fn message(py: Python<'_>, error: MessageError) -> PyErr {
    MESSAGE.raise(py, error)
}

/// What a read or write of a stream failed with.
pub fn stream(py: Python<'_>, error: &io::Error) -> PyErr {
    let inner = error.get_ref();
    if let Some(lost) = inner.and_then(|inner| inner.downcast_ref::<ConnectionLost>()) {
        return self::lost(py, lost);
    }
    match inner.and_then(|inner| inner.downcast_ref::<StreamError>()) {
        Some(StreamError::Reset(code)) => RESET.with(py, (error.to_string(), *code)),
        Some(StreamError::Stopped(code)) => STOPPED.with(py, (error.to_string(), *code)),
        _ => TRANSPORT.raise(py, error),
    }
}

/// An argument is wrong.
pub fn setting(py: Python<'_>, text: String) -> PyErr {
    SETTING.raise(py, text)
}

/// Something was used after it was closed.
pub fn closed(py: Python<'_>, what: &str) -> PyErr {
    CLOSED.raise(py, format!("the {what} was closed: open another one"))
}
