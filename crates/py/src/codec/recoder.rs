//! [`Recoder`]: a relay that mixes what it received without decoding it.

use pyo3::prelude::*;
use tidewire_codec::{self as codec, Reception, RecodeError, SourceId};

use super::encoder::check_ring;
use super::{code, reception, released, repair_id};
use crate::buffer::Access;
use crate::error::codec_error;
use crate::symbols::{array, flat};

/// The independent symbols of one generation that a relay received.
#[pyclass(module = "tidewire.codec")]
pub struct Recoder {
    recoder: codec::Recoder,
    symbol_bytes: usize,
}

#[pymethods]
impl Recoder {
    #[new]
    fn new(py: Python<'_>, symbol_bytes: usize, max_count: u16) -> PyResult<Self> {
        check_ring(py, symbol_bytes, max_count.into())?;
        // It also keeps the coefficients of each symbol.
        check_ring(py, max_count.into(), max_count.into())?;
        Ok(Self { recoder: codec::Recoder::new(symbol_bytes, max_count), symbol_bytes })
    }

    fn begin(&mut self, py: Python<'_>, first: u64, count: u16) -> PyResult<()> {
        self.recoder.begin(SourceId(first), count).map_err(|error| codec_error(py, error))
    }

    fn receive_source(&mut self, py: Python<'_>, id: u64, symbol: &Bound<'_, PyAny>) -> PyResult<&'static str> {
        let symbol = flat(symbol, "symbol", Access::Read)?;
        received(py, self.recoder.receive_source(SourceId(id), symbol.as_slice()))
    }

    fn receive_repair(
        &mut self,
        py: Python<'_>,
        code: &str,
        first: u64,
        count: u16,
        key: u16,
        symbol: &Bound<'_, PyAny>,
    ) -> PyResult<&'static str> {
        let (code, id) = (self::code(py, code)?, repair_id(first, count, key));
        let symbol = flat(symbol, "symbol", Access::Read)?;
        received(py, self.recoder.receive_repair(code, id, symbol.as_slice()))
    }

    fn receive_recoded(
        &mut self,
        py: Python<'_>,
        first: u64,
        coefficients: &Bound<'_, PyAny>,
        symbol: &Bound<'_, PyAny>,
    ) -> PyResult<&'static str> {
        let row = flat(coefficients, "coefficients", Access::Read)?;
        let symbol = flat(symbol, "symbol", Access::Read)?;
        received(py, self.recoder.receive_recoded(SourceId(first), row.as_slice(), symbol.as_slice()))
    }

    fn recode<'py>(&self, py: Python<'py>, key: u64) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let generation = self.recoder.generation();
        let count = (generation.end.0 - generation.start.0) as usize;
        let (coefficients, symbol) = (array(py, 1, count)?, array(py, 1, self.recoder.recoded_len())?);
        let (coefficients, symbol) = (coefficients.get_item(0)?, symbol.get_item(0)?);
        let mut row = flat(&coefficients, "coefficients", Access::Write)?;
        let mut written = flat(&symbol, "symbol", Access::Write)?;
        let (row, out) = (row.as_mut_slice(), written.as_mut_slice());
        let bytes = out.len() * usize::from(self.recoder.rank());
        let Self { recoder, .. } = self;
        released(py, bytes, || recoder.write_recoded(key, row, out)).map_err(|error| codec_error(py, error))?;
        Ok((coefficients, symbol))
    }

    #[getter]
    fn rank(&self) -> u16 {
        self.recoder.rank()
    }

    #[getter]
    fn memory(&self) -> usize {
        self.recoder.memory()
    }

    fn __repr__(&self) -> String {
        let generation = self.recoder.generation();
        format!(
            "Recoder(generation={}..{}, rank={}, symbol_bytes={})",
            generation.start.0,
            generation.end.0,
            self.rank(),
            self.symbol_bytes
        )
    }
}

fn received(py: Python<'_>, result: Result<Reception, RecodeError>) -> PyResult<&'static str> {
    result.map(reception).map_err(|error| codec_error(py, error))
}
