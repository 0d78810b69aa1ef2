//! The jobs that run between two processes, with a lossy link between them: forwarding, pipes, measuring.
#![cfg(unix)]

mod bench;
mod browser;
#[cfg(target_os = "linux")]
mod bypass;
mod combinations;
mod crowd;
mod dash;
mod ends;
mod files;
mod forward;
mod hostile;
mod keys;
mod links;
mod live;
mod memory;
#[cfg(target_os = "linux")]
mod names;
#[cfg(target_os = "linux")]
#[expect(dead_code, reason = "tests of sockets need more of it")]
#[path = "../../../tidewire/tests/sockets/namespaces.rs"]
mod namespaces;
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
