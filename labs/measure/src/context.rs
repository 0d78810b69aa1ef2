//! What every measurement is given: the folders, and the functions that start programs in the workspace root.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders of one run.
pub struct Context {
    /// The workspace root.
    pub root: PathBuf,
    /// Cargo's target directory.
    pub target: PathBuf,
}

impl Context {
    /// Finds the workspace from which cargo started this program.
    pub fn new() -> Result<Self, String> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("start this as `cargo measure`")?;
        let root = Path::new(&manifest).ancestors().nth(2).ok_or("this program does not lie in a workspace")?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        Ok(Self { root: root.to_path_buf(), target })
    }

    /// Builds both commands for release. Returns the file of `tidewire`; `tidewire-lab` lies beside it
    /// ([`lab_of`]).
    pub fn commands(&self) -> Result<PathBuf, String> {
        self.run("cargo build --release --package tidewire-cli --package tidewire-lab-cli --bins")?;
        Ok(self.target.join("release").join(format!("tidewire{}", std::env::consts::EXE_SUFFIX)))
    }

    /// Makes a command from `program arguments...`, separated by spaces. It will run in the workspace root.
    pub fn command(&self, line: &str) -> Command {
        let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let mut command = Command::new(OsStr::new(program));
        command.args(arguments.split_whitespace()).current_dir(&self.root).stdin(Stdio::null());
        command
    }

    /// Runs a command line to its end; an exit code other than zero is an error.
    pub fn run(&self, line: &str) -> Result<(), String> {
        run(&mut self.command(line))
    }

    /// Runs a command line and returns what it printed to standard output.
    pub fn output_of(&self, line: &str) -> Result<String, String> {
        let output = self.command(line).stderr(Stdio::inherit()).output().map_err(|e| format!("`{line}`: {e}"))?;
        if !output.status.success() {
            return Err(format!("`{line}` ended with {}", output.status));
        }
        String::from_utf8(output.stdout).map_err(|_| format!("`{line}` printed bytes that are not UTF-8"))
    }
}

/// Prints and runs `command`; an exit code other than zero is an error.
pub fn run(command: &mut Command) -> Result<(), String> {
    println!("$ {command:?}");
    let status = command.status().map_err(|e| format!("cannot start {command:?}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}")) }
}

/// The file of `tidewire-lab` beside that of `tidewire`.
pub fn lab_of(tidewire: &Path) -> PathBuf {
    tidewire.with_file_name(format!("tidewire-lab{}", std::env::consts::EXE_SUFFIX))
}
