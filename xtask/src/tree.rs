//! Finds the files of the working tree that the text checks read: `size`, `words`, `links`.
//!
//! Invariant: build output, git's own folder and fuzz corpora are never listed, and the order is that of the
//! paths, so that reports of two runs can be compared.

use std::fs;
use std::path::Path;

/// One text file of the tree.
pub struct File {
    /// The path from the workspace root, with `/` between its parts.
    pub name: String,
    pub text: String,
}

/// Reads every file below `root` whose path ends with one of `endings`.
pub fn files(root: &Path, endings: &[&str]) -> Result<Vec<File>, String> {
    let mut found = Vec::new();
    collect(root, root, endings, &mut found)?;
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

fn collect(root: &Path, folder: &Path, endings: &[&str], found: &mut Vec<File>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                collect(root, &path, endings, found)?;
            }
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        if endings.iter().any(|ending| name.ends_with(ending)) {
            let text = fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
            found.push(File { name, text });
        }
    }
    Ok(())
}

/// Names of folders that hold no text written by a person.
const SKIPPED: [&str; 5] = ["target", ".git", "corpus", "artifacts", "proptest-regressions"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;

    #[test]
    fn sources_are_found_in_order_and_build_output_is_not() {
        let found = files(&Context::new().unwrap().root, &[".rs", ".md"]).unwrap();
        assert!(found.is_sorted_by(|one, other| one.name < other.name));
        assert!(found.iter().any(|file| file.name == "xtask/src/tree.rs" && file.text.contains("SKIPPED")));
        assert!(found.iter().any(|file| file.name == "README.md"));
        assert!(!found.iter().any(|file| file.name.contains("target/") || file.name.ends_with(".toml")));
    }
}
