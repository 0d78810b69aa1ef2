//! The models of `tidewire_model` over arrays.
//!
//! `tidewire.model` broadcasts its arguments and calls these functions with one contiguous array for each.
//! Every function names a quantity, and writes one result for each element. Invariant: an element without a
//! model is an error that names it; one whose value the model does not reach (`None`) is NaN.

use std::fmt::Display;

use pyo3::prelude::*;
use tidewire_model::asking::Asking;
use tidewire_model::fairness::{self as indices, Allocation};
use tidewire_model::gilbert::Gilbert;
use tidewire_model::sphinx::{Block, Form, Plan, Rounding};
use tidewire_model::streaming::Streaming;

use crate::buffer::{Access, Buffer, check_apart};
use crate::error::MODEL;
use crate::interrupt::Pulse;

/// The result of one element.
type Value = Result<Option<f64>, String>;

/// Quantities of the streaming code under independent losses.
#[pyfunction]
pub fn streaming(
    py: Python<'_>,
    quantity: &str,
    inputs: [Bound<'_, PyAny>; 3],
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let of: fn(&Streaming, f64) -> Value = match quantity {
        "check" => |_, _| Ok(None),
        "rate" => |code, _| known(code.rate()),
        "mean_busy" => |code, _| known(code.mean_busy()),
        "second_moment" => |code, _| known(code.second_moment()),
        "third_moment" => |code, _| known(code.third_moment()),
        "mean_cycle" => |code, _| known(code.mean_cycle()),
        "tail_ratio" => |code, _| known(code.tail_ratio()),
        "mean_delay" => |code, _| known(code.mean_delay()),
        "no_delay" => |code, _| known(code.no_delay()),
        "operations" => |code, _| known(code.operations()),
        "delay" => |code, slots| Ok(code.delay(whole(slots, "slots")?)),
        "late" => |code, slots| Ok(code.late(slots)),
        "quantile" => |code, q| probability(q).map(|q| code.quantile(q)),
        "failure" => |code, groups| Ok(code.failure(whole(groups, "groups")?)),
        _ => return Err(unknown(py, quantity)),
    };
    map(py, inputs, out, |[loss, spacing, argument]| of(&Streaming::new(loss, spacing).map_err(text)?, argument))
}

/// Quantities of the streaming code under losses in bursts.
#[pyfunction]
pub fn gilbert(py: Python<'_>, quantity: &str, inputs: [Bound<'_, PyAny>; 4], out: &Bound<'_, PyAny>) -> PyResult<()> {
    let of: fn(&Gilbert, f64) -> Value = match quantity {
        "check" => |_, _| Ok(None),
        "mean_delay" => |code, _| known(code.mean_delay()),
        "no_delay" => |code, _| known(code.no_delay()),
        "mean_cycle" => |code, _| known(code.mean_cycle()),
        "late" => |code, slots| Ok(code.late(slots)),
        "quantile" => |code, q| probability(q).map(|q| code.quantile(q)),
        _ => return Err(unknown(py, quantity)),
    };
    map(py, inputs, out, |[loss, burst, spacing, argument]| {
        of(&Gilbert::new(loss, burst, whole(spacing, "spacing")?).map_err(text)?, argument)
    })
}

/// Quantities of plain retransmission.
#[pyfunction]
pub fn asking(py: Python<'_>, quantity: &str, inputs: [Bound<'_, PyAny>; 4], out: &Bound<'_, PyAny>) -> PyResult<()> {
    let of: fn(&Asking, f64) -> Value = match quantity {
        "check" => |_, _| Ok(None),
        "late" => |plain, slots| known(plain.late(slots)),
        "quantile" => |plain, q| probability(q).map(|q| plain.quantile(q)),
        _ => return Err(unknown(py, quantity)),
    };
    map(py, inputs, out, |[loss, burst, answer, argument]| {
        of(&Asking::new(loss, burst, answer).map_err(text)?, argument)
    })
}

