//! What other programs make of a job: Debian's tshark of its packets, Debian's Prometheus of its figures, and
//! readers of qlog. Tests that need a program that the machine lacks say so and pass.
#![cfg(target_os = "linux")]

#[path = "../process/mod.rs"]
mod process;
mod prometheus;
mod qlog;
#[path = "../schema/mod.rs"]
mod schema;
mod wireshark;

use std::process::Command;

/// Whether the machine has a program. If not, prints it.
fn has(program: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !has {
        eprintln!("SKIPPED: no `{program}`");
    }
    has
}

/// A file of the repository.
fn repository(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}
