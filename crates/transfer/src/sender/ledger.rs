//! The state of each entry of a sender, which its four parts share.
//!
//! An entry is asked about, then sent or claimed, then answered. Invariant: each step is accepted once, and
//! only after the one before; at most [`WINDOW`] LOOKs are open.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::record::{Claim, Have};
use crate::session::WINDOW;
use crate::source::{Found, Source};
use crate::tree::Prefix;
use crate::{FileFailure, TransferError};

/// Entries that are asked about together. Chosen: one write for some kilobytes.
const BATCH: usize = 64;

/// How far an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Unasked,
    /// LOOK was sent.
    Asked,
    /// It can be sent.
    Wanted,
    /// The receiver has a file of this size, and ours is to be hashed.
    Candidate,
    /// CLAIM was sent for a file of this size.
    Claimed(u64),
    /// ENTRY was sent, with this size and offset.
    Announced(u64, u64),
    /// Nothing more is expected.
    Closed,
    /// The receiver has refused it.
    Refused,
}

/// A file that was hashed for a CLAIM.
#[derive(Debug)]
pub(super) enum Hashed {
    Claim(Claim, u64),
    /// It has another size now, and is sent.
    Changed,
    Failed(FileFailure),
}

/// An answer of the receiver to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) bytes: u64,
    /// Bytes of these that the receiver had.
    pub(super) resumed: u64,
    pub(super) claimed: bool,
}

/// The state; see the module.
pub(super) struct Ledger {
    state: Mutex<State>,
    /// There is something to write.
    write: Notify,
    /// There is a file to hash for a CLAIM.
    claim: Notify,
    /// There is a beginning to compare.
    compare: Notify,
}

struct State {
    /// Those with a LOOK, then the links.
    entries: Vec<Progress>,
    /// Whether each entry with a LOOK is a file.
    files: Vec<bool>,
    /// The next entry to ask about.
    next: usize,
    /// LOOKs that are not closed.
    open: usize,
    wanted: BTreeSet<u32>,
    beginnings: HashMap<u32, Prefix>,
    other_versions: HashSet<u32>,
    candidates: VecDeque<u32>,
    hashed: VecDeque<(u32, Hashed)>,
    comparing: Option<(u32, Prefix)>,
    /// Up to where a beginning is equal.
    compared: Option<u64>,
    /// CLAIMs that were answered with RESULT.
    claims: u32,
    closed: bool,
}

