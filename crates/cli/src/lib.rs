//! The `tidewire` command: its verbs, and how they report.
//!
//! `main.rs` calls [`verb`], which parses the command line and runs a verb; each verb is one file or folder
//! there. The rooms below are what verbs share. Exit codes, output and options of all commands are in
//! [`tidewire_command`], what shows and keeps jobs in [`tidewire_dashboard`], port forwarding in
//! [`tidewire_forward`], live video in [`tidewire_live`], the tunnel in `tidewire_tunnel`, the file transfer
//! in [`tidewire_transfer`]. Only `main.rs` uses this library. Its interface may change at any time.

// Connections: how a user names a listener, files of keys, ends with relays, an end started over ssh, the way
// that all of them make, what the network says of a silent address, waiting for connections, making, ending
// and renewing them, and their sockets.
mod backend;
mod budget;
#[cfg(target_os = "linux")]
mod hearsay;
mod keys;
mod link;
mod listen;
mod reconnect;
mod session;
mod ssh;
mod via;
mod way;
// What verbs do: measure, carry TCP and bytes, look at a path.
mod bench;
mod forwarding;
mod pipe;
mod probe;
// Who watches a job: plans in words, bars, the terminal, and the options of what `tidewire_dashboard` shows.
mod explain;
mod progress;
mod top;
mod watch;
// The command line: settings of files and the environment, and the verbs.
mod settings;
pub mod verb;
