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

/// An `ArrayError` with this sentence.
pub fn array_error(py: Python<'_>, text: impl Display) -> PyErr {
    ARRAY.raise(py, text)
}

/// A `CodecError` with this sentence.
pub fn codec_error(py: Python<'_>, text: impl Display) -> PyErr {
    CODEC.raise(py, text)
}