impl Ledger {
    pub(super) fn new(found: &Found) -> Self {
        let state = State {
            entries: vec![Progress::Unasked; found.sources.len() + found.links.len()],
            files: found.sources.iter().map(|source: &Source| !source.directory).collect(),
            next: 0,
            open: 0,
            wanted: BTreeSet::new(),
            beginnings: HashMap::new(),
            other_versions: HashSet::new(),
            candidates: VecDeque::new(),
            hashed: VecDeque::new(),
            comparing: None,
            compared: None,
            claims: 0,
            closed: false,
        };
        Self { state: Mutex::new(state), write: Notify::new(), claim: Notify::new(), compare: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No method panics between two changes, so a poisoned state is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entries to ask about next: none, or as many as [`BATCH`] if there are. Directories are wanted at
    /// once.
    pub(super) fn ask(&self) -> Range<u32> {
        let mut state = self.state();
        let count = BATCH.min(state.files.len() - state.next);
        if state.open + count > WINDOW {
            return 0..0;
        }
        let asked = state.next..state.next + count;
        (state.next, state.open) = (asked.end, state.open + count);
        for id in asked.clone() {
            if state.files[id] {
                state.entries[id] = Progress::Asked;
            } else {
                state.entries[id] = Progress::Wanted;
                state.wanted.insert(id as u32);
            }
        }
        asked.start as u32..asked.end as u32
    }

    /// Takes the answer to a LOOK.
    pub(super) fn have(&self, id: u32, have: Have) -> Result<(), TransferError> {
        let mut state = self.state();
        if state.entries.get(id as usize) != Some(&Progress::Asked)
            || !state.files.get(id as usize).is_some_and(|file| *file)
        {
            return Err(TransferError::Unexpected("HAVE"));
        }
        if have == Have::Standing {
            state.entries[id as usize] = Progress::Candidate;
            state.candidates.push_back(id);
            self.claim.notify_one();
            return Ok(());
        }
        match have {
            Have::Beginning(prefix) => drop(state.beginnings.insert(id, prefix)),
            Have::OtherVersion => drop(state.other_versions.insert(id)),
            Have::Nothing | Have::Standing => {}
        }
        self.want(&mut state, id);
        Ok(())
    }

    /// The content that the receiver has is not the one that was claimed.
    pub(super) fn differs(&self, id: u32) -> Result<(), TransferError> {
        let mut state = self.state();
        if !matches!(state.entries.get(id as usize), Some(Progress::Claimed(_))) {
            return Err(TransferError::Unexpected("DIFFERS"));
        }
        self.want(&mut state, id);
        Ok(())
    }

    fn want(&self, state: &mut State, id: u32) {
        state.entries[id as usize] = Progress::Wanted;
        state.wanted.insert(id);
        self.write.notify_one();
    }

    /// The next entry to send.
    pub(super) fn next_wanted(&self) -> Option<u32> {
        self.state().wanted.pop_first()
    }

    /// What the receiver has of the beginning of an entry, and whether it has that of another version.
    pub(super) fn beginning(&self, id: u32) -> (Option<Prefix>, bool) {
        let mut state = self.state();
        (state.beginnings.remove(&id), state.other_versions.remove(&id))
    }

    /// ENTRY is about to be sent, or BACK for an entry that was announced.
    pub(super) fn announce(&self, id: u32, size: u64, offset: u64) {
        let mut state = self.state();
        let entry = &mut state.entries[id as usize];
        match *entry {
            Progress::Wanted => {
                *entry = Progress::Announced(size, offset);
                state.open -= 1;
            }
            Progress::Announced(..) => *entry = Progress::Announced(size, offset),
            // The receiver has refused it meanwhile.
            _ => {}
        }
    }

    /// LINK is about to be sent.
    pub(super) fn link(&self, id: u32) {
        self.state().entries[id as usize] = Progress::Announced(0, 0);
    }

    /// The entry cannot be announced.
    pub(super) fn skip(&self, id: u32) {
        let mut state = self.state();
        state.entries[id as usize] = Progress::Closed;
        state.open -= 1;
    }

    pub(super) fn is_refused(&self, id: u32) -> bool {
        self.state().entries[id as usize] == Progress::Refused
    }

    /// Records the answer for an entry, if it was waiting for one.
    pub(super) fn answer(&self, id: u32, kept: bool) -> Option<Answered> {
        let mut state = self.state();
        let answered = match *state.entries.get(id as usize)? {
            Progress::Announced(bytes, resumed) => Answered { bytes, resumed, claimed: false },
            Progress::Claimed(bytes) => Answered { bytes, resumed: bytes, claimed: true },
            _ => return None,
        };
        state.entries[id as usize] = if kept { Progress::Closed } else { Progress::Refused };
        if answered.claimed {
            state.open -= 1;
            state.claims += 1;
            self.write.notify_one();
        }
        Some(answered)
    }

    /// Whether every entry was announced, claimed with success, or skipped.
    pub(super) fn is_announced(&self) -> bool {
        let state = self.state();
        state.open == 0 && state.next == state.files.len()
    }

    /// CLAIMs that were answered with RESULT.
    pub(super) fn claims(&self) -> u32 {
        self.state().claims
    }

    /// Whether no answer is missing.
    pub(super) fn all_answered(&self) -> bool {
        let state = self.state();
        state.closed && !state.entries.iter().any(|entry| matches!(entry, Progress::Announced(..)))
    }

    /// Waits until there may be something to write.
    pub(super) async fn written(&self) {
        self.write.notified().await;
    }

    /// The next file to hash for a CLAIM; `None` when there will be no more.
    pub(super) async fn next_candidate(&self) -> Option<u32> {
        loop {
            {
                let mut state = self.state();
                if state.closed {
                    return None;
                }
                if let Some(id) = state.candidates.pop_front() {
                    return Some(id);
                }
            }
            self.claim.notified().await;
        }
    }

    /// A candidate was hashed.
    pub(super) fn hashed(&self, id: u32, hashed: Hashed) {
        self.state().hashed.push_back((id, hashed));
        self.write.notify_one();
    }

    /// The next file that was hashed. A CLAIM is about to be sent; a file that changed is wanted.
    pub(super) fn next_hashed(&self) -> Option<(u32, Hashed)> {
        let mut state = self.state();
        let (id, hashed) = state.hashed.pop_front()?;
        match &hashed {
            Hashed::Claim(_, size) => state.entries[id as usize] = Progress::Claimed(*size),
            Hashed::Changed => self.want(&mut state, id),
            // The announcer skips it.
            Hashed::Failed(_) => {}
        }
        Some((id, hashed))
    }

    /// Has the beginning of an entry compared; one at a time.
    pub(super) fn compare(&self, id: u32, prefix: Prefix) {
        let mut state = self.state();
        (state.comparing, state.compared) = (Some((id, prefix)), None);
        self.compare.notify_one();
    }

    /// The next beginning to compare; `None` when there will be no more.
    pub(super) async fn next_beginning(&self) -> Option<(u32, Prefix)> {
        loop {
            {
                let state = self.state();
                if state.closed {
                    return None;
                }
                if let Some((id, prefix)) = state.comparing.clone().filter(|_| state.compared.is_none()) {
                    return Some((id, prefix));
                }
            }
            self.compare.notified().await;
        }
    }

    /// Whether this comparison is still of use.
    pub(super) fn is_comparing(&self, id: u32) -> bool {
        self.state().comparing.as_ref().is_some_and(|(comparing, _)| *comparing == id)
    }

    /// The beginning of an entry is equal up to this offset.
    pub(super) fn compared(&self, id: u32, equal: u64) {
        let mut state = self.state();
        if state.comparing.as_ref().is_some_and(|(comparing, _)| *comparing == id) {
            state.compared = Some(equal);
            self.write.notify_one();
        }
    }

    /// Up to where the beginning is equal, once it is known.
    pub(super) fn take_compared(&self) -> Option<u64> {
        let mut state = self.state();
        let equal = state.compared.take()?;
        state.comparing = None;
        Some(equal)
    }

    /// The comparison is of no more use.
    pub(super) fn end_comparison(&self) {
        let mut state = self.state();
        (state.comparing, state.compared) = (None, None);
    }

    /// Nothing more is written.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.claim.notify_one();
        self.compare.notify_one();
    }
}