/// Quantities of a block of Sphinx: its numbers, an argument and a burst, which some use.
#[pyfunction]
pub fn sphinx(
    py: Python<'_>,
    quantity: &str,
    printed: bool,
    ceiling: bool,
    inputs: [Bound<'_, PyAny>; 5],
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let form = if printed { Form::Printed } else { Form::Corrected };
    let rounding = if ceiling { Rounding::Up } else { Rounding::Down };
    let plan = |block: &Block, threshold| block.plan(threshold, form, rounding).map_err(text);
    let eliminated = |block: &Block, target, burst| block.plan_for_elimination(target, burst).map_err(text);
    let of = |block: &Block, x: f64, burst: f64| match quantity {
        "lost" => known(block.lost().into()),
        "degree" => block.degree(form, rounding).map_err(text).and_then(|degree| known(degree.into())),
        "among_lost" => known(block.among_lost(whole(x, "samples")?, whole(burst, "among")?)),
        "all_chosen" => known(block.all_chosen(whole(x, "among")?)),
        "coverage" => known(block.coverage(whole(x, "samples")?)),
        "samples" => block.samples(x).map_err(text).and_then(|samples| known(samples.into())),
        "repairs" => plan(block, x).and_then(|Plan { repairs, .. }| known(repairs.into())),
        "decoded" => known(block.decoded(whole(x, "repairs")?, burst)),
        "repairs_for_elimination" => eliminated(block, x, burst).and_then(|Plan { repairs, .. }| known(repairs.into())),
        _ => Err(format!("there is no quantity {quantity:?}")),
    };
    map(py, inputs, out, |[symbols, loss, deviation, x, burst]| {
        let symbols = u16::try_from(whole(symbols, "symbols")?).unwrap_or(u16::MAX);
        of(&Block::new(symbols, loss, deviation).map_err(text)?, x, burst)
    })
}

/// Quantities of shares of a path: rows of throughputs, and for each how many of its first flows are coded
/// and what a flow has without code.
#[pyfunction]
pub fn fairness(
    py: Python<'_>,
    quantity: &str,
    throughputs: &Bound<'_, PyAny>,
    inputs: [Bound<'_, PyAny>; 2],
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let of: fn(&Allocation) -> f64 = match quantity {
        "index" => Allocation::index,
        "jain" => Allocation::jain,
        "fair_coded" => Allocation::fair_coded,
        "lambda" => Allocation::lambda,
        "jain_alone" => |_| f64::NAN,
        _ => return Err(unknown(py, quantity)),
    };
    let table = Buffer::<f64>::of(throughputs, "throughputs", Access::Read)?;
    let flows = table.shape().last().map_or(0, |&flows| flows as usize);
    let table = table.as_slice();
    let row = |index: usize| table.get(index * flows..(index + 1) * flows).unwrap_or_default();
    let is_alone = quantity == "jain_alone";
    let mut index = 0;
    map(py, inputs, out, |[coded, alone]| {
        let shares = row(index);
        index += 1;
        if is_alone {
            return Ok(indices::jain(shares));
        }
        known(of(&Allocation::new(shares, whole(coded, "coded")? as usize, alone).map_err(text)?))
    })
}

/// The least redundancy that replaces losses.
#[pyfunction]
pub fn least_redundancy(py: Python<'_>, inputs: [Bound<'_, PyAny>; 1], out: &Bound<'_, PyAny>) -> PyResult<()> {
    map(py, inputs, out, |[loss]| match (0.0..1.0).contains(&loss) {
        true => known(indices::least_redundancy(loss)),
        false => Err(format!("loss rate {loss} is not at least 0 and below 1")),
    })
}

/// Writes `of` of each element of the inputs to `out`, without the GIL. Ctrl-C ends it.
fn map<const N: usize>(
    py: Python<'_>,
    inputs: [Bound<'_, PyAny>; N],
    out: &Bound<'_, PyAny>,
    mut of: impl FnMut([f64; N]) -> Value + Send,
) -> PyResult<()> {
    let inputs = inputs.iter().map(|input| Buffer::<f64>::of(input, "an argument", Access::Read));
    let inputs = inputs.collect::<PyResult<Vec<_>>>()?;
    let mut out = Buffer::<f64>::of(out, "out", Access::Write)?;
    check_apart(py, std::iter::once(out.range()), inputs.iter().map(Buffer::range))?;
    let columns: Vec<&[f64]> = inputs.iter().map(Buffer::as_slice).collect();
    let results = out.as_mut_slice();
    if let Some(column) = columns.iter().find(|column| column.len() != results.len()) {
        let (len, expected) = (column.len(), results.len());
        return Err(MODEL.raise(py, format!("an argument has {len} elements and the output {expected}: give as many")));
    }
    let wrong = py.detach(|| {
        let mut pulse = Pulse::new();
        for (index, result) in results.iter_mut().enumerate() {
            let element = std::array::from_fn(|column| columns.get(column).map_or(f64::NAN, |column| column[index]));
            match of(element) {
                Ok(value) => *result = value.unwrap_or(f64::NAN),
                Err(problem) => return Ok(Some((index, problem))),
            }
            pulse.check()?;
        }
        PyResult::Ok(None)
    })?;
    match wrong {
        None => Ok(()),
        Some((_, problem)) if columns.first().is_none_or(|column| column.len() == 1) => Err(MODEL.raise(py, problem)),
        Some((index, problem)) => Err(MODEL.raise(py, format!("element {index}: {problem}"))),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a value among those that may be missing")]
fn known(value: f64) -> Value {
    Ok(Some(value))
}

fn text(error: impl Display) -> String {
    error.to_string()
}

fn unknown(py: Python<'_>, quantity: &str) -> PyErr {
    MODEL.raise(py, format!("there is no quantity {quantity:?}"))
}

/// A number that counts something.
fn whole(value: f64, name: &str) -> Result<u32, String> {
    let fits = value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value);
    fits.then_some(value as u32).ok_or_else(|| format!("{name} is {value}, give a whole number of at least 0"))
}

fn probability(q: f64) -> Result<f64, String> {
    (0.0..1.0).contains(&q).then_some(q).ok_or_else(|| format!("quantile {q} is not at least 0 and below 1"))
}
