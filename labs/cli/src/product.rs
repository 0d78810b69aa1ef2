//! Where the command `tidewire` is: the flows and peers of the laboratory that are ours run as that program.

use std::path::PathBuf;

use anyhow::{Context, ensure};

/// The file of the command: beside this one, where packages and cargo put both.
///
/// # Errors
/// Fails if there is none.
pub fn file() -> anyhow::Result<PathBuf> {
    let file = std::env::current_exe().context("cannot find this program")?.with_file_name("tidewire");
    ensure!(
        file.is_file(),
        "`{}` is missing: install tidewire beside tidewire-lab, or build both by cargo build --workspace",
        file.display()
    );
    Ok(file)
}
