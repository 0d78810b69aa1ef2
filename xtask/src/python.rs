//! The Python package (`crates/py`): its lints, its types, and its tests against a wheel that was built from
//! the source distribution, in a fresh virtual environment. The tests of papers also use the command.
//!
//! Invariant: the tests import what users install, never the sources beside them. The tools have one version
//! each (`crates/py/requirements.txt`) and lie below `target/py`, so nothing of the user's is changed.

use std::path::PathBuf;
use std::process::Command;

use crate::context::{Context, fresh, run};
use crate::tools;

/// Runs everything: clippy, the wheel, ruff, mypy with the stub against the module, the command, pytest.
pub fn check(context: &Context) -> Result<(), String> {
    tools::packages(
        context,
        &[("python3 -m ensurepip --version", "python3 python3-venv"), ("rsync --version", "rsync")],
    )?;
    let mut clippy = context.command("cargo clippy --locked --manifest-path crates/py/Cargo.toml");
    run(clippy.arg("--target-dir").arg(&context.target).args(["--", "-D", "warnings"]))?;
    let venv = Venv::fresh(context)?;
    run(&mut venv.python("-m pip install --quiet --disable-pip-version-check --requirement requirements.txt"))?;
    let source = source_distribution(&venv)?;
    run(venv
        .python("-m maturin build --locked")
        .current_dir(&source)
        .arg("--out")
        .arg(venv.home.join("wheels"))
        .arg("--target-dir")
        .arg(&context.target))?;
    let mut install = venv.python("-m pip install --quiet --disable-pip-version-check --no-deps --no-index");
    run(install.arg("--find-links").arg(venv.home.join("wheels")).arg("tidewire"))?;
    let cache = venv.home.join("mypy");
    run(&mut venv.python("-m ruff check --no-cache ."))?;
    run(&mut venv.python("-m ruff format --no-cache --check ."))?;
    run(venv.python("-m mypy python tests benchmarks --cache-dir").arg(&cache))?;
    // pyo3's classes are laid out by themselves, which only newer type checkers have a word for.
    run(&mut venv.python("-m mypy.stubtest tidewire._native --ignore-disjoint-bases"))?;
    // With the features that the tests of the workspace have, nothing is compiled again.
    run(&mut context.command("cargo build --locked --workspace --exclude xtask --exclude tidewire-capi --bins"))?;
    let command = context.target.join("debug/tidewire-lab");
    run(venv.python("-m pytest -p no:cacheprovider --durations 5").env("TIDEWIRE_TEST_COMMAND", command))
}

/// A virtual environment below `target/py`.
struct Venv<'a> {
    context: &'a Context,
    /// `target/py`.
    home: PathBuf,
}

impl<'a> Venv<'a> {
    /// Makes it anew, and removes the wheels of an earlier run.
    fn fresh(context: &'a Context) -> Result<Self, String> {
        let home = context.target.join("py");
        fresh(&home.join("wheels"))?;
        run(context.command("python3 -m venv --clear").arg(home.join("venv")))?;
        Ok(Self { context, home })
    }

    /// A command for its interpreter, which runs in the folder of the crate.
    fn python(&self, arguments: &str) -> Command {
        let mut command = self.context.program(self.home.join("venv/bin/python"), arguments);
        command.current_dir(self.context.root.join("crates/py")).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

/// Packs the source distribution, and unpacks it into the folder `target/py/source`, which is returned.
///
/// Every file of a source distribution has one old time. Cargo would take a changed file for the one that it
/// built before, so only files with other bytes are written, with the time of now.
fn source_distribution(venv: &Venv<'_>) -> Result<PathBuf, String> {
    let [packed, unpacked, source] = ["packed", "unpacked", "source"].map(|name| venv.home.join(name));
    fresh(&packed)?;
    fresh(&unpacked)?;
    run(venv.python("-m maturin sdist --out").arg(&packed))?;
    let mut tar = venv.context.command("sh -c");
    tar.arg("tar --extract --gzip --strip-components 1 --file \"$0\"/*.tar.gz --directory \"$1\"");
    run(tar.args([&packed, &unpacked]))?;
    // Without times: a file that has the same bytes keeps its own, and a changed one gets that of now.
    let mut mirror = venv.context.command("rsync --recursive --checksum --delete --mkpath");
    run(mirror.arg(unpacked.join("")).arg(&source))?;
    Ok(source)
}
