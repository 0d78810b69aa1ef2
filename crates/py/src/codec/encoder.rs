//! [`Encoder`]: the sliding window of a sender.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidewire_codec::{self as codec, SourceId};

use super::{code, released, repair_id};
use crate::buffer::Access;
use crate::error::codec_error;
use crate::symbols::{Symbols, array, flat};

/// The source symbols that a sender has not released, and their repair symbols.
#[pyclass(module = "tidewire.codec")]
pub struct Encoder(codec::Encoder);

#[pymethods]
impl Encoder {
    #[new]
    fn new(py: Python<'_>, symbol_bytes: usize, capacity: usize) -> PyResult<Self> {
        check_ring(py, symbol_bytes, capacity)?;
        Ok(Self(codec::Encoder::new(symbol_bytes, capacity)))
    }

    fn push(&mut self, py: Python<'_>, symbol: &Bound<'_, PyAny>) -> PyResult<u64> {
        let symbol = flat(symbol, "symbol", Access::Read)?;
        self.0.push(symbol.as_slice()).map(|id| id.0).map_err(|error| codec_error(py, error))
    }

    #[pyo3(signature = (code, first, count, key, repairs=None, *, out=None))]
    #[expect(clippy::too_many_arguments, reason = "the name of a repair symbol is three numbers and a code")]
    fn repair<'py>(
        &self,
        py: Python<'py>,
        code: &str,
        first: u64,
        count: u16,
        key: u16,
        repairs: Option<usize>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (code, id) = (self::code(py, code)?, repair_id(first, count, key));
        let len = self.0.repair_len(id.first, count).map_err(|error| codec_error(py, error))?;
        let out = match (out, repairs) {
            (Some(out), None) => out,
            (None, repairs) => array(py, repairs.unwrap_or(1), len)?,
            _ => return Err(codec_error(py, "say how many repair symbols to make, or give `out`: one of the two")),
        };
        let mut written = Symbols::of(&out, "out", Access::Write)?;
        written.check(py, &[])?;
        let mut outs = written.slices_mut();
        released(py, len * usize::from(count), || self.0.write_repairs(code, id, &mut outs))
            .map_err(|error| codec_error(py, error))?;
        Ok(out)
    }

    fn symbol<'py>(&self, py: Python<'py>, id: u64) -> Option<Bound<'py, PyBytes>> {
        self.0.symbol(SourceId(id)).map(|symbol| PyBytes::new(py, symbol))
    }

    fn release_before(&mut self, id: u64) {
        self.0.release_before(SourceId(id));
    }

    #[getter]
    fn window(&self) -> (u64, u64) {
        let window = self.0.window();
        (window.start.0, window.end.0)
    }

    #[getter]
    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    #[getter]
    fn symbol_bytes(&self) -> usize {
        self.0.slot_len()
    }

    #[getter]
    fn memory(&self) -> usize {
        self.0.memory()
    }

    fn __repr__(&self) -> String {
        let (base, next) = self.window();
        format!("Encoder(window={base}..{next}, capacity={})", self.capacity())
    }
}

/// Checks the size of a ring, which the codec takes for granted.
///
/// # Errors
/// `CodecError`: a number is 0, or the ring would be larger than [`MOST_RING`].
pub fn check_ring(py: Python<'_>, symbol_bytes: usize, capacity: usize) -> PyResult<()> {
    let slots = capacity.checked_next_power_of_two();
    let bytes = slots.and_then(|slots| symbol_bytes.checked_next_multiple_of(64)?.checked_mul(slots));
    if symbol_bytes == 0 || capacity == 0 || bytes.is_none_or(|bytes| bytes > MOST_RING) {
        return Err(codec_error(
            py,
            format!("a ring of {capacity} symbols of {symbol_bytes} bytes: give at least 1 each, and at most 4 GiB"),
        ));
    }
    Ok(())
}

/// Most bytes of a ring: the most of one slot in the codec. A larger window has no use, and the codec would
/// panic where the address space ends.
const MOST_RING: usize = 1 << 32;
