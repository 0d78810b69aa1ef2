//! Policies of published papers, for comparison with the default ones. One file for each policy.
//!
//! `bucket`, `pipeline`, `rcdp` and `sphinx` are proactive policies, `icm` is the answer policy of Sphinx.
//! The profiles of the same names choose them. Invariant: neither `proactive` nor `answer` uses this room.

mod bucket;
mod icm;
mod pipeline;
mod rcdp;
mod sphinx;

pub(crate) use bucket::BUCKET_RANGE;
pub(super) use bucket::Bucket;
pub use bucket::BucketBlocks;
pub(super) use icm::Icm;
pub use icm::Trigger;
pub(crate) use pipeline::PIPELINE_RANGE;
pub(super) use pipeline::Pipeline;
pub use pipeline::{PipelineBlocks, Ratio};
pub(super) use rcdp::Rcdp;
pub use rcdp::RcdpBlocks;
pub(super) use sphinx::Sphinx;
pub use sphinx::SphinxBlocks;
