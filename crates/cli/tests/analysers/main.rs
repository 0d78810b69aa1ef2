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

/// Fails unless the machine has a program.
fn needs(program: &str) {
    let has = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    tidewire_testing::needs(program, has);
}

/// A file of the repository.
fn repository(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}
