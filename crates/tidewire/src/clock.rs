//! The clock and the timer of a driver.
//!
//! The protocol wants a pace of a packet each few hundred microseconds; the runtime's timer ticks in milliseconds. On Linux the timer is
//! therefore a file descriptor of its own, with the kernel's precision; elsewhere the runtime's, whose lateness the pacer makes up.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tidewire_proto::Time;

/// Monotonic time since the endpoint began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }
}

/// Wakes its task at one moment, which may be moved.
#[derive(Debug)]
pub(crate) struct Timer {
    clock: Clock,
    alarm: imp::Alarm,
    set: Time,
}

impl Timer {
    /// Needs a runtime with I/O and time enabled.
    pub fn new(clock: Clock) -> io::Result<Self> {
        Ok(Self { clock, alarm: imp::Alarm::new()?, set: Time::NEVER })
    }

    /// Ready when `at` has come; else the task is woken then, and perhaps before.
    pub fn poll(&mut self, cx: &mut Context<'_>, at: Time) -> Poll<()> {
        loop {
            let wait = at.since(self.clock.now());
            if wait.is_zero() {
                return Poll::Ready(());
            }
            if self.set != at {
                if at != Time::NEVER {
                    self.alarm.set(wait.min(LONGEST));
                }
                self.set = at;
            }
            ready!(self.alarm.poll(cx));
            // It rang; if for an earlier setting, it is set again.
            self.set = Time::NEVER;
        }
    }
}

/// Nothing in the protocol waits for longer; keeps a moment that never comes within what the kernel can count.
const LONGEST: Duration = Duration::from_secs(3_600);

#[cfg(target_os = "linux")]
mod imp {
    use super::*;
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    #[derive(Debug)]
    pub(super) struct Alarm(AsyncFd<OwnedFd>);

    impl Alarm {
        pub fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            // Sound for a type that owns its descriptor; the replacement is an unsafe call, for those that do not.
            #[allow(deprecated)]
            let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
            Ok(Self(fd))
        }

        pub fn set(&mut self, wait: Duration) {
            let it_value = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
            // Fails only for a bad descriptor or a bad time, and both are ours.
            let set = timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once);
            debug_assert!(set.is_ok(), "{set:?}");
        }

        /// The descriptor is never read: setting it anew forgets that it rang, and each ring is a new edge.
        pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
            if let Ok(mut rang) = ready!(self.0.poll_read_ready(cx)) {
                rang.clear_ready();
            }
            Poll::Ready(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use super::*;
    use std::pin::Pin;

    use tokio::time::Sleep;

    #[derive(Debug)]
    pub(super) struct Alarm(Pin<Box<Sleep>>);

    impl Alarm {
        pub fn new() -> io::Result<Self> {
            Ok(Self(Box::pin(tokio::time::sleep(LONGEST))))
        }

        pub fn set(&mut self, wait: Duration) {
            self.0.as_mut().reset(tokio::time::Instant::now() + wait);
        }

        pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
            use std::future::Future;
            self.0.as_mut().poll(cx)
        }
    }
}
