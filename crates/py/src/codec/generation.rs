//! Closed blocks: [`Generation`] encodes, [`DecodePlan`] decodes.
//!
//! Both are immutable, so threads may share them. The outputs are arrays of the caller or new ones.

use pyo3::prelude::*;
use tidewire_codec::{self as codec, PlanError};

use super::{code, name, released};
use crate::buffer::Access;
use crate::error::{DEFICIT, codec_error};
use crate::symbols::{Symbols, array};

/// A block of `count` source symbols under a code.
#[pyclass(frozen, module = "tidewire.codec")]
pub struct Generation(codec::Generation);

#[pymethods]
impl Generation {
    #[new]
    #[pyo3(signature = (code, count, *, first=0))]
    fn new(py: Python<'_>, code: &str, count: u16, first: u64) -> PyResult<Self> {
        let made = codec::Generation::new(self::code(py, code)?, count);
        let placed = made.and_then(|made| made.at(codec::SourceId(first)));
        placed.map(Self).map_err(|error| codec_error(py, error))
    }

    #[getter]
    fn code(&self) -> String {
        name(self.0.code())
    }

    #[getter]
    fn count(&self) -> u16 {
        self.0.count()
    }

    #[getter]
    fn first(&self) -> u64 {
        self.0.first().0
    }

    #[pyo3(signature = (sources, repairs=None, *, first_key=0, out=None))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        sources: &Bound<'py, PyAny>,
        repairs: Option<usize>,
        first_key: u16,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let sources = Symbols::of(sources, "sources", Access::Read)?;
        let read = sources.slices();
        let out = match (out, repairs) {
            (Some(out), None) => out,
            (None, Some(repairs)) => array(py, repairs, self.len(&read))?,
            _ => return Err(codec_error(py, "say how many repair symbols to make, or give `out`: one of the two")),
        };
        let mut written = Symbols::of(&out, "out", Access::Write)?;
        written.check(py, &[&sources])?;
        let mut repairs = written.slices_mut();
        let bytes = read.iter().map(|symbol| symbol.len()).sum();
        let made = released(py, bytes, || self.0.encode(&read, first_key, &mut repairs));
        made.map_err(|error| codec_error(py, error))?;
        Ok(out)
    }

    fn plan(&self, py: Python<'_>, lost: Vec<u16>, keys: Vec<u16>) -> PyResult<DecodePlan> {
        // The matrix is inverted here: cubic in the number of losses.
        let plan = released(py, lost.len() * lost.len() * keys.len(), || self.0.plan(&lost, &keys));
        let plan = plan.map_err(|error| match error {
            PlanError::Deficit { deficit, .. } => DEFICIT.with(py, (error.to_string(), deficit)),
            error => codec_error(py, error),
        })?;
        Ok(DecodePlan { plan })
    }

    fn __repr__(&self) -> String {
        format!("Generation({:?}, {}, first={})", self.code(), self.count(), self.first())
    }
}

impl Generation {
    /// Bytes of a repair symbol over these source symbols: the longest, and even where the code's field asks
    /// for that.
    fn len(&self, sources: &[&[u8]]) -> usize {
        let longest = sources.iter().map(|symbol| symbol.len()).max().unwrap_or(0);
        match self.0.code() {
            codec::Code::Rlc16 | codec::Code::RsFft => longest.next_multiple_of(2),
            _ => longest,
        }
    }
}

/// How to decode one pattern of losses.
#[pyclass(frozen, module = "tidewire.codec")]
pub struct DecodePlan {
    plan: codec::DecodePlan,
}

#[pymethods]
impl DecodePlan {
    #[getter]
    fn lost(&self) -> Vec<u16> {
        self.plan.lost().to_vec()
    }

    #[getter]
    fn used(&self) -> Vec<usize> {
        self.plan.used().collect()
    }

    #[pyo3(signature = (sources, repairs, *, out=None))]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        sources: &Bound<'py, PyAny>,
        repairs: &Bound<'py, PyAny>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let sources = Symbols::of(sources, "sources", Access::Read)?;
        let repairs = Symbols::of(repairs, "repairs", Access::Read)?;
        let (known, repaired) = (sources.slices(), repairs.slices());
        let out = match out {
            Some(out) => out,
            None => array(py, self.plan.lost().len(), longest(&repaired))?,
        };
        let mut written = Symbols::of(&out, "out", Access::Write)?;
        written.check(py, &[&sources, &repairs])?;
        let mut decoded = written.slices_mut();
        let bytes = known.iter().map(|symbol| symbol.len()).sum();
        let made = released(py, bytes, || self.plan.decode(&known, &repaired, &mut decoded));
        made.map_err(|error| codec_error(py, error))?;
        Ok(out)
    }

    fn restore(&self, py: Python<'_>, sources: &Bound<'_, PyAny>, repairs: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut sources = Symbols::of(sources, "sources", Access::Write)?;
        let repairs = Symbols::of(repairs, "repairs", Access::Read)?;
        sources.check(py, &[&repairs])?;
        let repaired = repairs.slices();
        let mut rows: Vec<Option<&mut [u8]>> = sources.slices_mut().into_iter().map(Some).collect();
        // A wrong number of rows is the codec's error; here a missing row is only left out.
        let take = |&index: &u16| rows.get_mut(usize::from(index)).and_then(Option::take);
        let mut decoded: Vec<_> = self.plan.lost().iter().filter_map(take).collect();
        let known: Vec<&[u8]> = rows.iter().map(|row| row.as_deref().unwrap_or_default()).collect();
        let bytes = known.iter().map(|symbol| symbol.len()).sum();
        let made = released(py, bytes, || self.plan.decode(&known, &repaired, &mut decoded));
        made.map_err(|error| codec_error(py, error))
    }

    fn __repr__(&self) -> String {
        format!("DecodePlan(lost={:?}, used={:?})", self.lost(), self.used())
    }
}

fn longest(symbols: &[&[u8]]) -> usize {
    symbols.iter().map(|symbol| symbol.len()).max().unwrap_or(0)
}
