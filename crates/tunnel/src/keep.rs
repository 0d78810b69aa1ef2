//! Restores what other programs remove from the kernel while the tunnel is up.
//!
//! The caller runs [`Routes::keep`] beside [`crate::Hub::read_device`] as long as the tunnel is up. Another
//! program may remove a rule, a route or an address, or set the device down, because it cleans up what it
//! does not know. Nobody else would notice: packets would leave outside the tunnel for good. Invariant: if
//! another program removes the same again and again, the caller is told seldom, and restoring takes a bounded
//! share of the time.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::changes::{Change, Changes};
use crate::device::DELETED;
use crate::interface::Part;
use crate::netlink::NO_DEVICE;
use crate::routes::{Lost, Routes};

/// Time for which restorations are gathered before they are told. Chosen: a program that removes several
/// parts does so within a few milliseconds, and nobody waits for the news.
const GATHER: Duration = Duration::from_millis(200);
/// Restorations of one gathering that follow at once. Chosen: more than one program that cleans up causes.
const AT_ONCE: u32 = 20;
/// Pause before each further one. Chosen: at most 30 restorations in 200 ms take a small share of a core, and
/// packets that no barrier stops leave outside the tunnel for at most so long.
const PAUSE: Duration = Duration::from_millis(20);
/// Attempts to restore, until it counts as impossible. Chosen: another program may remove an address between
/// our restoring it and a route that needs it, and hardly does so five times in 100 ms.
const TRIES: u32 = 5;
/// News that are told at once. Chosen: some clean-ups a day are no fight.
const MOST_TOLD: u32 = 10;
/// Time until one more of them is told. Chosen: six lines an hour are no nuisance.
const REFILL: Duration = Duration::from_secs(600);

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// What another program had removed.
    pub parts: BTreeSet<Part>,
    /// Whether this happened so often that the next time is not told.
    pub is_last_told: bool,
}

/// Why the tunnel cannot be kept up.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The kernel's routing cannot be talked to.
    #[error("cannot follow the kernel's routing (netlink): {0}")]
    Netlink(io::Error),
    /// The device was deleted.
    #[error("the device {0} is gone: {DELETED}")]
    Gone(String),
    /// Another route has the place of ours.
    #[error("another program has put a route of its own in the place of the route {0}: `ip route show {0}`")]
    Replaced(IpNet),
    /// The kernel does not take back what another program removed.
    #[error("another program removed {part}, and it cannot be restored: {error}")]
    Refused {
        /// What is missing.
        part: Part,
        /// What the kernel says.
        error: io::Error,
    },
}

impl Routes {
    /// Restores what other programs remove, and tells of it, until something cannot be restored.
    pub async fn keep(&self, mut told: impl FnMut(Restored)) -> KeepError {
        let mut changes = match Changes::follow() {
            Ok(changes) => changes,
            Err(error) => return KeepError::Netlink(error),
        };
        let mut news = News::new(Instant::now());
        // What changed before the kernel was asked to tell.
        let mut lost = Lost::default();
        lost.add_everything();
        let mut failed = 0;
        loop {
            let pause = match self.restore(&lost).await {
                Ok(parts) => {
                    failed = 0;
                    news.gather(parts, Instant::now())
                }
                Err((part, error)) => {
                    let error = self.failure(part, error);
                    failed += 1;
                    if failed == TRIES || !matches!(error, KeepError::Refused { .. }) {
                        news.tell(Instant::now()).into_iter().for_each(&mut told);
                        return error;
                    }
                    sleep(PAUSE).await;
                    lost.add_everything();
                    continue;
                }
            };
            // A pause of nothing would take a millisecond.
            if !pause.is_zero() {
                sleep(pause).await;
            }
            lost = loop {
                tokio::select! {
                    lost = self.lost(&mut changes) => match lost {
                        Ok(lost) => break lost,
                        Err(error) => return error,
                    },
                    () = sleep_until(news.due.unwrap_or_else(Instant::now)), if news.due.is_some() => {
                        news.tell(Instant::now()).into_iter().for_each(&mut told);
                    }
                }
            };
        }
    }

    /// Waits until something of ours may be lost. Nothing is forgotten if the wait is given up.
    async fn lost(&self, changes: &mut Changes) -> Result<Lost, KeepError> {
        let ended = || KeepError::Netlink(io::ErrorKind::UnexpectedEof.into());
        let barrier = self.barrier_device().await;
        let mut lost = Lost::default();
        while lost == Lost::default() {
            let mut change = Some(changes.next().await.ok_or_else(ended)?);
            while let Some(of) = change {
                self.add_to(&mut lost, of, barrier)?;
                change = changes.waiting();
            }
        }
        Ok(lost)
    }

