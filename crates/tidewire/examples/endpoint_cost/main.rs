//! What connections cost an endpoint beside each other: many idle ones (part `many`), and a hostile peer that
//! holds the right keys (parts `hostile`, `blocks`, `sockets`, `policies`, `answers`); `idle` is `many` over
//! a socket.
//!
//! `cargo run --release -p tidewire --example endpoint_cost [-- PART] [WORD] [--write]`. In `many`, `hostile`
//! and `blocks` the endpoint runs without a socket and in virtual time, driven as the library's driver drives
//! it. `sockets` takes 80 seconds, `policies` 25 minutes, `answers` 20; a WORD chooses the rows whose
//! names contain it. `--write` puts their tables into `docs/data`. Close everything else first; where others
//! use the machine, put `chrt -f 1` in front.

mod blocks;
mod floods;
mod host;
mod hostile;
mod many;
#[cfg(target_os = "linux")]
mod neighbour;
#[cfg(target_os = "linux")]
mod policies;
#[cfg(target_os = "linux")]
mod rows;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod sockets;

fn main() {
    let (options, words): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let part = words.first();
    let word = words.get(1).map_or("", String::as_str);
    let wanted = |name| part.is_none_or(|part| part == name);
    if wanted("many") {
        many::run();
    }
    if wanted("hostile") {
        hostile::run(word);
    }
    if wanted("blocks") {
        blocks::run();
    }
    #[cfg(target_os = "linux")]
    {
        let writes = options.iter().any(|word| word == "--write");
        if wanted("sockets") {
            sockets::run(word, writes);
        }
        if wanted("idle") {
            sockets::idle();
        }
        // These take too long to be run with the others.
        if let Some(part @ ("policies" | "answers")) = part.map(String::as_str) {
            policies::run(word, part == "answers", writes);
        }
    }
}
