//! What the machine and the network do to running processes: processes are stopped, the address translator
//! between them rebinds, their system calls fail (`docs/survival.md`, E7 to E9).
#![cfg(target_os = "linux")]

mod calls;
#[path = "../process/mod.rs"]
mod process;
mod rebinding;
#[path = "../schema/mod.rs"]
mod schema;
mod stopped;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use process::tidewire;

/// A file whose bytes follow from its name.
fn write(path: &Path, bytes: u64) {
    let reader = blake3::Hasher::new().update(path.file_name().unwrap().as_encoded_bytes()).finalize_xof();
    std::io::copy(&mut reader.take(bytes), &mut File::create(path).unwrap()).unwrap();
}

/// A receiver of one transfer into `folder`.
fn receive(folder: &Path, listen: &str) -> Command {
    let mut command = tidewire(&["receive", "--json", "--once", "--listen", listen, "--dir"]);
    command.arg(folder);
    command
}

/// `command` as the argument of `wrapper`.
fn wrapped(mut wrapper: Command, command: &Command) -> Command {
    wrapper.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => wrapper.env(key, value),
            None => wrapper.env_remove(key),
        };
    }
    wrapper
}
