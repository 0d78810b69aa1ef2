//! The `tidewire` command: its verbs, and how they report.
//!
//! `main.rs` calls [`verb`], which parses the command line and runs a verb. Each verb is one file or folder
//! there. The rooms that verbs share are here: [`link`] (how a user names a listener), [`keys`] (files of
//! secrets and keys), [`listen`] (waiting for connections), [`session`] (making and ending them), [`backend`]
//! (their sockets), [`settings`] (files and environment), [`progress`] (bars), [`forward`] (TCP connections
//! over streams), [`pipe`](mod@pipe), [`bench`](mod@bench), [`probe`] (the state of a path) and [`explain`]
//! (plans in words), [`watch`] (recordings and displays of what connections do), ([`tidewire_recording`] has
//! the files), [`what_if`] (recorded flows with other choices), [`dash`] (the page in a browser), [`top`]
//! (figures of a job in a terminal), [`ssh`] (the far end of a verb, started over ssh), [`via`] (ends of a
//! path with relays), and [`media`] (live video with a deadline; [`live`] is a connection that verbs keep).
//! Exit codes, output and options of all commands are in [`tidewire_command`], the file transfer in
//! [`tidewire_transfer`]. This is a library only so that tests and the binary use the same code. Its
//! interface may change at any time.

mod backend;
mod bench;
mod dash;
mod explain;
pub mod forward;
mod keys;
mod link;
mod listen;
mod live;
mod media;
mod pipe;
mod probe;
mod progress;
mod session;
pub mod settings;
mod ssh;
mod top;
#[cfg(target_os = "linux")]
mod tunnel;
pub mod verb;
mod via;
mod watch;
mod what_if;
