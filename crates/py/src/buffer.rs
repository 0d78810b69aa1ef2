//! Memory of Python objects by the buffer protocol: bytes, bytearrays, memoryviews and numpy arrays, without
//! a copy. All unsafe code of the package is here.
//!
//! Every function that takes data from Python reads it through [`Buffer`]. Invariants: a buffer holds the
//! memory of its exporter until it is dropped, and what [`Buffer::of`] let pass is C-contiguous, has the
//! elements that were asked for, and is writable if that was asked for.
//!
//! The limited API has the buffer protocol since Python 3.11, and the wheel is for 3.10 too, so pyo3 does not
//! offer it here. CPython 3.10 exports both functions with this struct (its Include/cpython/object.h), and
//! nothing in 3.10 will change any more.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;

use pyo3::ffi::{PyErr_Clear, PyObject};
use pyo3::prelude::*;

use crate::error::array_error;

/// `Py_buffer`, as CPython declares it in Include/pybuffer.h.
#[repr(C)]
struct View {
    memory: *mut c_void,
    exporter: *mut PyObject,
    len: isize,
    item_len: isize,
    is_read_only: c_int,
    dimensions: c_int,
    format: *mut c_char,
    shape: *mut isize,
    strides: *mut isize,
    suboffsets: *mut isize,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// `PyBUF_FULL_RO` of Include/pybuffer.h: whatever memory there is, with shape, strides and format, so that
/// the error can say what is wrong with it.
const FULL_READ_ONLY: c_int = 0x11c;

/// An element type that arrays may have.
pub trait Element: Copy + 'static {
    /// Characters of the struct module that mean this type, without a mark of byte order.
    const FORMATS: &'static [u8];
    /// The name of its numpy type.
    const NAME: &'static str;
}

impl Element for u8 {
    // A bytes-like object of unsigned, signed or plain characters is bytes.
    const FORMATS: &'static [u8] = b"Bbc";
    const NAME: &'static str = "uint8";
}

impl Element for f64 {
    const FORMATS: &'static [u8] = b"d";
    const NAME: &'static str = "float64";
}

/// What is done with the memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is only read.
    Read,
    /// It is written, so it must not be read-only.
    Write,
}

/// The contiguous memory of one Python object. It is neither `Send` nor `Sync`, so it is released while
/// attached to the interpreter; its slices may be used without the GIL.
pub struct Buffer<T: Element> {
    /// Boxed, because exporters let `shape` point into the struct itself.
    view: Box<View>,
    element: PhantomData<*mut T>,
}

