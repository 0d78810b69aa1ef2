//! [`Stream`]: the bytes of one stream, without waiting.
//!
//! A read or a write takes what can be had now, and rings a token when there is more. The transport of
//! `tidewire.transport` calls it from callbacks of the event loop. Invariant: bytes are copied once on the
//! way out, into the symbols, and twice on the way in, out of them and into a bytes object.

use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Waker};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidewire::{ReadHalf, WriteHalf};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::bell::Bell;
use super::fault;
use super::runtime::{Owned, runtime};
use crate::buffer::Access;
use crate::error::LOOP;
use crate::symbols::flat;

/// Both halves of a stream.
#[pyclass(frozen, module = "tidewire._native")]
pub struct Stream {
    reader: Mutex<Input>,
    writer: Mutex<Output>,
}

struct Input {
    half: Owned<ReadHalf>,
    waker: Waker,
    /// Where bytes lie between the stream and Python; grows to the longest read.
    scratch: Vec<u8>,
}

struct Output {
    half: Owned<WriteHalf>,
    waker: Waker,
}

#[pymethods]
impl Stream {
    /// Says whom to ring: one token when there is something to read, the other when there is room.
    fn register(&self, py: Python<'_>, bell: &Bell, readable: u64, writable: u64) -> PyResult<()> {
        runtime(py)?;
        lock(py, &self.reader)?.waker = bell.waker(readable);
        lock(py, &self.writer)?.waker = bell.waker(writable);
        Ok(())
    }

    /// At most `most` bytes, none at the end of the stream; None if there are none now.
    fn read<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        runtime(py)?;
        let mut input = lock(py, &self.reader)?;
        let Input { half, waker, scratch } = &mut *input;
        let half = half.as_mut().ok_or_else(|| fault::closed(py, "stream"))?;
        let read = py.detach(|| {
            scratch.resize(scratch.len().max(most), 0);
            let mut buffer = ReadBuf::new(scratch.get_mut(..most).unwrap_or_default());
            let mut context = Context::from_waker(waker);
            // One poll reads to the end of a symbol only.
            loop {
                let before = buffer.filled().len();
                match Pin::new(&mut *half).poll_read(&mut context, &mut buffer) {
                    Poll::Pending if before == 0 => return Ok(None),
                    Poll::Ready(Err(error)) if before == 0 => return Err(error),
                    Poll::Ready(Ok(())) if buffer.filled().len() > before && buffer.remaining() > 0 => {}
                    _ => return Ok(Some(buffer.filled().len())),
                }
            }
        });
        match read {
            Ok(read) => Ok(read.map(|read| PyBytes::new(py, scratch.get(..read).unwrap_or_default()))),
            Err(error) => Err(fault::stream(py, &error)),
        }
    }

    /// Writes what there is room for of `data` from `offset` on, and returns how many bytes that were.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: usize) -> PyResult<usize> {
        runtime(py)?;
        let data = flat(data, "data", Access::Read)?;
        let rest = data.as_slice().get(offset..).unwrap_or_default();
        let mut output = lock(py, &self.writer)?;
        let Output { half, waker } = &mut *output;
        let half = half.as_mut().ok_or_else(|| fault::closed(py, "stream"))?;
        let written = py.detach(|| {
            let mut context = Context::from_waker(waker);
            let mut written = 0;
            while let Some(rest) = rest.get(written..).filter(|rest| !rest.is_empty()) {
                match Pin::new(&mut *half).poll_write(&mut context, rest) {
                    Poll::Ready(Ok(more)) => written += more,
                    Poll::Ready(Err(error)) if written == 0 => return Err(error),
                    _ => break,
                }
            }
            Ok(written)
        });
        written.map_err(|error| fault::stream(py, &error))
    }

    /// Ends what is written. Returns false if that has to wait.
    fn finish(&self, py: Python<'_>) -> PyResult<bool> {
        runtime(py)?;
        let mut output = lock(py, &self.writer)?;
        let Output { half, waker } = &mut *output;
        let half = half.as_mut().ok_or_else(|| fault::closed(py, "stream"))?;
        match py.detach(|| Pin::new(half).poll_shutdown(&mut Context::from_waker(waker))) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(error)) => Err(fault::stream(py, &error)),
        }
    }

    /// Gives both halves up: the peer's reads and writes fail with this code.
    fn abort(&self, py: Python<'_>, code: u64) -> PyResult<()> {
        runtime(py)?;
        let (mut input, mut output) = (lock(py, &self.reader)?, lock(py, &self.writer)?);
        let (input, output) = (&mut *input, &mut *output);
        py.detach(|| {
            output.half.iter_mut().for_each(|half| half.reset(code));
            input.half.iter_mut().for_each(|half| half.stop(code));
        });
        Ok(())
    }

    /// Lets both halves go: a half that has not ended stops the peer, and ends what was written.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        runtime(py)?;
        let (mut input, mut output) = (lock(py, &self.reader)?, lock(py, &self.writer)?);
        let (input, output) = (&mut *input, &mut *output);
        py.detach(|| {
            *output.half = None;
            *input.half = None;
        });
        Ok(())
    }
}

impl Stream {
    /// A stream that rings nobody yet.
    pub fn new(stream: tidewire::Stream) -> Self {
        let (reader, writer) = stream.split();
        Self {
            reader: Mutex::new(Input { half: Owned::new(reader), waker: Waker::noop().clone(), scratch: Vec::new() }),
            writer: Mutex::new(Output { half: Owned::new(writer), waker: Waker::noop().clone() }),
        }
    }
}

/// The half, for one thread at a time. It is kept while the GIL is not, so waiting for it could be for ever.
fn lock<'a, T>(py: Python<'_>, mutex: &'a Mutex<T>) -> PyResult<MutexGuard<'a, T>> {
    match mutex.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(guard)) => Ok(guard.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(LOOP.raise(py, "another thread uses this stream: call it from its event loop only"))
        }
    }
}
