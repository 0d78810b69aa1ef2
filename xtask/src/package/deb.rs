//! The Debian packages, one for each command: lays their files out below `target/package`, and has `dpkg-deb`
//! pack them.
//!
//! `dpkg-deb` and `dpkg-shlibdeps` belong to Debian, so nothing has to be built or downloaded first, as it
//! would for `cargo-deb`. Invariant: modes, owners, times and the order of files do not depend on the machine
//! or the user, so that a binary is always packed into the same bytes.

use super::{create, read, strip, write};
use crate::context::{Context, run};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// What the package is made from, beside the tree and the built command.
pub struct Parts<'a> {
    /// The folder that gets the package.
    pub out: &'a Path,
    /// The version of Tidewire.
    pub version: &'a str,
    /// The time of all files, in seconds since 1970.
    pub epoch: &'a str,
    /// The licences of the crates in the binary.
    pub notices: &'a str,
}

/// Builds the package of a command, around `release/COMMAND` of the target folder.
pub fn build(context: &Context, command: &'static str, parts: &Parts<'_>) -> Result<PathBuf, String> {
    let layout = Layout { context, command, root: parts.out.join(format!("root-{command}")) };
    if layout.root.exists() {
        fs::remove_dir_all(&layout.root).map_err(|e| format!("{}: {e}", layout.root.display()))?;
    }
    layout.program()?;
    if command == PRODUCT {
        layout.settings_and_units()?;
    }
    layout.documents(parts)?;
    let architecture = context.output_of("dpkg --print-architecture")?;
    let architecture = architecture.trim();
    let depends = layout.depends(parts.out)?;
    let version = format!("{}-{REVISION}", parts.version);
    layout.control(&version, architecture, &depends)?;

    let package = parts.out.join(format!("{command}_{version}_{architecture}.deb"));
    let mut pack = context.command("dpkg-deb --root-owner-group --build");
    run(pack.args([&layout.root, &package]).env("SOURCE_DATE_EPOCH", parts.epoch))?;
    Ok(package)
}

/// The folder that becomes the package.
struct Layout<'a> {
    context: &'a Context,
    /// The name of command and package.
    command: &'static str,
    root: PathBuf,
}

