//! Symbols as Python gives them: the rows of one two-dimensional array, or a sequence of bytes-like objects.
//!
//! The codec's functions call it for their arguments. Invariant: the slices lie in the caller's memory, no
//! byte is copied.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use crate::buffer::{Access, Buffer, check_apart};
use crate::error::array_error;

/// Several symbols, to be read or written.
pub enum Symbols {
    /// The rows of one array, with their number and length in bytes.
    Rows(Buffer<u8>, usize, usize),
    /// One object for each symbol.
    Each(Vec<Buffer<u8>>),
}

impl Symbols {
    /// The symbols in `object`, which errors call `name`.
    ///
    /// # Errors
    /// `ArrayError`: it is neither a two-dimensional array of bytes nor a list or tuple of one-dimensional
    /// ones.
    pub fn of(object: &Bound<'_, PyAny>, name: &str, access: Access) -> PyResult<Self> {
        if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
            let each =
                object.try_iter()?.enumerate().map(|(index, item)| flat(&item?, &format!("{name}[{index}]"), access));
            return Ok(Self::Each(each.collect::<PyResult<_>>()?));
        }
        let buffer = Buffer::of(object, name, access)?;
        match *buffer.shape() {
            [rows, len] => Ok(Self::Rows(buffer, rows as usize, len as usize)),
            _ => Err(array_error(
                object.py(),
                format!("{name} has {} dimensions, give one row for each symbol or a list", buffer.shape().len()),
            )),
        }
    }

    /// One slice for each symbol.
    pub fn slices(&self) -> Vec<&[u8]> {
        match self {
            Self::Rows(_, rows, 0) => vec![&[]; *rows],
            Self::Rows(buffer, _, len) => buffer.as_slice().chunks_exact(*len).collect(),
            Self::Each(each) => each.iter().map(Buffer::as_slice).collect(),
        }
    }

    /// One slice for each symbol, to be written. The caller has called [`check`](Self::check).
    pub fn slices_mut(&mut self) -> Vec<&mut [u8]> {
        match self {
            Self::Rows(_, rows, 0) => (0..*rows).map(|_| [].as_mut_slice()).collect(),
            Self::Rows(buffer, _, len) => buffer.as_mut_slice().chunks_exact_mut(*len).collect(),
            Self::Each(each) => each.iter_mut().map(Buffer::as_mut_slice).collect(),
        }
    }

    /// Checks that these outputs share no memory with each other and with the inputs.
    ///
    /// # Errors
    /// `ArrayError`.
    pub fn check(&self, py: Python<'_>, inputs: &[&Self]) -> PyResult<()> {
        check_apart(
            py,
            self.buffers().map(Buffer::range),
            inputs.iter().flat_map(|input| input.buffers()).map(Buffer::range),
        )
    }

    fn buffers(&self) -> impl Iterator<Item = &Buffer<u8>> {
        match self {
            Self::Rows(buffer, ..) => std::slice::from_ref(buffer).iter(),
            Self::Each(each) => each.iter(),
        }
    }
}

/// The memory of one symbol.
///
/// # Errors
/// `ArrayError`: it is not a one-dimensional array of bytes.
pub fn flat(object: &Bound<'_, PyAny>, name: &str, access: Access) -> PyResult<Buffer<u8>> {
    let buffer = Buffer::of(object, name, access)?;
    match buffer.shape().len() {
        1 => Ok(buffer),
        dimensions => Err(array_error(object.py(), format!("{name} has {dimensions} dimensions, a symbol has one"))),
    }
}

/// A new numpy array of bytes, of this shape and undefined contents.
///
/// # Errors
/// numpy is missing or has no memory.
pub fn array<'py>(py: Python<'py>, rows: usize, len: usize) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static BYTE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let arguments = PyDict::new(py);
    arguments.set_item("dtype", BYTE.import(py, "numpy", "uint8")?)?;
    EMPTY.import(py, "numpy", "empty")?.call(((rows, len),), Some(&arguments))
}
