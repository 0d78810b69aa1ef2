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

pub mod backend;
pub mod bench;
pub mod dash;
pub mod explain;
pub mod forward;
pub mod keys;
pub mod link;
pub mod listen;
pub mod live;
pub mod media;
pub mod pipe;
pub mod probe;
pub mod progress;
pub mod session;
pub mod settings;
pub mod ssh;
pub mod top;
#[cfg(target_os = "linux")]
pub mod tunnel;
pub mod verb;
pub mod via;
pub mod watch;
pub mod what_if;
