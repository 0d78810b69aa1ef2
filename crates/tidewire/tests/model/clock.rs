//! The model's `clock`: it stands still, so that no timer hides a wake-up that was lost, until the test moves
//! it on.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shuttle::sync::{Arc, Mutex};
use tidewire_proto::Time;

#[derive(Clone, Default)]
pub(crate) struct Clock(Arc<Mutex<Now>>);

#[derive(Default)]
struct Now {
    since: Duration,
    sleepers: Vec<(Time, Waker)>,
}

impl Clock {
    pub(crate) fn now(&self) -> Time {
        Time::from_millis(1) + self.0.lock().unwrap().since
    }

    /// Wakes all whose time has come then.
    pub(crate) fn advance(&self, by: Duration) {
        let sleepers = {
            let mut now = self.0.lock().unwrap();
            now.since += by;
            std::mem::take(&mut now.sleepers)
        };
        sleepers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    fn wait(&self, at: Time, waker: &Waker) {
        let sleepers = &mut self.0.lock().unwrap().sleepers;
        sleepers.retain(|(_, known)| !known.will_wake(waker));
        sleepers.push((at, waker.clone()));
    }
}

pub(crate) struct Timer(Clock);

impl Timer {
    pub(crate) fn new(clock: Clock) -> Self {
        Self(clock)
    }

    pub(crate) fn poll_exactly(&mut self, cx: &mut Context<'_>, at: Time) -> Poll<()> {
        self.poll(cx, at)
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, at: Time) -> Poll<()> {
        if at <= self.0.now() {
            return Poll::Ready(());
        }
        self.0.wait(at, cx.waker());
        Poll::Pending
    }
}
