//! Checks that dependencies point in one direction: a crate uses only crates before it in [`CRATES`], and a
//! room of `proto` only rooms before it in [`ROOMS`] (docs/adr/0001-five-axes.md).
//!
//! The dependencies of crates come from `cargo metadata`; those of rooms from the paths in `proto`'s sources
//! that begin with `crate::`. Unit tests are exempt. In every crate, [`circles`] finds what has no order.

use std::fs;
use std::path::Path;

use serde_json::Value;
use syn::visit::Visit;

use crate::circles;
use crate::context::Context;

/// Crates by floor, the lowest first. Crates of one floor do not use each other.
const CRATES: [&[&str]; 9] = [
    &["tidewire-testing", "tidewire-figures"],
    &["tidewire-codec", "tidewire-units", "tidewire-model"],
    &["tidewire-proto"],
    &["tidewire-sim", "tidewire"],
    &[
        "tidewire-proxy",
        "tidewire-recording",
        "tidewire-transfer",
        "tidewire-forward",
        "tidewire-tunnel",
        "tidewire-command",
    ],
    &["tidewire-dashboard", "tidewire-live"],
    &["tidewire-lab", "tidewire-cli", "tidewire-capi", "tidewire-py"],
    &["tidewire-papers"],
    &["tidewire-lab-cli", "tidewire-measure"],
];

/// Rooms, the lowest first. A file beside the folders is a room too.
const ROOMS: [&str; 24] = [
    "time",
    "codel",
    "counts",
    "ids",
    "close",
    "event",
    "custom",
    "hex",
    "wire",
    "crypto",
    "handshake",
    "path",
    "rate",
    "redundancy",
    "stats",
    "profile",
    "trace",
    "lane",
    "recode",
    "config",
    "connection",
    "tunnel",
    "endpoint",
    "relay",
];

/// Rooms that handle packets and not symbols: they must not use the codec.
const WITHOUT_SYMBOLS: [&str; 2] = ["path", "rate"];

/// Fails if a crate or room uses a higher one, or modules use each other in a circle. Prints every such use.
pub fn check(context: &Context) -> Result<(), String> {
    let root = context.root.join("crates/proto/src");
    let mut wrong = Vec::new();
    for manifest in ["Cargo.toml", "crates/py/Cargo.toml"] {
        let line = format!("cargo metadata --no-deps --format-version 1 --manifest-path {manifest}");
        let metadata = context.output_of(&line)?;
        wrong.extend(offences_of_crates(&metadata)?);
        wrong.extend(circles::of_crates(&metadata)?);
    }
    visit_files(&root, &root, &mut wrong)?;
    wrong.iter().for_each(|line| println!("{line}"));
    match wrong.len() {
        0 => Ok(()),
        count => Err(format!(
            "{count} uses of a higher crate or room, or circles: move the item to a lower one, or reverse the dependency"
        )),
    }
}

/// The dependencies in the output of `cargo metadata` that do not point to a lower floor.
fn offences_of_crates(metadata: &str) -> Result<Vec<String>, String> {
    let metadata: Value = serde_json::from_str(metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let floor = |name: &str| CRATES.iter().position(|floor| floor.contains(&name));
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = text(&package["name"]);
        if name == "xtask" {
            continue;
        }
        let own = floor(&name).ok_or_else(|| format!("crate {name} is not in the list of xtask/src/rooms.rs"))?;
        let used = package["dependencies"].as_array().into_iter().flatten().map(|used| text(&used["name"]));
        let is_wrong = |used: &String| floor(used).is_some_and(|floor| floor >= own);
        wrong.extend(used.filter(is_wrong).map(|used| format!("{name}: depends on {used}, which is not below it")));
    }
    Ok(wrong)
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

/// Collects the first name behind each `crate::`.
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
    fn a_crate_depends_on_those_below_it() {
        let metadata = |name: &str, used: &str| {
            format!(
                r#"{{"packages": [{{"name": "{name}", "dependencies": [{{"name": "serde"}}, {{"name": "{used}"}}]}}]}}"#
            )
        };
        let wrong = |name, used| offences_of_crates(&metadata(name, used)).map(|wrong| wrong.len());
        assert_eq!(wrong("tidewire-papers", "tidewire-lab"), Ok(0));
        for (name, used) in [("tidewire-lab", "tidewire-cli"), ("tidewire", "tidewire-sim")] {
            assert_eq!(wrong(name, used), Ok(1));
        }
        assert!(wrong("tidewire-attic", "tidewire").is_err());
    }

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
