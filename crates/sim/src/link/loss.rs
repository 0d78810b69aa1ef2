//! Decides which datagrams a link loses. Called once for each datagram after the queue, in order.

use std::sync::Arc;

use super::config::Loss;
use super::random::{Purpose, Stream};

/// The state of the loss model of one link direction.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    stream: Stream,
    model: Model,
}

#[derive(Clone, Debug)]
enum Model {
    None,
    /// Independent and Gilbert loss: a threshold for the next draw after a pass and one after a loss. If both
    /// are equal, the losses are independent.
    TwoState {
        after_pass: f64,
        after_loss: f64,
        /// Threshold for the next datagram; at first that of the steady state.
        next: f64,
    },
    Trace(Arc<[bool]>),
}

impl LossProcess {
    pub(crate) fn new(loss: &Loss, seed: u64) -> Self {
        let model = match loss {
            Loss::None => Model::None,
            Loss::Iid(p) => Model::TwoState { after_pass: p.value(), after_loss: p.value(), next: p.value() },
            Loss::Gilbert(gilbert) => Model::TwoState {
                after_pass: gilbert.loss_after_pass(),
                after_loss: gilbert.loss_after_loss(),
                next: gilbert.loss().value(),
            },
            Loss::Trace(trace) if trace.is_empty() => Model::None,
            Loss::Trace(trace) => Model::Trace(Arc::clone(trace)),
        };
        Self { stream: Stream::new(seed, Purpose::Loss), model }
    }

    /// Whether datagram `serial` is lost.
    pub(crate) fn loses(&mut self, serial: u64) -> bool {
        match &mut self.model {
            Model::None => false,
            Model::TwoState { after_pass, after_loss, next } => {
                let lost = self.stream.unit(serial) < *next;
                *next = if lost { *after_loss } else { *after_pass };
                lost
            }
            Model::Trace(trace) => trace[(serial % trace.len() as u64) as usize],
        }
    }
}
