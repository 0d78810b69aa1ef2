//! The jobs that run between two processes, with a lossy link between them: forwarding, pipes, measuring.
#![cfg(unix)]

mod bench;
mod browser;
mod combinations;
mod crowd;
mod dash;
mod files;
mod forward;
mod hostile;
mod keys;
mod live;
mod memory;
mod pipe;
mod probe;
#[path = "../process/mod.rs"]
mod process;
mod record;
mod relay;
mod reverse;
#[path = "../schema/mod.rs"]
mod schema;
mod single;
mod socks;
mod ssh;
mod what_if;
mod workers;
