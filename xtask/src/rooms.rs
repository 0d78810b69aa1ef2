//! The arrow between the rooms of `proto`: each uses only those before it in [`ROOMS`]
//! (docs/adr/0001-five-axes.md).
//!
//! Reads the paths that begin with `crate::` from every source file. Unit tests may use what they like.

use std::fs;
use std::path::Path;

use syn::visit::Visit;

use crate::context::Context;

/// Rooms from the lowest floor up. A file beside the folders is a room too.
const ROOMS: [&str; 20] = [
    "time",
    "ids",
    "close",
    "event",
    "custom",
    "nearest",
    "hex",
    "model",
    "wire",
    "crypto",
    "handshake",
    "path",
    "rate",
    "redundancy",
    "stats",
    "lane",
    "profile",
    "config",
    "connection",
    "endpoint",
];

/// Rooms that know packets, and no symbols: they do not use the codec.
const WITHOUT_SYMBOLS: [&str; 2] = ["path", "rate"];

/// Fails with every use of a higher room by a lower one.
pub fn check(context: &Context) -> Result<(), String> {
    let root = context.root.join("crates/proto/src");
    let mut wrong = Vec::new();
    visit_files(&root, &root, &mut wrong)?;
    wrong.iter().for_each(|line| println!("{line}"));
    match wrong.len() {
        0 => Ok(()),
        count => Err(format!("{count} uses of a higher room: move what is used to a lower one, or turn the use round")),
    }
}

fn visit_files(root: &Path, folder: &Path, wrong: &mut Vec<String>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let is_test = name.split(['/', '.', '_']).any(|part| part == "tests");
        if path.is_dir() {
            visit_files(root, &path, wrong)?;
        } else if name.ends_with(".rs") && name != "lib.rs" && !is_test {
            let text = fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
            wrong.extend(offences(&name, &text)?);
        }
    }
    Ok(())
}

/// The uses of higher rooms in one file of this name.
fn offences(name: &str, text: &str) -> Result<Vec<String>, String> {
    let room = name.split(['/', '.']).next().unwrap_or_default();
    let own = rank(room).ok_or_else(|| format!("{name}: room {room} is not in the list of xtask/src/rooms.rs"))?;
    let file = syn::parse_file(text).map_err(|e| format!("{name}: {e}"))?;
    let mut uses = Uses::default();
    uses.visit_file(&file);
    let is_higher = |used: &&String| rank(used).is_some_and(|rank| rank > own);
    let mut wrong: Vec<_> =
        uses.0.iter().filter(is_higher).map(|used| format!("{name}: uses {used}, a room above it")).collect();
    if WITHOUT_SYMBOLS.contains(&room) && text.contains("tidewire_codec") {
        wrong.push(format!("{name}: uses the codec, but knows no symbols"));
    }
    Ok(wrong)
}

fn rank(room: &str) -> Option<usize> {
    ROOMS.iter().position(|known| *known == room)
}

/// First names behind `crate::`.
#[derive(Default)]
struct Uses(Vec<String>);

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_use_path(&mut self, path: &'ast syn::UsePath) {
        if path.ident == "crate" {
            first_names(&path.tree, &mut self.0);
        }
        syn::visit::visit_use_path(self, path);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|segment| segment.ident == "crate") {
            self.0.extend(segments.next().map(|segment| segment.ident.to_string()));
        }
        syn::visit::visit_path(self, path);
    }
}

fn first_names(tree: &syn::UseTree, found: &mut Vec<String>) {
    match tree {
        syn::UseTree::Path(path) => found.push(path.ident.to_string()),
        syn::UseTree::Name(name) => found.push(name.ident.to_string()),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| first_names(tree, found)),
        syn::UseTree::Rename(_) | syn::UseTree::Glob(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_room_may_not_use_a_higher_one() {
        let text =
            "use crate::{Time, path::Rtt};\nfn f() { crate::connection::g(); }\nmod tests { use crate::endpoint::E; }";
        assert_eq!(
            offences("lane/sender.rs", text),
            Ok(vec!["lane/sender.rs: uses connection, a room above it".into()])
        );
        assert_eq!(offences("wire/frame.rs", text).map(|found| found.len()), Ok(2));
        assert_eq!(offences("endpoint.rs", text), Ok(vec![]));
        assert!(offences("attic/x.rs", text).is_err());
        let symbols = "use tidewire_codec::SourceId;";
        assert_eq!(offences("lane/sender.rs", symbols), Ok(vec![]));
        assert_eq!(offences("path/flight.rs", symbols).map(|found| found.len()), Ok(1));
    }
}
