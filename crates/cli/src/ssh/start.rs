//! Runs the far end over ssh, reads its link, and says what is wrong if there is none.
//!
//! The verbs call [`Ssh::start`] before they connect. ssh shows its own messages and asks for passwords at
//! the terminal. Once the link is here, ssh ends by itself and nothing depends on it. Invariant: ssh is
//! killed if the verb ends before it has the link.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tidewire::link::Link;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::Console;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::candidates::{candidates, real_name};
use super::handover::{self, FarVerb};
use super::host::Host;
use super::{Ssh, Words};

/// Most bytes that the far user's shell may print before the link. Chosen: a hundred screens.
const MOST_PRINTED: u64 = 1 << 20;
/// Exit code of ssh if it failed itself (ssh(1), "EXIT STATUS").
const SSH_FAILED: i32 = 255;
/// Exit codes of a shell for a command that it could not run, or not find (POSIX.1-2017, XCU 2.8.2).
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// A running ssh, which is killed when this is dropped.
struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(ssh) = &mut self.0 {
            let _ = ssh.start_kill();
        }
    }
}

impl Ssh {
    /// Starts the far end, and returns the links to it when it waits: there is no difference but their host.
    /// `words` are its options, quoted for a shell. It ends after `silence` without a packet.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] if ssh fails; else what the far side's tidewire ended with, or [`Exit::Other`].
    pub async fn start(
        &self,
        host: &Host,
        verb: FarVerb,
        silence: Duration,
        words: &str,
        console: &Console,
    ) -> Result<(Link, Vec<Link>), Failure> {
        let (milliseconds, port) = (silence.as_millis(), self.remote_port);
        let (program, name) = (&self.program, verb.name());
        let command = format!("{program} {name} --detach {milliseconds}ms --listen 0.0.0.0:{port} {words}");
        let Words(ssh) = &self.ssh;
        let (link, name) = tokio::join!(self.link(host, verb, &command, console), real_name(ssh, host));
        let link = link?;
        console.say(&format!("tidewire on {host} listens on UDP port {}", link.port));
        candidates(link, host, &name).await
    }

    /// Runs `command` on `host` and reads its link.
    async fn link(&self, host: &Host, verb: FarVerb, command: &str, console: &Console) -> Result<Link, Failure> {
        let Words(words) = &self.ssh;
        let (program, arguments) = words.split_first().map_or(("ssh", words.as_slice()), |(first, rest)| (first, rest));
        let mut ssh = Command::new(program);
        ssh.args(arguments);
        if Path::new(program).file_stem().is_some_and(|name| name == "ssh") {
            // A RemoteCommand of the user's settings for this host, as for a terminal there, excludes ours.
            ssh.args(["-o", "RemoteCommand=none"]);
        }
        ssh.args(["-T", host.as_str(), command]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut ssh = ssh.spawn().map_err(|error| not_started(program, &error))?;
        let stdout = ssh.stdout.take();
        let mut running = Running(Some(ssh));
        let Some(stdout) = stdout else { return Err(Failure::message(Exit::Other, "ssh has no output")) };
        let mut stdout = BufReader::new(stdout);
        if let Some(link) = find_link(&mut stdout, verb, console).await.or_exit(Exit::Other)? {
            let link = link.map_err(|error| Failure::message(Exit::Other, format_args!("{host}: {error}")))?;
            if let Some(ssh) = running.0.take() {
                tokio::spawn(leave(ssh, stdout));
            }
            return Ok(link);
        }
        let Some(mut ssh) = running.0.take() else { return Err(Failure::message(Exit::Other, "ssh has ended")) };
        let status = ssh.wait().await.or_exit(Exit::Other)?;
        Err(self.no_link(host, program, status))
    }

    /// What an exit of ssh without a link means.
    fn no_link(&self, host: &Host, program: &str, status: ExitStatus) -> Failure {
        let (remote, release) = (&self.program, env!("CARGO_PKG_VERSION"));
        let of_table =
            |code: i32| Exit::TABLE.iter().map(|(exit, _)| *exit).find(|exit| i32::from(exit.code()) == code);
        match status.code() {
            Some(SSH_FAILED) => Failure::message(
                Exit::Unreachable,
                format_args!(
                    "`{program}` could not run a command on {host}, as it says above; try `{program} {host} true`"
                ),
            ),
            Some(NOT_FOUND) => Failure::message(
                Exit::Other,
                format_args!(
                    "{host} has no `{remote}` on the PATH of its ssh commands: install tidewire {release} there, or name \
                     where it is, as in --remote /opt/tidewire/bin/tidewire"
                ),
            ),
            Some(NOT_EXECUTABLE) => Failure::message(
                Exit::Other,
                format_args!(
                    "{host} cannot execute `{remote}`: install a tidewire for its processor, or name it with --remote"
                ),
            ),
            Some(0) => Failure::message(
                Exit::Other,
                format_args!(
                    "`{remote}` on {host} printed no link: is it tidewire {release}? Name another with --remote"
                ),
            ),
            Some(code) if code == i32::from(Exit::Usage.code()) => Failure::message(
                Exit::Other,
                format_args!(
                    "tidewire on {host} refused its options or settings, as it says above; if it does not know --detach, \
                     it is older than tidewire {release} here: install the same release on both machines"
                ),
            ),
            Some(code) => Failure::message(
                of_table(code).unwrap_or(Exit::Other),
                format_args!("`{remote}` on {host} ended with code {code} before it had a link"),
            ),
            None => Failure::message(Exit::Other, format_args!("`{program}` was killed before {host} had a link")),
        }
    }
}

fn not_started(program: &str, error: &std::io::Error) -> Failure {
    if error.kind() == ErrorKind::NotFound {
        let wanted = "install an ssh client, such as OpenSSH, or name another command with --ssh";
        return Failure::message(Exit::Other, format_args!("there is no program `{program}`: {wanted}"));
    }
    Failure::message(Exit::Other, format_args!("cannot start `{program}`: {error}; name another command with --ssh"))
}

/// Reads lines until one has the link. The user sees what comes before. `None` at the end of the output.
async fn find_link(
    stdout: &mut BufReader<ChildStdout>,
    verb: FarVerb,
    console: &Console,
) -> std::io::Result<Option<Result<Link, handover::HandoverError>>> {
    let mut stdout = stdout.take(MOST_PRINTED);
    let mut line = Vec::new();
    while stdout.read_until(b'\n', &mut line).await? > 0 {
        let text = String::from_utf8_lossy(&line);
        match handover::read(verb, &text) {
            Some(link) => return Ok(Some(link)),
            None => console.say(text.trim_end()),
        }
        line.clear();
    }
    Ok(None)
}

/// Lets ssh end by itself.
async fn leave(mut ssh: Child, mut stdout: BufReader<ChildStdout>) {
    let _ = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
    let _ = ssh.wait().await;
}
