//! Prints the lines of each crate, and every file, function and struct over the limits.
//!
//! Large files make projects of this field hard to read, so the limits are checked. A file whose first line
//! says `@generated` (tables written by a program) is counted but not limited. A function's length runs from
//! the line of its `fn` to its closing brace. It includes comments, but neither attributes nor documentation.
//! A struct with many fields has several purposes; its fields belong into groups.

use crate::context::Context;
use crate::tree;
use std::collections::BTreeMap;
use syn::visit::Visit;

/// Prints the report. A file or function over its hard limit is an error.
pub fn check(context: &Context) -> Result<(), String> {
    let sources = tree::files(&context.root, &[".rs"])?;
    let files = sources.into_iter().map(|file| measure(file.name, &file.text)).collect::<Result<Vec<_>, _>>()?;
    print!("{}", totals(&files));
    let offences = files.iter().flat_map(File::offences).collect::<Vec<_>>();
    for offence in &offences {
        println!("{}", offence.text);
    }
    match offences.iter().filter(|offence| offence.hard).count() {
        0 => Ok(()),
        count => Err(format!("{count} files, functions or structs over the hard limit: split them")),
    }
}

/// One file's measures.
struct File {
    name: String,
    lines: usize,
    generated: bool,
    functions: Vec<Function>,
    structs: Vec<Struct>,
}

/// One function, method or nested function.
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// One struct with named fields.
struct Struct {
    name: String,
    line: usize,
    fields: usize,
}

/// A file, function or struct over a limit. If `hard`, the step fails.
struct Offence {
    text: String,
    hard: bool,
}

fn measure(name: String, text: &str) -> Result<File, String> {
    let generated = text.lines().next().is_some_and(|line| line.contains("@generated"));
    let parsed = syn::parse_file(text).map_err(|e| format!("{name}: {e}"))?;
    let mut items = Items::default();
    items.visit_file(&parsed);
    let Items { functions, structs } = items;
    Ok(File { name, lines: text.lines().count(), generated, functions, structs })
}

impl File {
    fn offences(&self) -> Vec<Offence> {
        let mut offences = Vec::new();
        if self.generated {
            return offences;
        }
        if self.lines > FILE_LIMIT {
            let text = format!("{}: {} lines, at most {FILE_LIMIT}", self.name, self.lines);
            offences.push(Offence { text, hard: true });
        }
        for Function { name, line, lines } in self.functions.iter().filter(|function| function.lines > FUNCTION_AIM) {
            let hard = *lines > FUNCTION_LIMIT;
            let limit = if hard { format!("at most {FUNCTION_LIMIT}") } else { format!("aim for {FUNCTION_AIM}") };
            offences.push(Offence { text: format!("{}:{line}: fn {name}: {lines} lines, {limit}", self.name), hard });
        }
        for Struct { name, line, fields } in self.structs.iter().filter(|item| item.fields > FIELD_LIMIT) {
            let text = format!("{}:{line}: struct {name}: {fields} fields, at most {FIELD_LIMIT}", self.name);
            offences.push(Offence { text, hard: true });
        }
        offences
    }

    /// The folder under which the file is counted: its crate, or the first folder of its path.
    fn room(&self) -> &str {
        let depth = if self.name.starts_with("crates/") { 2 } else { 1 };
        let end = self.name.match_indices('/').nth(depth - 1).map_or(self.name.len(), |(at, _)| at);
        &self.name[..end]
    }
}

/// A table with one line for each crate: files, lines, the longest file and the longest function.
fn totals(files: &[File]) -> String {
    let mut rooms: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for file in files {
        let longest = file.functions.iter().map(|function| function.lines).max().unwrap_or(0);
        let [count, lines, longest_file, longest_function] = rooms.entry(file.room()).or_default();
        *count += 1;
        *lines += file.lines;
        *longest_file = (*longest_file).max(file.lines);
        *longest_function = (*longest_function).max(longest);
    }
    let mut text = format!("{:<18}{:>7}{:>8}{:>14}{:>12}\n", "", "files", "lines", "longest file", "longest fn");
    for (room, [count, lines, file, function]) in rooms {
        text += &format!("{room:<18}{count:>7}{lines:>8}{file:>14}{function:>12}\n");
    }
    text
}

/// Collects every function with a body and every struct with named fields.
#[derive(Default)]
struct Items {
    functions: Vec<Function>,
    structs: Vec<Struct>,
}

impl Items {
    fn push(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let last = body.brace_token.span.close().end().line;
        self.functions.push(Function { name: signature.ident.to_string(), line: first, lines: last - first + 1 });
    }
}

impl Visit<'_> for Items {
    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        let line = item.struct_token.span.start().line;
        self.structs.push(Struct { name: item.ident.to_string(), line, fields: item.fields.len() });
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        self.push(&item.sig, &item.block);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        self.push(&item.sig, &item.block);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.push(&item.sig, body);
        }
        syn::visit::visit_trait_item_fn(self, item);
    }
}

/// The most lines of a file; 150 to 400 is the aim (CONTRIBUTING.md).
const FILE_LIMIT: usize = 600;
/// The length that a function should not exceed: what fits on a screen.
const FUNCTION_AIM: usize = 60;
/// The most lines of a function.
const FUNCTION_LIMIT: usize = 100;
/// The most fields of a struct. Chosen.
const FIELD_LIMIT: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one method of `lines` lines, behind attributes and braces in strings that must not count.
    fn method_of(lines: usize) -> File {
        let body = "    let _ = \"{\";\n".repeat(lines - 2);
        let text = format!("struct S;\nimpl S {{\n/// Doc.\n#[inline]\nfn long(&self) {{\n{body}}}\n}}\n");
        measure("crates/codec/src/a.rs".into(), &text).unwrap()
    }

    #[test]
    fn functions_are_measured_from_signature_to_closing_brace() {
        assert_eq!(method_of(60).functions[0].lines, 60);
        assert_eq!(method_of(60).functions[0].line, 5);
        assert!(method_of(60).offences().is_empty());
        assert!(method_of(61).offences().iter().all(|offence| !offence.hard));
        assert_eq!(method_of(61).offences().len(), 1);
        assert!(method_of(101).offences()[0].hard);
    }

    #[test]
    fn long_files_fail_unless_generated() {
        let long = "\n".repeat(601);
        assert!(measure("a.rs".into(), &long).unwrap().offences()[0].hard);
        assert!(measure("a.rs".into(), &"\n".repeat(600)).unwrap().offences().is_empty());
        assert!(measure("a.rs".into(), &format!("// @generated by x{long}")).unwrap().offences().is_empty());
    }

    #[test]
    fn structs_of_many_fields_fail() {
        let with = |fields: usize| {
            let fields: String = (0..fields).map(|n| format!("f{n}: u8,")).collect();
            measure("a.rs".into(), &format!("struct S {{ {fields} }}")).unwrap().offences().len()
        };
        assert_eq!((with(15), with(16)), (0, 1));
    }

    #[test]
    fn a_file_belongs_to_its_crate() {
        assert_eq!(method_of(3).room(), "crates/codec");
        assert_eq!(measure("xtask/src/main.rs".into(), "").unwrap().room(), "xtask");
    }
}
