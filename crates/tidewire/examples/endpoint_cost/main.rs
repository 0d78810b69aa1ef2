//! What connections cost an endpoint beside each other: many idle ones (part `many`), and a hostile peer that holds the right keys (part `hostile`).
//!
//! `cargo run --release -p tidewire --example endpoint_cost [-- many|hostile]`. The endpoint runs without a socket and in virtual time, driven as the
//! library's driver drives it. Close everything else first.

mod host;
mod hostile;
mod many;

fn main() {
    let part = std::env::args().nth(1);
    let wanted = |name| part.as_deref().is_none_or(|part| part == name);
    if wanted("many") {
        many::run();
    }
    if wanted("hostile") {
        hostile::run();
    }
}
