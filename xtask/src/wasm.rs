//! Proves that protocol, models and codec do no I/O: they are linked for `wasm32-unknown-unknown`, a target
//! without an operating system, and the module must import nothing.
//!
//! A wasm module needs an import for everything it asks of its environment: a clock, randomness, a socket.
//! The linker keeps dead code and each crate is one object file, so that the proof covers all code of these
//! crates and not only what an entry point reaches.

use crate::context::{Context, run};
use crate::tools;
use std::fs;

/// Builds and links the module, and fails if it has an import.
pub fn check(context: &Context) -> Result<(), String> {
    tools::target(context, TARGET)?;
    context.run(&format!("cargo build --package tidewire-codec --target {TARGET}"))?;
    let line = format!("cargo rustc --package tidewire-proto --lib --no-default-features --target {TARGET}");
    let mut command = context.command(&line);
    // Both are needed: rustc and the linker each drop unused functions.
    command.args(["--crate-type", "cdylib", "--", "-Clink-dead-code", "-Clink-arg=--no-gc-sections"]);
    run(command.env("CARGO_PROFILE_DEV_CODEGEN_UNITS", "1"))?;

    let artefact = context.target.join(TARGET).join("debug/tidewire_proto.wasm");
    let module = fs::read(&artefact).map_err(|e| format!("{}: {e}", artefact.display()))?;
    for name in ["tidewire_codec", "tidewire_model", "tidewire_proto"] {
        if !module.windows(name.len()).any(|window| window == name.as_bytes()) {
            return Err(format!("{} holds no code of {name}, so it proves nothing", artefact.display()));
        }
    }
    let imports = imports(&module).ok_or_else(|| format!("{} is not a wasm module", artefact.display()))?;
    println!("{}: {} bytes, imports: {}", artefact.display(), module.len(), imports.len());
    if imports.is_empty() { Ok(()) } else { Err(format!("imported from the environment: {}", imports.join(", "))) }
}

/// The imports of a wasm module as `module.name`; `None` if the bytes are no module (WebAssembly core
/// specification 2.0, sections 5.5.2 and 5.5.5).
fn imports(module: &[u8]) -> Option<Vec<String>> {
    let mut rest = Reader(module.strip_prefix(b"\0asm\x01\0\0\0")?);
    while !rest.0.is_empty() {
        let id = rest.byte()?;
        let length = rest.number()?;
        let mut section = Reader(rest.bytes(length)?);
        if id == IMPORT_SECTION {
            let count = section.number()?;
            return (0..count).map(|_| section.import()).collect();
        }
    }
    Some(Vec::new())
}

/// Reads forward through bytes. Each method returns `None` where the bytes end too soon.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|taken| taken[0])
    }

    /// An unsigned number in LEB128, at most 63 bits.
    fn number(&mut self) -> Option<usize> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn name(&mut self) -> Option<String> {
        let length = self.number()?;
        Some(String::from_utf8_lossy(self.bytes(length)?).into_owned())
    }

    /// Reads one import: module, name, and its type, which is skipped.
    fn import(&mut self) -> Option<String> {
        let name = format!("{}.{}", self.name()?, self.name()?);
        match self.byte()? {
            FUNCTION => drop(self.number()?),
            TABLE => {
                self.byte()?;
                self.limits()?;
            }
            MEMORY => self.limits()?,
            GLOBAL => drop(self.bytes(2)?),
            _ => return None,
        }
        Some(name)
    }

    /// Skips the bounds of a table or memory: a flag, the least size and, if the flag's low bit is set, the
    /// largest.
    fn limits(&mut self) -> Option<()> {
        let flags = self.byte()?;
        self.number()?;
        if flags & 1 == 1 {
            self.number()?;
        }
        Some(())
    }
}

const TARGET: &str = "wasm32-unknown-unknown";
/// Section and import kinds of the WebAssembly binary format, sections 5.5.2 and 5.5.5.
const IMPORT_SECTION: u8 = 2;
const FUNCTION: u8 = 0;
const TABLE: u8 = 1;
const MEMORY: u8 = 2;
const GLOBAL: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with a type section `(func)` and the import section given, without its id and length.
    fn module(import_section: &[u8]) -> Vec<u8> {
        let mut module = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0".to_vec();
        module.extend([IMPORT_SECTION, u8::try_from(import_section.len()).unwrap()]);
        module.extend(import_section);
        module
    }

    #[test]
    fn every_kind_of_import_is_named() {
        let section =
            b"\x04\x03env\x03now\x00\x00\x03env\x01m\x02\x01\x01\x02\x03env\x01t\x01\x70\x00\x01\x01a\x01g\x03\x7f\x00";
        let expected = ["env.now", "env.m", "env.t", "a.g"];
        assert_eq!(imports(&module(section)).unwrap(), expected);
    }

    #[test]
    fn no_import_section_means_no_imports() {
        assert_eq!(imports(b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0"), Some(vec![]));
        assert_eq!(imports(&module(b"\x00")), Some(vec![]));
    }

    #[test]
    fn what_is_not_a_whole_module_is_refused() {
        assert_eq!(imports(b"\x7fELF"), None);
        let whole = module(b"\x01\x03env\x03now\x00\x00");
        for end in 15..whole.len() {
            assert_eq!(imports(&whole[..end]), None, "accepted {end} of {} bytes", whole.len());
        }
    }
}
