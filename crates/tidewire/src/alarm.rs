//! A timer of the kernel (timerfd) for packets that must leave on time.
//!
//! The driver's [`Timer`](crate::clock::Timer) uses it for packet trains alone, because each packet then
//! wakes the driver. Only Linux has it. If the kernel refuses, the timer of the runtime serves.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tidewire_proto::Time;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

use crate::clock::{Clock, LONGEST};

/// The timer; see the module. It is made when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    timer: Option<Descriptor>,
    is_refused: bool,
    set: Option<Time>,
}

impl Alarm {
    /// Ready once `at` has passed; otherwise the task is woken at that time. `None` if the kernel refuses.
    /// Needs a runtime with I/O enabled.
    pub fn poll(&mut self, cx: &mut Context<'_>, clock: &Clock, at: Time) -> Option<Poll<()>> {
        if self.is_refused {
            return None;
        }
        let polled = self.try_poll(cx, clock, at);
        self.is_refused = polled.is_err();
        polled.ok()
    }

    fn try_poll(&mut self, cx: &mut Context<'_>, clock: &Clock, at: Time) -> io::Result<Poll<()>> {
        let timer = match &mut self.timer {
            Some(timer) => timer,
            none => none.insert(Descriptor::new()?),
        };
        loop {
            let wait = at.since(clock.now());
            if wait.is_zero() {
                return Ok(Poll::Ready(()));
            }
            if self.set != Some(at) {
                timer.set(wait.min(LONGEST))?;
                self.set = Some(at);
            }
            let Poll::Ready(rang) = timer.poll(cx) else { return Ok(Poll::Pending) };
            rang?;
            // It rang at the latest time that can be set, so it is set again.
            self.set = None;
        }
    }
}

/// A timerfd. The runtime waits for it as for a pipe: the kernel gives eight bytes to read when it has rung.
#[derive(Debug)]
struct Descriptor {
    timer: TimerFd,
    bell: pipe::Receiver,
}

impl Descriptor {
    fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let bell = pipe::Receiver::from_owned_fd_unchecked(timer.as_fd().try_clone_to_owned()?)?;
        Ok(Self { timer, bell })
    }

    /// Lets it ring once after `wait`, in place of what was set before.
    fn set(&self, wait: Duration) -> io::Result<()> {
        let expiration = Expiration::OneShot(TimeSpec::from_duration(wait));
        Ok(self.timer.set(expiration, TimerSetTimeFlags::empty())?)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut times = [0; 8];
        Pin::new(&mut self.bell).poll_read(cx, &mut ReadBuf::new(&mut times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test]
    async fn it_rings_when_its_time_has_come_also_after_that_was_moved() {
        let (clock, mut alarm) = (Clock::start(), Alarm::default());
        let hour = clock.now() + Duration::from_secs(3_600);
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll(cx, &clock, hour))).await.expect("Linux has it").is_pending());
        for _ in 0..3 {
            let soon = clock.now() + Duration::from_micros(100);
            poll_fn(|cx| alarm.poll(cx, &clock, soon).expect("Linux has it")).await;
            assert!(clock.now() >= soon);
        }
    }

    #[tokio::test]
    async fn once_refused_it_is_not_asked_again() {
        let (clock, mut alarm) = (Clock::start(), Alarm { is_refused: true, ..Alarm::default() });
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll(cx, &clock, Time::NEVER))).await.is_none());
    }
}
