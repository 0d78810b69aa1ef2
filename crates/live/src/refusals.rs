//! What the system refuses at a socket: which refusals are named, and when the socket is made anew.
//!
//! [`super::sink`] and [`super::input`] ask it. No list says which errors of a socket pass: a rule of a
//! firewall, a device that is gone and a datagram that is too long are all over at some time. Invariant: no
//! error of a socket ends an input or an output; one that lasts is named, once a minute at most.

use std::time::{Duration, Instant};

/// Refusals for so long without a success last. Chosen: a device or an address comes back within it when a
/// network manager sets it up anew.
const LASTING: Duration = Duration::from_secs(1);
/// Time between two sentences about one place.
const BETWEEN: Duration = Duration::from_secs(60);

/// The refusals of one socket; see the module.
#[derive(Debug, Default)]
pub struct Refusals {
    has_worked: bool,
    /// The first refusal since the last success.
    since: Option<Instant>,
    named: Option<Instant>,
    renewed: Option<Instant>,
}

impl Refusals {
    /// A datagram passed.
    pub fn on_success(&mut self) {
        (self.has_worked, self.since) = (true, None);
    }

    /// A datagram was refused. Returns whether to say so: nothing ever passed, or nothing has for a while.
    pub fn on_refusal(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_lasting = !self.has_worked || now - since >= LASTING;
        let is_named = is_lasting && self.named.is_none_or(|named| now - named >= BETWEEN);
        if is_named {
            self.named = Some(now);
        }
        is_named
    }

    /// Whether to make the socket anew, once a second while refusals last: the kernel may have forgotten,
    /// with a device, what the socket was told.
    pub fn should_renew(&mut self, now: Instant) -> bool {
        let since = self.since.max(self.renewed);
        let should = self.since.is_some() && since.is_some_and(|since| now - since >= LASTING);
        if should {
            self.renewed = Some(now);
        }
        should
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the refusals of each 100 ms are named, in tenths of seconds. `passes` says which succeed.
    fn named(tenths: u32, passes: impl Fn(u32) -> bool) -> (Vec<u32>, Vec<u32>) {
        let (start, mut refusals) = (Instant::now(), Refusals::default());
        let (mut named, mut renewed) = (Vec::new(), Vec::new());
        for at in 0..tenths {
            let now = start + at * Duration::from_millis(100);
            if passes(at) {
                refusals.on_success();
                continue;
            }
            if refusals.on_refusal(now) {
                named.push(at);
            }
            if refusals.should_renew(now) {
                renewed.push(at);
            }
        }
        (named, renewed)
    }

    #[test]
    fn what_lasts_is_named_each_minute_and_what_passes_is_not() {
        // Nothing ever passed.
        let (said, renewed) = named(1_300, |_| false);
        assert_eq!(said, [0, 600, 1_200]);
        assert_eq!(renewed[..3], [10, 20, 30]);
        // Half of the datagrams are refused.
        assert_eq!(named(1_300, |at| at % 2 == 0), (vec![], vec![]));
        // Nothing passes for five seconds, twice.
        let (said, renewed) = named(1_300, |at| !(100..150).contains(&at) && !(900..950).contains(&at));
        assert_eq!(said, [110, 910]);
        assert_eq!(renewed, [110, 120, 130, 140, 910, 920, 930, 940]);
    }
}
