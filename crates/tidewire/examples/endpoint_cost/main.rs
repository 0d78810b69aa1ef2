//! What connections cost an endpoint beside each other: many idle ones (part `many`), and a hostile peer that
//! holds the right keys (parts `hostile`, `blocks` and `sockets`); `idle` is `many` over a socket.
//!
//! `cargo run --release -p tidewire --example endpoint_cost [-- many|hostile|blocks|sockets|idle]`. In
//! `many`, `hostile` and `blocks` the endpoint runs without a socket and in virtual time, driven as the
//! library's driver drives it. Close everything else first; where others use the machine, put `chrt -f 1` in
//! front.

mod blocks;
mod floods;
mod host;
mod hostile;
mod many;
#[cfg(target_os = "linux")]
mod sockets;

fn main() {
    let part = std::env::args().nth(1);
    let wanted = |name| part.as_deref().is_none_or(|part| part == name);
    if wanted("many") {
        many::run();
    }
    if wanted("hostile") {
        hostile::run();
    }
    if wanted("blocks") {
        blocks::run();
    }
    #[cfg(target_os = "linux")]
    if wanted("sockets") {
        sockets::run();
    }
    #[cfg(target_os = "linux")]
    if wanted("idle") {
        sockets::idle();
    }
}