impl<T: Element> Buffer<T> {
    /// The memory of `object`, which errors call `name`.
    ///
    /// # Errors
    /// `ArrayError`: the object has no buffer, or its elements, order or permission are not the ones asked
    /// for.
    pub fn of(object: &Bound<'_, PyAny>, name: &str, access: Access) -> PyResult<Self> {
        let mut view = Box::new(View {
            memory: std::ptr::null_mut(),
            exporter: std::ptr::null_mut(),
            len: 0,
            item_len: 0,
            is_read_only: 0,
            dimensions: 0,
            format: std::ptr::null_mut(),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            suboffsets: std::ptr::null_mut(),
            internal: std::ptr::null_mut(),
        });
        // SAFETY: the object is alive and this thread is attached (`Bound`); the view is memory of our own.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, FULL_READ_ONLY) } != 0 {
            // SAFETY: attached, see above. The error is replaced by one that says what to do.
            unsafe { PyErr_Clear() };
            let kind = object.get_type().name()?;
            return Err(array_error(object.py(), format!("{name} is a {kind}, give bytes or an array of {}", T::NAME)));
        }
        // From here on, dropping releases the view.
        let buffer = Self { view, element: PhantomData };
        match buffer.fault(access) {
            Some(fault) => Err(array_error(object.py(), format!("{name} {fault}"))),
            None => Ok(buffer),
        }
    }

    /// Why the memory cannot be used, as the end of a sentence.
    fn fault(&self, access: Access) -> Option<String> {
        if let Some(format) = self.wrong_format() {
            return Some(format!("has elements of type {format:?} instead of {}: convert with astype", T::NAME));
        }
        if access == Access::Write && self.view.is_read_only != 0 {
            return Some("is read-only, and the result is written to it: give a writable array".into());
        }
        if !self.is_contiguous() {
            return Some("is not C-contiguous: pass it through numpy.ascontiguousarray".into());
        }
        (!self.view.memory.cast::<T>().is_aligned() && self.view.len > 0)
            .then(|| "is not aligned: copy it first".into())
    }

    /// The format if it is not that of the elements.
    fn wrong_format(&self) -> Option<String> {
        let format = match self.view.format.is_null() {
            true => c"B",
            // SAFETY: a format is a string that lives as long as the view (Include/pybuffer.h).
            false => unsafe { CStr::from_ptr(self.view.format) },
        };
        // Marks of native order and size.
        let native = if cfg!(target_endian = "little") { b'<' } else { b'>' };
        let kind = match format.to_bytes() {
            [mark, kind] if [b'@', b'=', native].contains(mark) => std::slice::from_ref(kind),
            kind => kind,
        };
        let fits = matches!(kind, [one] if T::FORMATS.contains(one)) && self.view.item_len as usize == size_of::<T>();
        (!fits).then(|| format.to_string_lossy().into_owned())
    }

    /// Whether the elements follow each other in the order of the last index. Dimensions of one element and
    /// arrays without elements have no order.
    fn is_contiguous(&self) -> bool {
        let (shape, Some(strides)) = (self.shape(), self.dimensions_at(self.view.strides)) else { return true };
        let mut expected = self.view.item_len;
        let is_pointers = !self.view.suboffsets.is_null();
        !is_pointers
            && (self.view.len == 0
                || shape.iter().zip(strides).rev().all(|(&count, &stride)| {
                    let fits = count == 1 || stride == expected;
                    expected *= count;
                    fits
                }))
    }

    /// Elements in each dimension.
    pub fn shape(&self) -> &[isize] {
        self.dimensions_at(self.view.shape).unwrap_or(std::slice::from_ref(&self.view.len))
    }

    fn dimensions_at(&self, numbers: *const isize) -> Option<&[isize]> {
        // SAFETY: if present, the view has one number for each dimension, for its own life.
        (!numbers.is_null()).then(|| unsafe { std::slice::from_raw_parts(numbers, self.view.dimensions as usize) })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.view.len as usize / size_of::<T>()
    }

    /// The addresses that it takes.
    pub fn range(&self) -> std::ops::Range<usize> {
        let start = self.view.memory as usize;
        start..start + self.view.len as usize
    }

    /// All elements in the order of the memory. The caller of the Python function must not write to them
    /// until it returns, as for `hashlib` and `zlib` of the standard library.
    pub fn as_slice(&self) -> &[T] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: `of` checked type, alignment and contiguity; the exporter keeps the memory until release.
        unsafe { std::slice::from_raw_parts(self.view.memory.cast(), self.len()) }
    }

    /// All elements, to be written. Call it for buffers of [`Access::Write`] only, and after
    /// [`check_apart`].
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        if self.len() == 0 || self.view.is_read_only != 0 {
            return &mut [];
        }
        // SAFETY: as for `as_slice`; the memory is writable, and `check_apart` refused a second buffer of it.
        unsafe { std::slice::from_raw_parts_mut(self.view.memory.cast(), self.len()) }
    }
}

impl<T: Element> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: the view was filled by PyObject_GetBuffer and is released once; it is not `Send`, so this
        // thread is attached.
        unsafe { PyBuffer_Release(&raw mut *self.view) }
    }
}

/// Checks that no output shares memory with another output or with an input.
///
/// # Errors
/// `ArrayError`, which names what overlaps.
pub fn check_apart(
    py: Python<'_>,
    outputs: impl Iterator<Item = std::ops::Range<usize>>,
    inputs: impl Iterator<Item = std::ops::Range<usize>>,
) -> PyResult<()> {
    let mut ranges: Vec<_> = outputs.map(|range| (range, true)).chain(inputs.map(|range| (range, false))).collect();
    ranges.retain(|(range, _)| !range.is_empty());
    ranges.sort_unstable_by_key(|(range, _)| range.start);
    // The end of all memory up to here, and that of all outputs.
    let (mut end, mut written) = (0, 0);
    for (range, is_output) in ranges {
        if range.start < written || is_output && range.start < end {
            return Err(array_error(py, "the output shares memory with another argument: give it an array of its own"));
        }
        end = end.max(range.end);
        if is_output {
            written = written.max(range.end);
        }
    }
    Ok(())
}
