//! Checks that the modules at the top of each crate do not use each other in a circle: one of them can always
//! be read, tested and moved without the others.
//!
//! The step `rooms` calls it. A use is a path that begins with `crate::`, or with as many `super::` as lead
//! there. What `lib.rs` re-exports belongs to no module, and unit tests are exempt. `proto` has a stricter
//! rule: the order of [`super::rooms`], which reads the uses here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use syn::visit::Visit;

use crate::tree::{self, File};

/// Circles that stay: the crate, its modules, and why they belong together.
const KNOWN: [(&str, &[&str], &str); 13] = [
    ("tidewire-capi", &["edge", "polling"], "an entry of a poll has the handle as C passes it"),
    ("tidewire-capi", &["listener", "settings", "socket"], "a socket is a listener in one of its states"),
    ("tidewire-cli", &["listen", "via"], "a far end across relays is awaited as one without"),
    (
        "tidewire-codec",
        &["code", "kernel", "neighbours", "row_16"],
        "each kernel compiles the codes' hashes for itself",
    ),
    ("tidewire-command", &["records", "report"], "a report holds the delays that the records give"),
    ("tidewire-recording", &["axes", "event"], "the axes of a profile are fields of an event"),
    ("tidewire-recording", &["block", "reader"], "a block that cannot be parsed is an error of the reader"),
    ("tidewire-sim", &["jobs", "pair"], "jobs are kept by the end of the pair that gave them"),
    ("tidewire", &["alarm", "clock"], "the timer waits with the alarm, which reads the clock"),
    ("tidewire", &["connection", "shared", "stream"], "the state under one lock, and its two handles"),
    ("tidewire", &["endpoint", "relay"], "an endpoint connects across relays, and a relay closes as an endpoint"),
    ("tidewire-lab-cli", &["hosts", "network", "report", "sim"], "verbs that print the same rows and wait alike"),
    ("tidewire-lab", &["check", "shaping"], "a part of the check, with its limits"),
];

/// What each module uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The circles of all packages, except the known ones.
pub fn of_crates(packages: &[Value]) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for package in packages {
        let [name, manifest] = ["name", "manifest_path"].map(|key| package[key].as_str().unwrap_or_default());
        let mut graph = Graph::new();
        for source in sources(&Path::new(manifest).with_file_name("src"))? {
            graph.entry(source.module).or_default().extend(source.uses);
        }
        let mut known: Vec<_> = KNOWN.iter().filter(|(of, ..)| *of == name).map(|known| (known, false)).collect();
        for circle in circles(&graph) {
            let is_of = |modules: &[&str]| circle.iter().all(|module| modules.contains(module));
            if let Some((_, is_there)) = known.iter_mut().find(|((_, modules, _), _)| is_of(modules)) {
                *is_there = true;
                continue;
            }
            let uses = circle.iter().flat_map(|module| graph[*module].iter().map(move |used| (*module, used)));
            let uses = uses.filter(|(_, used)| circle.contains(used.as_str()));
            let uses: Vec<_> = uses.map(|(module, used)| format!("{module} uses {used}")).collect();
            wrong.push(format!("{name}: modules in a circle: {}", uses.join(", ")));
        }
        let gone = known.iter().filter(|(_, is_there)| !is_there);
        wrong.extend(gone.map(|((_, modules, _), _)| format!("{name}: no circle of {} any more", modules.join(", "))));
    }
    Ok(wrong)
}

/// A file of a crate.
pub struct Source {
    /// Its path below `src`.
    pub name: String,
    pub text: String,
    /// The module at the top that it belongs to.
    pub module: String,
    /// The other modules at the top whose names its paths have.
    pub uses: BTreeSet<String>,
}

