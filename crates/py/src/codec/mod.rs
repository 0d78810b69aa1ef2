//! The codec: generations, sliding windows and relays over the memory of Python objects.
//!
//! `tidewire.codec` exports these classes. Invariant: symbols are read and written in place; only what is
//! kept (a window, a relay's symbols) is copied, once.

pub mod decoder;
pub mod encoder;
pub mod generation;
pub mod recoder;

use pyo3::prelude::*;
use tidewire_codec::{Code, Reception, RepairId, SourceId};
use tidewire_proto::wire::{CodeName, parse_code};

use crate::error::codec_error;

/// The code with this name: those of the command's `--code`, and `rlc8681`, which the wire does not carry.
fn code(py: Python<'_>, name: &str) -> PyResult<Code> {
    match name {
        "rlc8681" => Ok(Code::Rlc8681),
        name => parse_code(name).map_err(|text| codec_error(py, text)),
    }
}

/// The name that [`code`] takes.
fn name(code: Code) -> String {
    if code == Code::Rlc8681 { "rlc8681".into() } else { CodeName(code).to_string() }
}

/// What a reception did, as Python reads it.
fn reception(reception: Reception) -> &'static str {
    match reception {
        Reception::Innovative => "innovative",
        Reception::Redundant => "redundant",
        Reception::Stale => "stale",
    }
}

/// The name of a repair symbol.
fn repair_id(first: u64, count: u16, key: u16) -> RepairId {
    RepairId { first: SourceId(first), count, key }
}

/// Runs `work`, without the GIL if it reads or writes more than [`RELEASE_ABOVE`] bytes.
fn released<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes > RELEASE_ABOVE { py.detach(work) } else { work() }
}

/// Bytes of work that are done while holding the GIL. Chosen: 4 KiB take a fraction of a microsecond, about
/// as long as giving the GIL away and taking it back.
const RELEASE_ABOVE: usize = 4_096;
