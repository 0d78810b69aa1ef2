//! Standard output, and whether the system took what was printed there.
//!
//! Verbs and [`crate::report::Console`] print through it, [`crate::report::with`] asks at the end. Invariant:
//! a program whose output was lost, as on a full disk, says so once and does not end with 0. A reader that
//! closed the pipe has seen enough, which is no failure.

use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// Why output was lost, the first time.
static LOST: OnceLock<String> = OnceLock::new();

/// Prints `text`, which is safe for a terminal.
pub fn write(text: &str) {
    let mut stdout = io::stdout().lock();
    note(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

/// Prints a line, which is safe for a terminal.
pub fn write_line(line: &str) {
    let mut stdout = io::stdout().lock();
    note(writeln!(stdout, "{line}").and_then(|()| stdout.flush()));
}

/// Why some of the output was lost.
pub(crate) fn lost() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}

fn note(written: io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() != ErrorKind::BrokenPipe && LOST.set(error.to_string()).is_ok() {
        let _ = writeln!(io::stderr(), "cannot write to the standard output: {error}; what is printed is lost");
    }
}
