//! The licences of the crates that are part of the binary. They ask that their texts go with every copy.
//!
//! [`collect`] reads the licence files in the sources of each crate, as cargo unpacked them. Equal texts
//! stand once. Invariant: every foreign crate of the command is named, with its licence expression.

use crate::context::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Beginnings of the names of files with a licence, in lower case.
const NAMES: [&str; 5] = ["license", "licence", "copying", "copyright", "notice"];

/// All notices as one text: the list of crates, then each text with the crates that it came with.
pub fn collect(context: &Context) -> Result<String, String> {
    let tree = context.output_of(TREE)?;
    let used: BTreeSet<_> = tree.lines().filter_map(name_and_version).collect();
    let (mut list, mut texts) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    let mut found = 0;
    for package in context.packages("--locked")? {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {}", field("name"), field("version"));
        if !used.contains(&name) {
            continue;
        }
        found += 1;
        // The crates of the workspace have no source. Their licence is in the package's own copyright file.
        if package["source"].is_null() {
            continue;
        }
        list += &format!("{name} ({})\n", field("license"));
        for text in texts_in(Path::new(field("manifest_path")).parent().unwrap_or(Path::new("/")))? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    if found != used.len() {
        return Err(format!("cargo tree names {} crates, and cargo metadata knows {found} of them", used.len()));
    }
    let mut notices = format!("Tidewire contains these crates, under these licences:\n\n{list}");
    for (text, crates) in texts {
        notices += &format!("\n{}\n{}:\n\n{}\n", "-".repeat(80), crates.join(", "), text.trim_end());
    }
    Ok(notices)
}

/// `NAME VERSION` of a line of `cargo tree --prefix none`, which begins with `NAME vVERSION`.
fn name_and_version(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    Some(format!("{} {}", words.next()?, words.next()?.strip_prefix('v')?))
}

/// The texts of the licence files in a folder, in the order of their names.
fn texts_in(folder: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let is_licence = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        path.is_file() && NAMES.iter().any(|beginning| name.starts_with(beginning))
    };
    paths.iter().filter(|path| is_licence(path)).map(|path| super::read(path)).collect()
}

/// What is linked into the commands: no development dependencies and no build scripts. Procedural macros are
/// among them, which is harmless.
const TREE: &str = "cargo tree --locked --package tidewire-cli --package tidewire-lab-cli --edges normal --prefix none";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_tree_are_read() {
        assert_eq!(name_and_version("log v0.4.1 (*)").as_deref(), Some("log 0.4.1"));
        assert_eq!(name_and_version(""), None);
    }

    #[test]
    fn licence_files_are_found_by_their_names() {
        let root = Context::new().unwrap().root;
        let texts = texts_in(&root).unwrap();
        assert_eq!(texts.len(), 2, "LICENSE-APACHE and LICENSE-MIT");
        assert!(texts[1].starts_with("MIT License"));
    }
}