/// The files below a crate's `src`, without unit tests and the root of the crate.
pub fn sources(folder: &Path) -> Result<Vec<Source>, String> {
    let is_test = |name: &str| name.split(['/', '.', '_']).any(|part| part == "tests");
    let files = tree::files(folder, &[".rs"])?.into_iter();
    files.filter(|file| !is_test(&file.name) && !matches!(&*file.name, "lib.rs" | "main.rs")).map(Source::new).collect()
}

impl Source {
    pub fn new(File { name, text }: File) -> Result<Self, String> {
        let file = syn::parse_file(&text).map_err(|e| format!("{name}: {e}"))?;
        let parts: Vec<&str> = name.trim_end_matches(".rs").split('/').filter(|part| *part != "mod").collect();
        let mut found = Uses { depth: parts.len(), names: BTreeSet::new() };
        found.visit_file(&file);
        let module = parts[0].to_owned();
        found.names.remove(&module);
        Ok(Self { module, uses: found.names, name, text })
    }
}

/// The sets of modules that use each other, directly or through others of the set.
fn circles(graph: &Graph) -> BTreeSet<BTreeSet<&str>> {
    let reached = |from: &str| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(module) = open.pop() {
            let used = graph.get(&module).into_iter().flatten();
            open.extend(used.filter(|used| reached.insert((*used).clone())).cloned());
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<String>> =
        graph.keys().map(|module| (module.as_str(), reached(module))).collect();
    let circle = |module: &&str| {
        let others = reached.keys().filter(|other| reached[*module].contains(**other));
        others.filter(|other| reached[*other].contains(*module)).copied().collect::<BTreeSet<_>>()
    };
    reached.keys().map(circle).filter(|circle| !circle.is_empty()).collect()
}

/// Collects the first name behind `crate::`, or behind the `super::` that lead to the top.
struct Uses {
    /// How deep the module lies that is visited; 1 at the top.
    depth: usize,
    names: BTreeSet<String>,
}

impl Uses {
    /// Whether these names lead to the top of the crate.
    fn is_top(&self, names: &[String]) -> bool {
        names == ["crate"] || (names.len() == self.depth && names.iter().all(|name| name == "super"))
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                self.name(before, &path.ident);
                let names = [before, &[path.ident.to_string()]].concat();
                self.tree(&names, &path.tree);
            }
            syn::UseTree::Name(name) => self.name(before, &name.ident),
            syn::UseTree::Rename(name) => self.name(before, &name.ident),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
            syn::UseTree::Glob(_) => {}
        }
    }

    fn name(&mut self, before: &[String], name: &syn::Ident) {
        if self.is_top(before) {
            self.names.insert(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            self.depth += 1;
            syn::visit::visit_item_mod(self, module);
            self.depth -= 1;
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let tops = (1..names.len()).filter(|&at| self.is_top(&names[..at]));
        let used: Vec<String> = tops.map(|at| names[at].clone()).collect();
        self.names.extend(used);
        syn::visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_to_the_top_are_uses() {
        let text = "use crate::{a::A, b}; use super::super::c::C as D; use super::e;\n\
                    fn f(_: super::super::g::G) { crate::h::i(); super::j(); crate::own::k() }\n\
                    mod tests { use crate::l; } mod m { use super::super::super::n; }";
        let uses = |name: &str, text: &str| {
            let source = Source::new(File { name: name.into(), text: text.into() }).unwrap();
            assert_eq!(source.module, "own");
            source.uses.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(uses("own/deep.rs", text), ["a", "b", "c", "g", "h", "n"]);
        assert_eq!(uses("own/mod.rs", "use super::a::A;"), ["a"]);
    }

    #[test]
    fn modules_that_use_each_other_are_a_circle() {
        let graph = [("a", "b"), ("b", "c"), ("c", "b d"), ("d", ""), ("e", "a X")];
        let graph: Graph = graph
            .map(|(module, used)| (module.to_owned(), used.split_whitespace().map(str::to_owned).collect()))
            .into();
        assert_eq!(circles(&graph), [["b", "c"].into()].into());
    }
}
