//! Proves that protocol, models and codec do no I/O: they are linked for `wasm32-unknown-unknown`, a target
//! without an operating system, and the module must import nothing.
//!
//! A wasm module needs an import for everything it asks of its environment: a clock, randomness, a socket.
//! The linker keeps dead code and each crate is one object file, so that the proof covers all code of these
//! crates and not only what an entry point reaches.

use crate::context::{Context, run};
use crate::tools;
use std::fs;
use wasmparser::{Parser, Payload};

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
    let imports = imports(&module).map_err(|e| format!("{}: {e}", artefact.display()))?;
    println!("{}: {} bytes, imports: {}", artefact.display(), module.len(), imports.len());
    if imports.is_empty() { Ok(()) } else { Err(format!("imported from the environment: {}", imports.join(", "))) }
}

/// The imports of a wasm module as `module.name`.
fn imports(module: &[u8]) -> Result<Vec<String>, String> {
    let mut imports = Vec::new();
    for part in Parser::new(0).parse_all(module) {
        if let Payload::ImportSection(section) = part.map_err(|e| e.to_string())? {
            for import in section.into_imports() {
                let import = import.map_err(|e| e.to_string())?;
                imports.push(format!("{}.{}", import.module, import.name));
            }
        }
    }
    Ok(imports)
}

const TARGET: &str = "wasm32-unknown-unknown";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_named_and_what_is_no_module_is_refused() {
        let head = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0".as_slice();
        let section = b"\x02\x14\x02\x03env\x03now\x00\x00\x03env\x01m\x02\x00\x01".as_slice();
        assert_eq!(imports(&[head, section].concat()), Ok(vec!["env.now".into(), "env.m".into()]));
        assert_eq!(imports(head), Ok(vec![]));
        assert!(imports(b"\x7fELF").is_err() && imports(&[head, &section[..9]].concat()).is_err());
    }
}