impl Layout<'_> {
    /// The command, its manual page and its completions, which it prints itself.
    fn program(&self) -> Result<(), String> {
        let name = self.command;
        let binary = self.place(&format!("usr/bin/{name}"))?;
        strip(self.context, &self.context.target.join("release").join(name), &binary)?;
        mode(&binary, 0o755)?;
        let says = |arguments: &str| self.context.output_of(&format!("{} {arguments}", binary.display()));
        self.put_compressed(&format!("usr/share/man/man1/{name}.1"), &says("man")?)?;
        for (shell, path) in COMPLETIONS {
            self.put(&path.replace('@', name), &says(&format!("completions {shell}"))?)?;
        }
        Ok(())
    }

    fn settings_and_units(&self) -> Result<(), String> {
        for name in CONFFILES {
            self.put(&format!("etc/tidewire/{name}"), &self.shipped(&format!("etc/{name}"))?)?;
        }
        for unit in ["tidewire-serve.service", "tidewire-receive.service", "tidewire-tunnel@.service"] {
            self.put(&format!("usr/lib/systemd/system/{unit}"), &self.shipped(&format!("systemd/{unit}"))?)?;
        }
        Ok(())
    }

    /// Changelogs, licences, and the page about the package.
    fn documents(&self, parts: &Parts<'_>) -> Result<(), String> {
        let doc = |name: &str| format!("usr/share/doc/{}/{name}", self.command);
        let date = self.context.output_of(&format!("date --utc --rfc-email --date @{}", parts.epoch))?;
        let entry = changelog(self.command, parts.version, date.trim());
        self.put_compressed(&doc("changelog.Debian"), &entry)?;
        self.put_compressed(&doc("changelog"), &read(&self.context.root.join("CHANGELOG.md"))?)?;
        self.put_compressed(&doc("packages.md"), &read(&self.context.root.join("docs/packages.md"))?)?;
        self.put_compressed(&doc("third-party.txt"), parts.notices)?;
        self.put(&doc("copyright"), &self.shipped("debian/copyright")?)
    }

    /// The packages with the shared libraries of the binary, as `dpkg-shlibdeps` finds them. It wants to run
    /// in a source package, so it gets an empty one.
    fn depends(&self, out: &Path) -> Result<String, String> {
        let source = out.join("source");
        create(&source.join("debian"))?;
        write(&source.join("debian/control"), "Source: tidewire\n\nPackage: tidewire\nArchitecture: any\n")?;
        let mut command = self.context.command("dpkg-shlibdeps -O");
        command.arg(self.root.join("usr/bin").join(self.command)).current_dir(&source);
        let output = command.output().map_err(|e| format!("dpkg-shlibdeps: {e}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let depends = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
        let complaint = || format!("dpkg-shlibdeps: {}", String::from_utf8_lossy(&output.stderr));
        depends.map(String::from).ok_or_else(complaint)
    }

    /// The folder `DEBIAN`: what dpkg reads.
    fn control(&self, version: &str, architecture: &str, depends: &str) -> Result<(), String> {
        let mut files = Vec::new();
        list(&self.root, &self.root, &mut files)?;
        files.sort();
        let bytes = files.iter().map(|name| fs::metadata(self.root.join(name)).map_or(0, |file| file.len()));
        let kibibytes: u64 = bytes.map(|bytes| bytes.div_ceil(1024)).sum();
        let text = self.shipped(&format!("debian/control-{}", self.command))?;
        let text = text.replace("@VERSION@", version).replace("@ARCHITECTURE@", architecture);
        let text = text.replace("@DEPENDS@", depends).replace("@SIZE@", &kibibytes.to_string());

        let mut sum = self.context.command("md5sum");
        let output = sum.args(&files).current_dir(&self.root).output().map_err(|e| format!("md5sum: {e}"))?;
        let sums = String::from_utf8_lossy(&output.stdout);
        if sums.lines().count() != files.len() {
            return Err(format!("md5sum printed {} lines for {} files", sums.lines().count(), files.len()));
        }
        self.put("DEBIAN/control", &text)?;
        self.put("DEBIAN/md5sums", &sums)?;
        if self.command != PRODUCT {
            return Ok(());
        }
        self.put("DEBIAN/conffiles", &CONFFILES.map(|name| format!("/etc/tidewire/{name}\n")).concat())?;
        for script in ["postinst", "prerm", "postrm"] {
            self.put(&format!("DEBIAN/{script}"), &self.shipped(&format!("debian/{script}"))?)?;
            mode(&self.root.join("DEBIAN").join(script), 0o755)?;
        }
        Ok(())
    }

    /// Reads a file of `packaging/`.
    fn shipped(&self, name: &str) -> Result<String, String> {
        read(&self.context.root.join("packaging").join(name))
    }

    /// Returns the path of a file below the root, whose folders exist then.
    fn place(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.root.join(name);
        let mut folder = self.root.clone();
        create(&folder)?;
        mode(&folder, 0o755)?;
        // Each level by itself: the umask of the user must not get into the package.
        for part in Path::new(name).parent().into_iter().flat_map(Path::components) {
            folder.push(part);
            create(&folder)?;
            mode(&folder, 0o755)?;
        }
        Ok(path)
    }

    fn put(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.place(name)?;
        write(&path, text)?;
        mode(&path, 0o644)
    }

    /// Writes `name.gz`, without the time and name that gzip would note.
    fn put_compressed(&self, name: &str, text: &str) -> Result<(), String> {
        self.put(name, text)?;
        let path = self.root.join(name);
        run(self.context.command("gzip --best --no-name --force").arg(&path))
    }
}

/// Debian's changelog has one entry: what changed in Tidewire stands in its own changelog beside it.
fn changelog(package: &str, version: &str, date: &str) -> String {
    format!(
        "{package} ({version}-{REVISION}) unstable; urgency=medium\n\n  * Tidewire {version}; the changes are in \
         changelog.gz beside this file.\n\n -- {MAINTAINER}  {date}\n"
    )
}

/// Collects the names of all files below `folder`, relative to `root`.
fn list(root: &Path, folder: &Path, files: &mut Vec<String>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        if path.is_dir() {
            list(root, &path, files)?;
        } else {
            files.push(path.strip_prefix(root).unwrap_or(&path).display().to_string());
        }
    }
    Ok(())
}

fn mode(path: &Path, mode: u32) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|e| format!("{}: {e}", path.display()))
}

/// The command that moves data. Its package has settings and services; that of the laboratory needs it.
pub const PRODUCT: &str = "tidewire";
/// The command of the laboratory.
pub const LABORATORY: &str = "tidewire-lab";
/// Counts packages of the same version of Tidewire.
const REVISION: u32 = 1;
const MAINTAINER: &str = "The Tidewire developers <https://github.com/tidewire/tidewire>";
/// Files in `/etc/tidewire`. An upgrade leaves those that the user changed as they are.
const CONFFILES: [&str; 4] = ["serve.toml", "serve.peers", "receive.toml", "receive.peers"];
/// Where each shell looks for the completions of the command `@` from packages (Debian's bash-completion, zsh
/// and fish).
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/@"),
    ("zsh", "usr/share/zsh/vendor-completions/_@"),
    ("fish", "usr/share/fish/vendor_completions.d/@.fish"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changelog_has_the_form_that_dpkg_parses() {
        let entry = changelog("tidewire", "0.1.0", "Mon, 23 Nov 2026 00:00:00 +0000");
        assert!(entry.starts_with("tidewire (0.1.0-1) unstable; urgency=medium\n\n  * "));
        assert!(entry.ends_with(">  Mon, 23 Nov 2026 00:00:00 +0000\n"));
    }

    #[test]
    fn control_and_changelog_name_one_maintainer() {
        for control in [
            include_str!("../../../packaging/debian/control-tidewire"),
            include_str!("../../../packaging/debian/control-tidewire-lab"),
        ] {
            assert!(control.contains(&format!("\nMaintainer: {MAINTAINER}\n")));
        }
    }
}
