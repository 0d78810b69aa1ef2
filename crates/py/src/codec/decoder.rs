//! [`Decoder`]: the sliding window of a receiver.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidewire_codec::{self as codec, DecodeError, Limits, Reception, SourceId};

use super::encoder::check_ring;
use super::{code, reception, released, repair_id};
use crate::buffer::Access;
use crate::error::codec_error;
use crate::symbols::flat;

/// Reorder buffer, decoder and read buffer of one stream of symbols.
#[pyclass(module = "tidewire.codec")]
pub struct Decoder {
    decoder: codec::Decoder,
    max_span: u16,
}

#[pymethods]
impl Decoder {
    #[new]
    #[pyo3(signature = (symbol_bytes, capacity, *, max_span=64, max_rows=64))]
    fn new(py: Python<'_>, symbol_bytes: usize, capacity: usize, max_span: u16, max_rows: usize) -> PyResult<Self> {
        check_ring(py, symbol_bytes, capacity)?;
        let limits = Limits { slot_len: symbol_bytes, capacity, max_span, max_rows };
        Ok(Self { decoder: codec::Decoder::new(limits), max_span })
    }

    fn receive_source(&mut self, py: Python<'_>, id: u64, symbol: &Bound<'_, PyAny>) -> PyResult<&'static str> {
        let symbol = flat(symbol, "symbol", Access::Read)?;
        let slice = symbol.as_slice();
        // A source symbol may solve rows: each is a pass over one of them.
        let bytes = slice.len() * (1 + self.decoder.rows());
        let Self { decoder, .. } = self;
        received(py, released(py, bytes, || decoder.receive_source(SourceId(id), slice)))
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
        let slice = symbol.as_slice();
        let Self { decoder, max_span } = self;
        let bytes = slice.len() * usize::from(count.min(*max_span));
        received(py, released(py, bytes, || decoder.receive_repair(code, id, slice)))
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
        let (row, slice) = (row.as_slice(), symbol.as_slice());
        let Self { decoder, max_span } = self;
        let bytes = slice.len() * row.len().min((*max_span).into());
        received(py, released(py, bytes, || decoder.receive_recoded(SourceId(first), row, slice)))
    }

    fn poll_decoded(&mut self) -> Option<(u64, bool)> {
        self.decoder.poll_decoded().map(|decoded| (decoded.id.0, decoded.repaired))
    }

    fn symbol<'py>(&self, py: Python<'py>, id: u64) -> Option<Bound<'py, PyBytes>> {
        self.decoder.symbol(SourceId(id)).map(|symbol| PyBytes::new(py, symbol))
    }

    fn skip_before(&mut self, py: Python<'_>, id: u64) -> usize {
        let Self { decoder, .. } = self;
        py.detach(|| decoder.skip_before(SourceId(id)))
    }

    #[getter]
    fn edge(&self) -> u64 {
        self.decoder.edge().0
    }

    #[getter]
    fn end(&self) -> u64 {
        self.decoder.end().0
    }

    #[getter]
    fn limit(&self) -> u64 {
        self.decoder.limit().0
    }

    #[getter]
    fn deficit(&self) -> u64 {
        self.decoder.rank_deficit()
    }

    #[getter]
    fn missing(&self) -> Vec<(u64, u64)> {
        self.decoder.undecoded().map(|gap| (gap.start.0, gap.end.0)).collect()
    }

    #[getter]
    fn memory(&self) -> usize {
        self.decoder.memory()
    }

    fn __repr__(&self) -> String {
        format!("Decoder(edge={}, end={}, deficit={})", self.edge(), self.end(), self.deficit())
    }
}

fn received(py: Python<'_>, result: Result<Reception, DecodeError>) -> PyResult<&'static str> {
    result.map(reception).map_err(|error| codec_error(py, error))
}
