//! Long work without the GIL that Ctrl-C ends: models over large arrays, and simulations.
//!
//! The work calls [`Pulse::check`] between its pieces. Invariant: at most every [`PERIOD`] the interpreter is
//! asked whether a signal came, so a piece that takes less than that is interrupted in time, and the asking
//! costs nothing where pieces are small.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// When the interpreter was last asked.
pub struct Pulse(Instant);

impl Pulse {
    /// Begins now.
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Runs the handlers of signals that came, if it is time.
    ///
    /// # Errors
    /// What a handler raised: `KeyboardInterrupt` for Ctrl-C.
    pub fn check(&mut self) -> PyResult<()> {
        if self.0.elapsed() < PERIOD {
            return Ok(());
        }
        Python::attach(|py| py.check_signals())?;
        self.0 = Instant::now();
        Ok(())
    }
}

/// Time between two questions. Chosen: an interruption is promised within 0.5 s, and ten questions a second
/// are not measurable.
const PERIOD: Duration = Duration::from_millis(100);
