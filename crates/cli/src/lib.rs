//! The `tidewire` command: its verbs, the file transfer they speak, and how they report.
//!
//! `main.rs` parses the command line into a [`verb::Command`] and runs it. Each verb is one file in [`verb`];
//! what they share is here: [`link`] (how a connection is named), [`keys`] (files of secrets and keys),
//! [`listen`] (how one is waited for), [`exit`] (how a process ends), [`transfer`] (files over one stream),
//! [`forward`] (TCP connections over streams), [`pipe`](mod@pipe), [`bench`](mod@bench), [`probe`] (what a
//! path is like), [`report`] (what is told), [`chart`] (pictures of delays), [`terminal`] (what a peer said,
//! made safe to print), [`settings`] (what files and the environment say). Emulated links and their hosts are
//! in [`tidewire_lab`], the experiments of papers in [`tidewire_papers`]. A library only so that tests and
//! the binary see the same code; it promises nobody else an interface.

pub mod bench;
pub mod chart;
pub mod exit;
pub mod explain;
pub mod forward;
pub mod keys;
pub mod link;
pub mod listen;
pub mod options;
pub mod pipe;
pub mod probe;
pub mod progress;
pub mod report;
pub mod session;
pub mod settings;
pub mod terminal;
pub mod transfer;
pub mod verb;
