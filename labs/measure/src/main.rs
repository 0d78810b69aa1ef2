//! `cargo measure`: measures the figures that the documents state, and compares them with their goals.
//!
//! A person runs it on a quiet machine, through the alias in `.cargo/config.toml`; no check does, because
//! times depend on the load of the machine. `figures` runs processes on loopback, `lab` runs them in network
//! namespaces, `swarm` and `soak` run fresh seeds of the simulator. Invariant: every printed figure was
//! measured in this call.

mod context;
mod figures;
mod lab;
mod swarm;
mod tables;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((command, rest)) = arguments.split_first() {
        match command.as_str() {
            "figures" => return figures::main(rest),
            "lab" => return lab::main(rest),
            "swarm" | "soak" => return swarm::main(command, rest),
            _ => {}
        }
    }
    eprintln!("cargo measure figures   {}", figures::ABOUT);
    eprintln!("cargo measure lab       {}", lab::ABOUT);
    eprintln!("cargo measure swarm     {}", swarm::ABOUT);
    eprintln!("cargo measure soak      {}", swarm::ABOUT_SOAK);
    ExitCode::from(2)
}
