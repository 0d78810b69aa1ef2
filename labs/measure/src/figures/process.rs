//! Runs a `tidewire --json` process: starts it, notes the time at which each line was read, and ends it.
//!
//! A thread reads standard output at once, so that the times are right even while the caller waits for
//! another process. Every wait has a deadline. Invariant: a process that is dropped before it ended is
//! killed.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

/// One event, and the time at which it was read.
#[derive(Clone, Debug)]
pub struct Line {
    pub at: Instant,
    pub event: Value,
}

impl Line {
    /// Whether it is the event called `name`.
    pub fn is(&self, name: &str) -> bool {
        self.event["event"] == name
    }

    /// The number at a JSON pointer.
    pub fn number(&self, pointer: &str) -> Result<f64, String> {
        let value = self.event.pointer(pointer).and_then(Value::as_f64);
        value.ok_or_else(|| format!("no number at {pointer} of {}", self.event))
    }

    /// The text at a JSON pointer.
    pub fn text(&self, pointer: &str) -> Result<&str, String> {
        let value = self.event.pointer(pointer).and_then(Value::as_str);
        value.ok_or_else(|| format!("no text at {pointer} of {}", self.event))
    }
}

/// A running process.
pub struct Process {
    name: &'static str,
    child: Child,
    incoming: Receiver<Line>,
    lines: Vec<Line>,
}

impl Process {
    /// Starts `command`. Errors call it `name`.
    pub fn start(name: &'static str, command: &mut Command) -> Result<Self, String> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("cannot start {name}: {e}"))?;
        let stdout = child.stdout.take().ok_or_else(|| format!("{name} has no standard output"))?;
        let (sender, incoming) = mpsc::channel();
        std::thread::spawn(move || {
            for text in BufReader::new(stdout).lines().map_while(Result::ok) {
                let at = Instant::now();
                // A line that is not JSON is kept as text, so that an error can show it.
                let event = serde_json::from_str(&text).unwrap_or(Value::String(text));
                if sender.send(Line { at, event }).is_err() {
                    return;
                }
            }
        });
        Ok(Self { name, child, incoming, lines: Vec::new() })
    }

    /// Reads until the event called `event`.
    pub fn wait_for(&mut self, event: &str, deadline: Instant) -> Result<Line, String> {
        while let Some(line) = self.next(deadline)? {
            if line.is(event) {
                return Ok(line);
            }
        }
        Err(format!("{} ended without its event `{event}`; its last line: {}", self.name, self.last()))
    }

    /// The newest line with this event among those that came since the last call. Does not wait.
    pub fn newest(&mut self, event: &str) -> Option<Line> {
        let came: Vec<Line> = self.incoming.try_iter().collect();
        self.lines.extend(came.iter().cloned());
        came.into_iter().rfind(|line| line.is(event))
    }

    /// Asks it to stop by SIGTERM, which it treats like Ctrl-C. SIGINT would not do: a shell that starts a
    /// command in the background makes it ignore that signal.
    pub fn interrupt(&self) -> Result<(), String> {
        // `kill` is built into every shell; the standard library can only send SIGKILL.
        let stopped = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &self.child.id().to_string()]).status();
        match stopped {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("cannot interrupt {}: kill ended with {status}", self.name)),
            Err(error) => Err(format!("cannot interrupt {}: {error}", self.name)),
        }
    }

    /// Reads the remaining lines and waits for the end. Returns every line, or an error if the exit code is
    /// not `exit`.
    pub fn finish(mut self, exit: i32, deadline: Instant) -> Result<Vec<Line>, String> {
        while self.next(deadline)?.is_some() {}
        // Standard output is closed, so the process has ended or is about to.
        let status = self.child.wait().map_err(|e| format!("{}: {e}", self.name))?;
        if status.code() != Some(exit) {
            return Err(format!("{} ended with {status}; its last line: {}", self.name, self.last()));
        }
        Ok(std::mem::take(&mut self.lines))
    }

    /// The next line; `None` when standard output was closed.
    fn next(&mut self, deadline: Instant) -> Result<Option<Line>, String> {
        match self.incoming.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.lines.push(line.clone());
                Ok(Some(line))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Ok(None),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                Err(format!("{} took too long; its last line: {}", self.name, self.last()))
            }
        }
    }

    fn last(&self) -> String {
        self.lines.last().map_or("none".into(), |line| line.event.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn shell(script: &str) -> (Process, Instant) {
        let process = Process::start("a script", Command::new("sh").args(["-c", script])).unwrap();
        (process, Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn lines_are_events_in_order_with_their_times() {
        let (mut process, deadline) = shell(r#"echo '{"event":"link","n":{"x":1.5}}'; echo '{"event":"summary"}'"#);
        let link = process.wait_for("link", deadline).unwrap();
        assert_eq!(link.number("/n/x"), Ok(1.5));
        assert!(link.text("/n/x").is_err() && link.number("/n/y").is_err());
        let lines = process.finish(0, deadline).unwrap();
        assert!(lines.len() == 2 && lines[1].is("summary") && lines[0].at <= lines[1].at);
    }

    #[test]
    fn errors_about_an_unexpected_end_show_the_last_line() {
        let (mut process, deadline) = shell(r#"echo '{"event":"error","message":"no answer"}'; exit 3"#);
        assert!(process.wait_for("file", deadline).unwrap_err().contains("no answer"));
        assert!(process.finish(0, deadline).unwrap_err().contains("no answer"));
    }

    #[test]
    fn a_wait_ends_at_the_deadline_and_an_interrupted_process_ends() {
        let (mut process, deadline) = shell(r#"trap 'exit 130' TERM; echo '{"event":"on"}'; while :; do :; done"#);
        process.wait_for("on", deadline).unwrap();
        assert!(process.wait_for("file", Instant::now()).unwrap_err().contains("too long"));
        process.interrupt().unwrap();
        assert!(process.finish(130, deadline).is_ok());
    }
}
