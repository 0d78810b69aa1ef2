//! The `tidewire` command: its verbs, and how they report.
//!
//! `main.rs` calls [`verb`], which parses the command line and runs a verb; each verb is one file or folder
//! there. The rooms below are what verbs share. Exit codes, output and options of all commands are in
//! [`tidewire_command`], what shows and keeps jobs in [`tidewire_dashboard`], live video in
//! [`tidewire_live`], the file transfer in [`tidewire_transfer`]. This is a library only so that tests,
//! fuzzing and the binary use the same code. Its interface may change at any time.

// Connections: how a user names a listener, files of keys, ends with relays, an end started over ssh, waiting
// for connections, making and ending them, keeping them, and their sockets.
mod backend;
mod keys;
mod link;
mod listen;
mod live;
mod session;
mod ssh;
mod via;
// What verbs do: measure, carry TCP, bytes and IP packets, look at a path.
mod bench;
pub mod forward;
mod pipe;
mod probe;
#[cfg(target_os = "linux")]
mod tunnel;
// Who watches a job: plans in words, bars, the terminal, and the options of what `tidewire_dashboard` shows.
mod explain;
mod progress;
mod top;
mod watch;
// The command line: settings of files and the environment, and the verbs.
pub mod settings;
pub mod verb;
