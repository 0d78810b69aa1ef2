//! Tests that need the crate's private parts: failing jobs, failing system calls and datagrams that arrive at
//! another shard. Tests of the public interface are in the crate's `tests` folder.

mod panics;
mod placement;
pub mod refusals;
mod shards;