    /// Notes what a change may have removed.
    fn add_to(&self, lost: &mut Lost, change: Change, barrier: Option<u32>) -> Result<(), KeepError> {
        let interface = self.interface();
        match change {
            Change::Device(shown) if shown.index == interface.index() => lost.interface |= interface.is_changed(&shown),
            Change::Device(shown) => lost.barrier |= Some(shown.index) == barrier && !shown.is_up,
            Change::DeviceGone(index) if index == interface.index() => {
                return Err(KeepError::Gone(interface.name().to_owned()));
            }
            Change::DeviceGone(index) => lost.barrier |= Some(index) == barrier,
            Change::Address(index) => lost.interface |= index == interface.index(),
            Change::Rule(priority) => drop(lost.rules.insert(priority)),
            Change::Route(network) => drop(lost.routes.insert(network)),
            Change::Replaced(network, device) => drop(lost.replaced.insert((network, device))),
            Change::Anything => lost.add_everything(),
        }
        Ok(())
    }

    fn failure(&self, part: Part, error: io::Error) -> KeepError {
        match part {
            Part::Up(name) if error.raw_os_error() == Some(NO_DEVICE) => KeepError::Gone(name),
            Part::Route(network) if error.kind() == io::ErrorKind::AlreadyExists => KeepError::Replaced(network),
            part => KeepError::Refused { part, error },
        }
    }
}

/// What was restored and is not told yet, and how often something was told.
struct News {
    parts: BTreeSet<Part>,
    /// Restorations that these parts took.
    count: u32,
    /// When to tell of them; `None` without any.
    due: Option<Instant>,
    /// News that may be told.
    left: u32,
    /// When the last of them was given back.
    filled: Instant,
}

impl News {
    fn new(now: Instant) -> Self {
        Self { parts: BTreeSet::new(), count: 0, due: None, left: MOST_TOLD, filled: now }
    }

    /// Notes what was restored. Returns the pause before the next restoration.
    fn gather(&mut self, parts: Vec<Part>, now: Instant) -> Duration {
        if parts.is_empty() {
            return Duration::ZERO;
        }
        self.parts.extend(parts);
        self.due.get_or_insert(now + GATHER);
        self.count = self.count.saturating_add(1);
        if self.count > AT_ONCE { PAUSE } else { Duration::ZERO }
    }

    /// What is to be told now.
    fn tell(&mut self, now: Instant) -> Option<Restored> {
        let parts = std::mem::take(&mut self.parts);
        (self.count, self.due) = (0, None);
        while self.left < MOST_TOLD && now.duration_since(self.filled) >= REFILL {
            (self.left, self.filled) = (self.left + 1, self.filled + REFILL);
        }
        if self.left == MOST_TOLD {
            self.filled = now;
        }
        if parts.is_empty() {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        Some(Restored { parts, is_last_told: self.left == 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_removed_together_are_told_together() {
        let begun = Instant::now();
        let mut news = News::new(begun);
        assert_eq!(news.gather(Vec::new(), begun), Duration::ZERO);
        assert_eq!(news.due, None);
        for priority in [7_702, 7_701, 7_702] {
            news.gather(vec![Part::Rule(4, priority)], begun);
        }
        assert_eq!(news.due, Some(begun + GATHER));
        let parts = [Part::Rule(4, 7_701), Part::Rule(4, 7_702)].into();
        assert_eq!(news.tell(begun + GATHER), Some(Restored { parts, is_last_told: false }));
        assert_eq!((news.due, news.tell(begun + GATHER)), (None, None));
    }

    #[test]
    fn a_fight_slows_down_and_is_told_ten_times_and_then_once_in_ten_minutes() {
        let begun = Instant::now();
        let mut news = News::new(begun);
        let pauses: Vec<_> = (0..30).map(|_| news.gather(vec![Part::Mtu(1_420)], begun)).collect();
        assert_eq!(pauses.iter().filter(|pause| pause.is_zero()).count(), 20);
        let mut told = |second: u64| {
            let now = begun + Duration::from_secs(second);
            news.gather(vec![Part::Mtu(1_420)], now);
            news.tell(now).map(|restored| restored.is_last_told)
        };
        let first: Vec<_> = (0..12).map(&mut told).collect();
        assert_eq!(first[..9], [Some(false); 9]);
        assert_eq!(first[9..], [Some(true), None, None]);
        let later = (12..36_000).filter(|&second| told(second).is_some()).count();
        assert_eq!(later, 59, "ten hours");
        assert_eq!(told(100_000), Some(false), "after a long quiet");
    }
}
