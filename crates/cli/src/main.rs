//! The `tidewire` command.
fn main() {}
