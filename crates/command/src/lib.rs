//! What the commands `tidewire` and `tidewire-lab` have in common, so that a user and a script meet one
//! behaviour.
//!
//! [`exit`] has the exit codes, [`report`] the output and the summary of a job, [`records`] the delays of
//! records, [`options`] the options of both, [`interrupt`] what Ctrl-C ends, [`log`] `TIDEWIRE_LOG`,
//! [`keylog`] the keys for Wireshark, [`stdout`] what is printed, [`terminal`] text of a peer made safe to
//! print, [`manual`] manual pages and completions, [`help`] the two tiers of help. Invariant: only
//! [`report::Console`] and [`stdout`] write what a job says.
#![forbid(unsafe_code)]

pub mod exit;
pub mod help;
pub mod interrupt;
pub mod keylog;
pub mod log;
pub mod manual;
pub mod options;
pub mod records;
pub mod report;
mod runtime;
pub mod stdout;
pub mod terminal;
