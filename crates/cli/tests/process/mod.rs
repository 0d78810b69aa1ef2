//! Starts verbs as processes, reads their output, and stops them.
#![allow(dead_code, reason = "not every test needs all of it")]

#[cfg(unix)]
pub mod sshd;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tidewire_proxy::Proxy;
use tidewire_sim::scenario::Scenario;

use crate::schema;

/// The command `tidewire`, with its stdout and stderr as pipes.
pub fn tidewire(arguments: &[&str]) -> Command {
    program("tidewire", arguments)
}

/// The command `tidewire-lab`, in the same way.
pub fn lab(arguments: &[&str]) -> Command {
    program("tidewire-lab", arguments)
}

/// A command of the workspace. Cargo puts both beside the folder of the tests, but builds the command of
/// another package only with the whole workspace.
fn program(name: &str, arguments: &[&str]) -> Command {
    let tests = std::env::current_exe().unwrap();
    let file = tests.ancestors().nth(2).unwrap().join(name);
    assert!(file.is_file(), "{} is missing: cargo build --workspace makes it", file.display());
    let mut command = Command::new(file);
    command
        .args(arguments)
        .env_remove("TIDEWIRE_LINK")
        .env("TIDEWIRE_CONFIG", "/dev/null")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The same command where a hang-up ends it, whatever the tests inherited: a hang-up that was ignored, as
/// under `nohup`, would stay ignored.
pub fn tidewire_that_hears_a_hang_up(arguments: &[&str]) -> Command {
    let plain = tidewire(arguments);
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(plain.get_program()).args(plain.get_args());
    command
        .env_remove("TIDEWIRE_LINK")
        .env("TIDEWIRE_CONFIG", "/dev/null")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A verb that runs until the test stops it. It is killed if the test ends early.
pub struct Running {
    pub child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Running {
    pub fn start(arguments: &[&str]) -> Self {
        Self::spawn(&mut tidewire(arguments))
    }

    pub fn spawn(command: &mut Command) -> Self {
        Self::spawn_with_errors(command, Stdio::inherit())
    }

    /// Starts the command and reads its stdout. Its stderr goes to `errors`.
    pub fn spawn_with_errors(command: &mut Command, errors: impl Into<Stdio>) -> Self {
        let mut child = command.stderr(errors).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// The next line of `--json`.
    pub fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        schema::lines(line.as_bytes()).remove(0)
    }

    /// The next line of a verb that writes for people.
    pub fn text(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// The exit code, and all lines that were not read yet.
    pub fn end(self) -> (Option<i32>, Vec<Value>) {
        let (code, rest) = self.end_as_text();
        (code, schema::lines(&rest))
    }

    /// The exit code, and the output that was not read yet.
    pub fn end_as_text(mut self) -> (Option<i32>, Vec<u8>) {
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// The next line with this event. Lines before it are skipped.
    pub fn wait_for(&mut self, event: &str) -> Value {
        loop {
            let line = self.line();
            if line["event"] == event {
                return line;
            }
        }
    }
}

/// Starts a lossy link in front of the listener that printed `link`. Returns the link that leads through it.
/// `settings` are pairs as `tidewire-lab link` takes them, such as `--loss` and `10%`: loss toward the
/// listener, rate and times both ways, and with `--back-` back from it.
pub fn lossy_link(link: &str, settings: &[&str]) -> (Proxy, String) {
    let [mut seed, mut both, mut there, mut back] = ["", "[link]\n", "[forward]\n", "[back]\n"].map(str::to_owned);
    for pair in settings.chunks(2) {
        let (key, value) = (pair[0].trim_start_matches("--"), pair[1]);
        match key {
            "seed" => seed = format!("seed = {value}\n"),
            "loss" | "reorder" | "duplicate" | "corrupt" | "police" => there += &format!("{key} = \"{value}\"\n"),
            _ if key.starts_with("back-") => back += &format!("{} = \"{value}\"\n", &key[5..]),
            _ => both += &format!("{key} = \"{value}\"\n"),
        }
    }
    let scenario = Scenario::parse(&[seed, both, there, back].concat(), Path::new("a link of a test")).unwrap();
    let to = address(link);
    let proxy = Proxy::start(([127, 0, 0, 1], 0).into(), to.parse().unwrap(), &scenario.link).unwrap();
    let through = link.replace(&to, &proxy.address().to_string());
    (proxy, through)
}

/// The part HOST:PORT of a link.
pub fn address(link: &str) -> String {
    link.strip_prefix("tidewire://").unwrap().split('/').next().unwrap().to_owned()
}
