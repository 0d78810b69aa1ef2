//! `cargo xtask package`: builds what a release hands out, two Debian packages and a static binary, into
//! `target/package`; with `--test` it tries them in a clean Debian system.
//!
//! A person who makes a release runs this command. No step does, because it builds the command twice in the
//! profile `release`, and its test needs root and a Debian mirror. `packaging/` has the files that go into
//! the package, `docs/packages.md` says what a user gets. Invariant: the same sources, tools and
//! `SOURCE_DATE_EPOCH` give the same archive around a given binary.

mod deb;
mod notices;
mod trial;

use crate::context::{Context, run};
use crate::features::MUSL;
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The line of `cargo xtask`'s help.
pub const ABOUT: &str =
    "two .deb and a static binary in target/package; `--test`: as root, also try them in a clean Debian";

/// Runs the command with the arguments behind its name.
pub fn main(arguments: &[String]) -> ExitCode {
    let test = match arguments {
        [] => false,
        [option] if option == "--test" => true,
        _ => {
            eprintln!("cargo xtask package [--test]   {ABOUT}");
            return ExitCode::from(2);
        }
    };
    match package(test) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the packages, and tries them if `test` is set.
fn package(test: bool) -> Result<(), String> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(format!(
            "this machine is {}: the packages are for x86-64 and are built there",
            std::env::consts::ARCH
        ));
    }
    let context = Context::new()?;
    let out = context.target.join("package");
    create(&out)?;
    tools::packages(&context, TOOLS)?;
    let version = version(&context)?;
    let epoch = epoch(&context)?;

    let notices = notices::collect(&context)?;
    context.run("cargo build --release --locked --package tidewire-cli --package tidewire-lab-cli --bins")?;
    let parts = deb::Parts { out: &out, version: &version, epoch: &epoch, notices: &notices };
    let deb = deb::build(&context, deb::PRODUCT, &parts)?;
    let lab = deb::build(&context, deb::LABORATORY, &parts)?;
    let fixed = static_binary(&context, &out, &version)?;
    let notices_file = out.join("third-party.txt");
    write(&notices_file, &notices)?;
    sums(&context, &out, &[&deb, &lab, &fixed, &notices_file])?;
    if test { trial::check(&context, &out, &[&deb, &lab, &fixed]) } else { Ok(()) }
}

/// Builds the binary that needs no shared library, and checks that it is one.
fn static_binary(context: &Context, out: &Path, version: &str) -> Result<PathBuf, String> {
    tools::target(context, MUSL)?;
    run(context.command("cargo build --release --locked --package tidewire-cli --target").arg(MUSL))?;
    let binary = out.join(format!("tidewire-{version}-x86_64-linux-musl"));
    strip(context, &context.target.join(MUSL).join("release/tidewire"), &binary)?;
    let headers = context.output_of(&format!("readelf --program-headers --dynamic --wide {}", binary.display()))?;
    match shared(&headers) {
        None => Ok(binary),
        Some(line) => Err(format!("{} is not static, its headers say: {line}", binary.display())),
    }
}

/// The line of `readelf` that asks for a loader or a shared library.
fn shared(headers: &str) -> Option<&str> {
    headers.lines().map(str::trim).find(|line| line.starts_with("INTERP") || line.contains("(NEEDED)"))
}

/// Copies a binary without its symbols.
fn strip(context: &Context, from: &Path, to: &Path) -> Result<(), String> {
    run(context.command("strip --strip-all -o").arg(to).arg(from))
}

/// Writes the SHA-256 of each file into `SHA256SUMS`, in the form that `sha256sum --check` reads.
fn sums(context: &Context, out: &Path, files: &[&Path]) -> Result<(), String> {
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
    let mut command = context.command("sha256sum");
    let output = command.args(&names).current_dir(out).output().map_err(|e| format!("sha256sum: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.lines().count() != files.len() {
        return Err(format!("sha256sum printed {} lines for {} files", text.lines().count(), files.len()));
    }
    print!("in {}:\n{text}", out.display());
    write(&out.join("SHA256SUMS"), &text)
}

/// The workspace's version, from the package of the command.
pub fn version(context: &Context) -> Result<String, String> {
    let id = context.output_of("cargo pkgid --package tidewire-cli")?;
    let version = id.trim().rsplit(['#', '@']).next().filter(|version| version.contains('.'));
    version.map(String::from).ok_or_else(|| format!("no version in `{}`", id.trim()))
}

/// The time of every packed file: `SOURCE_DATE_EPOCH`, or the time of the last commit.
fn epoch(context: &Context) -> Result<String, String> {
    let given = std::env::var("SOURCE_DATE_EPOCH");
    let epoch = given.or_else(|_| context.output_of("git log -1 --format=%ct"))?;
    match epoch.trim().parse::<u64>() {
        Ok(seconds) => Ok(seconds.to_string()),
        Err(_) => Err(format!("`{}` is not a time in seconds; set SOURCE_DATE_EPOCH", epoch.trim())),
    }
}

fn create(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

const TOOLS: &[(&str, &str)] = &[
    ("dpkg-shlibdeps --version", "dpkg-dev"),
    ("x86_64-linux-musl-gcc --version", "musl-tools"),
    ("strip --version", "binutils"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_and_a_library_are_found() {
        let fixed = "  PHDR 0x40\n  DYNAMIC 0x1\n 0x0c (INIT) 0x10\n";
        assert_eq!(shared(fixed), None);
        assert_eq!(shared(&format!("{fixed}  INTERP 0x318\n")), Some("INTERP 0x318"));
        assert_eq!(shared(" 0x01 (NEEDED) Shared library: [libc.so]"), Some("0x01 (NEEDED) Shared library: [libc.so]"));
    }

    #[test]
    fn the_containerfile_builds_with_the_pinned_compiler() {
        let pinned = include_str!("../../../rust-toolchain.toml");
        let channel = pinned.split('"').nth(1).unwrap();
        let containerfile = include_str!("../../../packaging/Containerfile");
        assert!(containerfile.contains(&format!("rust:{channel}-")), "write {channel} into packaging/Containerfile");
    }
}
