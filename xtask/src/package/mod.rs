//! `cargo xtask package`: builds what a release hands out, two Debian packages and a static binary, into
//! `target/package`; with `--test` it tries them in a clean Debian system.
//!
//! A person who makes a release runs this command. No step does, because it builds the command twice in the
//! profile `release`, and its test needs root and a Debian mirror. `packaging/` has the files that go into
//! the package, the manifests of the commands have their places, `docs/packages.md` what a user gets.
//! Invariant: the same sources, tools and `SOURCE_DATE_EPOCH` give the same archive around a given binary.

mod notices;
mod trial;

use crate::context::{Context, fresh, run};
use crate::features::MUSL;
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};

/// Runs the command with the arguments behind its name.
pub fn main(arguments: &[String]) -> Option<Result<(), String>> {
    match arguments {
        [] => Some(package(false)),
        [option] if option == "--test" => Some(package(true)),
        _ => None,
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
    let [deb, lab] = ["tidewire", "tidewire-lab"].map(|command| deb(&context, command, &version, &epoch, &notices));
    let (deb, lab) = (deb?, lab?);
    let fixed = static_binary(&context, &out, &version)?;
    let notices_file = out.join("third-party.txt");
    write(&notices_file, &notices)?;
    sums(&context, &out, &[&deb, &lab, &fixed, &notices_file])?;
    if test { trial::check(&context, &out, &[&deb, &lab, &fixed]) } else { Ok(()) }
}

/// Builds the Debian package of a command that is built, by cargo-deb. The manifest of the command has the
/// settings. What the command prints, and texts for `/usr/share/doc`, go below `release/package` of the
/// target folder, where cargo-deb looks for them.
fn deb(context: &Context, command: &str, version: &str, epoch: &str, notices: &str) -> Result<PathBuf, String> {
    let release = context.target.join("release");
    let folder = release.join("package").join(command);
    // Files of an earlier run would get into the package.
    fresh(&folder)?;
    create(&folder.join("doc"))?;
    let says = |words: &str| context.output_of(&format!("{} {words}", release.join(command).display()));
    for shell in ["bash", "zsh", "fish"] {
        write(&folder.join(shell), &says(&format!("completions {shell}"))?)?;
    }
    let date = context.output_of(&format!("date --utc --rfc-email --date @{epoch}"))?;
    let texts = [
        (format!("{command}.1"), says("man")?),
        ("doc/changelog.Debian".into(), changelog(command, version, date.trim())),
        ("doc/changelog".into(), read(&context.root.join("CHANGELOG.md"))?),
        ("doc/packages.md".into(), read(&context.root.join("docs/packages.md"))?),
        ("doc/third-party.txt".into(), notices.to_owned()),
    ];
    for (name, text) in texts {
        write(&folder.join(&name), &text)?;
        run(context.command("gzip --best --no-name --force").arg(folder.join(name)))?;
    }
    let cargo_deb = tools::subcommand(context, &tools::CARGO_DEB)?;
    let out = context.target.join("package");
    let package = if command == "tidewire" { "tidewire-cli" } else { "tidewire-lab-cli" };
    let mut pack = context.program(&cargo_deb, &format!("--no-build --locked --package {package} --output"));
    run(pack.arg(out.join("")).env("SOURCE_DATE_EPOCH", epoch).env("CARGO_TARGET_DIR", &context.target))?;
    Ok(out.join(format!("{command}_{version}-{REVISION}_amd64.deb")))
}

/// Debian's changelog has one entry: what changed in Tidewire stands in its own changelog beside it.
fn changelog(package: &str, version: &str, date: &str) -> String {
    format!(
        "{package} ({version}-{REVISION}) unstable; urgency=medium\n\n  * Tidewire {version}; the changes are in \
         changelog.gz beside this file.\n\n -- {MAINTAINER}  {date}\n"
    )
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
    let names = files.iter().filter_map(|file| file.file_name());
    let sums = out.join("SHA256SUMS");
    let file = fs::File::create(&sums).map_err(|e| format!("{}: {e}", sums.display()))?;
    run(context.command("sha256sum").args(names).current_dir(out).stdout(file))?;
    print!("in {}:\n{}", out.display(), read(&sums)?);
    Ok(())
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
    let seconds = epoch.trim().parse::<u64>();
    seconds.map(|seconds| seconds.to_string()).map_err(|_| format!("`{}` is no time in seconds", epoch.trim()))
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

/// Counts packages of the same version of Tidewire, in the manifests of the commands too.
const REVISION: u32 = 1;
const MAINTAINER: &str = "The Tidewire developers <https://github.com/tidewire/tidewire>";
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
    fn the_manifests_have_the_maintainer_and_the_version() {
        let workspace = include_str!("../../../Cargo.toml");
        let version = workspace.split("\nversion = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let lab = include_str!("../../../labs/cli/Cargo.toml");
        for manifest in [include_str!("../../../crates/cli/Cargo.toml"), lab] {
            assert!(manifest.contains(&format!("maintainer = \"{MAINTAINER}\"")));
            assert!(manifest.contains(&format!("revision = \"{REVISION}\"")));
        }
        assert!(
            lab.contains(&format!("tidewire (= {version}-{REVISION})")),
            "the package of the laboratory needs another version"
        );
        assert!(
            changelog("tidewire", "0.1.0", "Mon, 23")
                .starts_with("tidewire (0.1.0-1) unstable; urgency=medium\n\n  * ")
        );
    }

    #[test]
    fn the_containerfile_builds_with_the_pinned_compiler() {
        let pinned = include_str!("../../../rust-toolchain.toml");
        let channel = pinned.split('"').nth(1).unwrap();
        let containerfile = include_str!("../../../packaging/Containerfile");
        assert!(containerfile.contains(&format!("rust:{channel}-")), "write {channel} into packaging/Containerfile");
    }
}
