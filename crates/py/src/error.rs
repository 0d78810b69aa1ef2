//! The exceptions of the package. They are classes of `tidewire.errors`, so that Python documents them and
//! type checkers see them; the native part only raises them.
//!
//! Invariant: a fault of the caller or of the path never becomes a panic or a bare `Exception`.

use std::fmt::Display;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// An exception class of `tidewire.errors`, looked up once.
pub struct Class {
    name: &'static str,
    class: PyOnceLock<Py<PyType>>,
}

impl Class {
    const fn new(name: &'static str) -> Self {
        Self { name, class: PyOnceLock::new() }
    }

    /// An exception of this class with a sentence.
    pub fn raise(&self, py: Python<'_>, text: impl Display) -> PyErr {
        self.with(py, (text.to_string(),))
    }

    /// An exception of this class, constructed with these arguments.
    pub fn with<A: for<'py> pyo3::call::PyCallArgs<'py>>(&self, py: Python<'_>, arguments: A) -> PyErr {
        let made = self.class.import(py, "tidewire.errors", self.name).and_then(|class| class.call1(arguments));
        made.map_or_else(|error| error, PyErr::from_value)
    }
}

/// An argument is not the memory that was asked for.
pub static ARRAY: Class = Class::new("ArrayError");
/// The codec refused a number or a symbol.
pub static CODEC: Class = Class::new("CodecError");
/// More repair symbols are needed. Takes the sentence and the number.
pub static DEFICIT: Class = Class::new("DeficitError");
/// There is no model for a number.
pub static MODEL: Class = Class::new("ModelError");

/// A scenario is wrong.
pub static SCENARIO: Class = Class::new("ScenarioError");
/// A setting of the transport is wrong.
pub static SETTING: Class = Class::new("SettingError");
/// The transport failed in another way than those below.
pub static TRANSPORT: Class = Class::new("TransportError");
/// A connection could not be made.
pub static CONNECT: Class = Class::new("ConnectError");
/// Nobody answered.
pub static NO_ANSWER: Class = Class::new("NoAnswerError");
/// A connection is over.
pub static LOST: Class = Class::new("ConnectionLostError");
/// The peer gave up what it sent. Takes the sentence and the peer's code.
pub static RESET: Class = Class::new("StreamResetError");
/// The peer stopped reading. Takes the sentence and the peer's code.
pub static STOPPED: Class = Class::new("StreamStoppedError");
/// A message cannot be sent.
pub static MESSAGE: Class = Class::new("MessageError");
/// A message found no room within its lifetime.
pub static BLOCKED: Class = Class::new("MessageBlockedError");
/// The paths cannot be sent together.
pub static PATHS: Class = Class::new("PathsError");
/// A folder cannot receive files.
pub static DESTINATION: Class = Class::new("DestinationError");
/// A transfer of files ended early.
pub static TRANSFER: Class = Class::new("TransferError");
/// A transfer of files was cut off, and can be resumed.
pub static CUT_OFF: Class = Class::new("TransferCutOffError");
/// Something was used after it was closed.
pub static CLOSED: Class = Class::new("ClosedError");
/// The transport was used outside of its event loop.
pub static LOOP: Class = Class::new("LoopError");
/// The transport was used in a child of fork.
pub static FORK: Class = Class::new("ForkError");

/// An `ArrayError` with this sentence.
pub fn array_error(py: Python<'_>, text: impl Display) -> PyErr {
    ARRAY.raise(py, text)
}

/// A `CodecError` with this sentence.
pub fn codec_error(py: Python<'_>, text: impl Display) -> PyErr {
    CODEC.raise(py, text)
}
