//! Tries the packages in a clean Debian system: `cargo xtask package --test`.
//!
//! The system is an overlay over a minimal Debian that debootstrap made once. Its processes live in
//! namespaces of their own, and the scripts in `packaging/test` run there. Invariant: mounts, processes and
//! addresses exist in these namespaces only, so they end with the trial, also when it fails or is killed.

use super::{create, read};
use crate::context::{Context, fresh, run};
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Installs, uses and removes the package, and runs the static binary, of `files`.
pub fn check(context: &Context, out: &Path, files: &[&Path]) -> Result<(), String> {
    if context.output_of("id -u")?.trim() != "0" {
        return Err("`cargo xtask package --test` makes namespaces and mounts: run it as root".into());
    }
    tools::packages(context, TOOLS)?;
    let base = base(context, out)?;
    // A folder of their own, because `out` keeps the packages of other versions.
    let [packages, log] = ["test/packages", "test/log"].map(|name| out.join(name));
    fresh(&packages)?;
    fresh(&log)?;
    for file in files {
        let copy = packages.join(file.file_name().unwrap_or_default());
        fs::copy(file, &copy).map_err(|e| format!("{}: {e}", copy.display()))?;
    }
    let clean = Clean { context, base, packages, log: log.clone() };
    clean.start("", "/bin/bash /mnt/scripts/installed.sh")?;

    let Some(group) = Group::new()? else {
        println!("SKIPPED: the services were not started, because systemd needs cgroup2 and none is mounted here");
        return Ok(());
    };
    let join = format!("echo $$ >{}/cgroup.procs; ", group.0.display());
    let ended = clean.start(&join, SYSTEMD);
    println!("{}", read(&log.join("services.log")).unwrap_or_default());
    ended
}

/// The folder with a minimal Debian of this machine's release. The first call makes it.
fn base(context: &Context, out: &Path) -> Result<PathBuf, String> {
    let release = read(Path::new("/etc/os-release"))?;
    let codename = codename(&release).ok_or("/etc/os-release names no VERSION_CODENAME that debootstrap could take")?;
    let base = out.join(format!("base-{codename}"));
    if !base.exists() {
        let new = out.join("base.new");
        let _ = fs::remove_dir_all(&new);
        let mut command = context.command("unshare --mount --pid --fork --kill-child debootstrap --variant=minbase");
        run(command.args(["--include=systemd,man-db", codename]).arg(&new))?;
        fs::rename(&new, &base).map_err(|e| format!("{}: {e}", base.display()))?;
    }
    Ok(base)
}

fn codename(release: &str) -> Option<&str> {
    release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))
}

/// How clean systems are made.
struct Clean<'a> {
    context: &'a Context,
    base: PathBuf,
    packages: PathBuf,
    log: PathBuf,
}

impl Clean<'_> {
    /// Runs `before` in a shell here, then `program` as process 1 of a new system, until it ends.
    fn start(&self, before: &str, program: &str) -> Result<(), String> {
        let mut command = self.context.command("sh -c");
        command.arg(format!("{before}exec timeout --kill-after=5 {LIMIT} {UNSHARE} \"$@\" {program}"));
        command.arg("sh").arg(self.context.root.join("packaging/test/enter.sh"));
        run(command.args([&self.base, &self.packages, &self.log]))
    }
}

/// A cgroup for the processes of one system; systemd makes its own below it. It is removed when dropped.
struct Group(PathBuf);

impl Group {
    /// Makes a group where cgroup2 is mounted, or returns `None`.
    fn new() -> Result<Option<Self>, String> {
        let Some(root) = cgroup2(&read(Path::new("/proc/mounts"))?).map(PathBuf::from) else { return Ok(None) };
        let group = root.join(format!("tidewire-package-{}", std::process::id()));
        create(&group)?;
        Ok(Some(Self(group)))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel removes killed processes from a group some time after their end.
        for _ in 0..50 {
            if remove_groups(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!("could not remove the cgroup {}", self.0.display());
    }
}

/// Removes a cgroup after those below it. Its files go with it.
fn remove_groups(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_groups(&path)?;
        }
    }
    fs::remove_dir(group)
}

/// The first folder where cgroup2 is mounted, in the form of `/proc/mounts`.
fn cgroup2(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let folder = words.next()?;
        (words.next()? == "cgroup2").then_some(folder)
    })
}

const UNSHARE: &str = "unshare --mount --pid --fork --kill-child=KILL --net --ipc --uts --cgroup";
/// systemd finds the unit beside the scripts, and ends when the unit has ended.
const SYSTEMD: &str = "/usr/bin/env SYSTEMD_UNIT_PATH=/mnt/scripts: /usr/lib/systemd/systemd --unit=services.service";
/// Seconds for one script. Chosen: some ten times what the longer one takes on two cores.
const LIMIT: u32 = 300;
const TOOLS: &[(&str, &str)] =
    &[("debootstrap --version", "debootstrap"), ("unshare --version", "util-linux"), ("ip -V", "iproute2")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_and_the_cgroup_are_found() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=bookworm\n"), Some("bookworm"));
        assert_eq!(codename("ID=arch\n"), None);
        let mounts = "cgroup /sys/fs/cgroup/pids cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(cgroup2(mounts), Some("/sys/fs/cgroup/unified"));
        assert_eq!(cgroup2("proc /proc proc rw 0 0\n"), None);
    }
}
