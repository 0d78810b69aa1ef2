//! The programs of a peer, one on each host.
//!
//! [`Trial`](crate::trial::Trial) and the flows of networks start them. Their output goes into files of a
//! folder of the run, and is quoted when they fail. Invariant: both have ended when this value is dropped. If
//! this process is killed, the caretaker of the hosts ends them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::nodes::Nodes;
use crate::opening::await_listener;
use crate::peer::{Programs, Surroundings};
use crate::processor::processor_time;

/// Longest time until a program has printed what the other one waits for. Chosen: a thousand times what it
/// takes on an idle machine.
const TELLING: Duration = Duration::from_secs(10);
/// Number of last lines of a program's output that are quoted.
const QUOTED: usize = 3;

/// What a program has used since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Time of the processors, in programs and in the kernel.
    pub processor: Duration,
    /// Most bytes of memory that were resident at once.
    pub memory: u64,
}

/// Running programs.
#[derive(Debug)]
pub struct Processes {
    far: Process,
    near: Process,
}

impl Processes {
    /// Starts the far program, then the near one, which gets the first line of the far one if it wants it.
    /// `at` are the nodes of the near and the far one.
    ///
    /// # Errors
    /// Fails if a program cannot be started, or the far one does not print its line.
    pub fn start(
        nodes: &Nodes,
        at: [usize; 2],
        programs: &Programs,
        setting: &Surroundings<'_>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let words = setting.fill(&programs.far, "")?;
        let mut far = Process::start(nodes, (at[1], "far"), &words, folder, programs.tells())?;
        let told = if programs.tells() { far.first_line()? } else { String::new() };
        if programs.far.contains("{wire}") {
            await_listener(nodes, at[1], setting.wire).with_context(|| far.last_words())?;
        }
        let words = setting.fill(&programs.near, &told)?;
        let near = Process::start(nodes, (at[0], "near"), &words, folder, false)?;
        Ok(Self { far, near })
    }

    /// The last lines of both programs, for an error message.
    pub fn last_words(&self) -> String {
        format!("{}; {}", self.near.last_words(), self.far.last_words())
    }

    /// What the near and the far program have used; `None` if the system does not say.
    pub fn usage(&self) -> Option<[Usage; 2]> {
        Some([self.near.usage()?, self.far.usage()?])
    }

    /// Everything that the near program printed.
    ///
    /// # Errors
    /// Fails if the program failed.
    pub fn result(&mut self) -> anyhow::Result<String> {
        let ended = self.near.child.wait()?;
        let printed = std::fs::read_to_string(&self.near.printed)?;
        if !ended.success() {
            bail!("it ended with {ended}: {}{}", self.last_words(), printed.trim());
        }
        Ok(printed)
    }
}

/// One of the programs.
#[derive(Debug)]
struct Process {
    child: Child,
    name: String,
    printed: PathBuf,
    said: PathBuf,
}

impl Process {
    fn start(
        nodes: &Nodes,
        (node, host): (usize, &str),
        words: &[String],
        folder: &Path,
        tells: bool,
    ) -> anyhow::Result<Self> {
        let (printed, said) = (folder.join(format!("{host}.out")), folder.join(format!("{host}.err")));
        let mut command = nodes.command(node, &words[0]);
        command.args(&words[1..]).current_dir(folder);
        // Our program uses defaults, whatever this user has configured.
        command.env("TIDEWIRE_CONFIG", "/dev/null").env_remove("TIDEWIRE_LINK");
        command.stdin(Stdio::null()).stderr(File::create(&said)?);
        command.stdout(if tells { Stdio::piped() } else { File::create(&printed)?.into() });
        let child = command.spawn().with_context(|| format!("cannot run {}", words[0]))?;
        let name = Path::new(&words[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { child, name: format!("{host} {name}"), printed, said })
    }

    /// The first line that it prints.
    fn first_line(&mut self) -> anyhow::Result<String> {
        let printed = self.child.stdout.take().context("its output is not ours")?;
        let (tell, told) = sync_channel(1);
        // Reads on after the first line, so that a full or closed pipe never stops the program.
        std::thread::spawn(move || {
            for line in BufReader::new(printed).lines().map_while(Result::ok) {
                let _ = tell.try_send(line);
            }
        });
        match told.recv_timeout(TELLING) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("{} printed nothing for {} s", self.name, TELLING.as_secs()),
            Err(RecvTimeoutError::Disconnected) => bail!("{} ended early: {}", self.name, self.last_words()),
        }
    }

    fn usage(&self) -> Option<Usage> {
        let read = |file| std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).ok();
        Some(Usage { processor: processor_time(&read("stat")?)?, memory: peak_memory(&read("status")?)? })
    }

    fn last_words(&self) -> String {
        let said = std::fs::read(&self.said).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<_> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(QUOTED)..].join(" / ");
        format!("{} said `{last}`", self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The most resident memory in bytes, from the text of `/proc/PID/status` (proc_pid_status(5)).
fn peak_memory(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_kilobytes() {
        assert_eq!(peak_memory("Name:\ttidewire\nVmHWM:\t   10240 kB\nVmRSS:\t 9 kB\n"), Some(10 << 20));
        assert_eq!((peak_memory("VmRSS:\t 9 kB\n"), peak_memory("VmHWM:\t 9 MB\n")), (None, None));
    }
}
