//! A timer with nanosecond resolution, for pacing: at 10 Gbit/s a millisecond, the resolution of
//! most runtimes, is 1.25 MB.

use std::io;
use std::time::{Duration, Instant};

/// One deadline on the monotonic clock, in nanoseconds, as a descriptor that becomes readable.
/// Linux only; elsewhere [`Timer::new`] returns `Unsupported` and the caller uses its runtime's
/// timer.
#[derive(Debug)]
pub struct Timer {
    platform: platform::Timer,
}

impl Timer {
    /// Creates a timer that is not armed.
    ///
    /// # Errors
    /// `Unsupported` where it is not available; the system's error if no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            platform: platform::Timer::new()?,
        })
    }

    /// Arms the timer for `deadline`; it never fires earlier, and at once if that has passed.
    /// Replaces the previous deadline, without a system call if it is the same.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn arm_at(&self, deadline: Instant) -> io::Result<()> {
        self.platform.arm_at(deadline)
    }

    /// Arms the timer to fire after `delay`. Replaces the previous deadline.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn arm_in(&self, delay: Duration) -> io::Result<()> {
        let now = Instant::now();
        // A delay beyond the clock's range means never.
        now.checked_add(delay)
            .map_or_else(|| self.disarm(), |deadline| self.arm_at(deadline))
    }

    /// Disarms the timer; it neither fires nor is readable until armed again.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn disarm(&self) -> io::Result<()> {
        self.platform.disarm()
    }

    /// Returns whether the timer has fired since it was armed or last asked; if so it is disarmed
    /// and no longer readable.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn clear(&self) -> io::Result<bool> {
        self.platform.clear()
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use std::fs::File;
    use std::io::{self, Read};
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use crate::linux::sys;

    const DISARMED: u64 = 0;

    #[derive(Debug)]
    pub(super) struct Timer {
        file: File,
        /// The current moment on both clocks. `nanos` is read second, so that a converted deadline
        /// is late by the time between the two reads, and never early.
        instant: Instant,
        nanos: u64,
        armed: AtomicU64,
    }

    impl Timer {
        pub(super) fn new() -> io::Result<Self> {
            let file = File::from(sys::timer()?);
            let instant = Instant::now();
            let nanos = sys::monotonic_nanos()?;
            Ok(Self {
                file,
                instant,
                nanos,
                armed: AtomicU64::new(DISARMED),
            })
        }

        pub(super) fn arm_at(&self, deadline: Instant) -> io::Result<()> {
            let since = deadline.saturating_duration_since(self.instant).as_nanos();
            let nanos = u64::try_from(since).map_or(u64::MAX, |n| self.nanos.saturating_add(n));
            // A signed 64-bit count of nanoseconds is what the kernel's timers hold.
            self.set(nanos.clamp(1, i64::MAX as u64))
        }

        pub(super) fn disarm(&self) -> io::Result<()> {
            self.set(DISARMED)
        }

        fn set(&self, nanos: u64) -> io::Result<()> {
            if self.armed.load(Ordering::Relaxed) == nanos {
                return Ok(());
            }
            sys::set_timer(self.file.as_fd(), nanos)?;
            self.armed.store(nanos, Ordering::Relaxed);
            Ok(())
        }

        pub(super) fn clear(&self) -> io::Result<bool> {
            match (&self.file).read(&mut [0; 8]) {
                Ok(_) => {
                    self.armed.store(DISARMED, Ordering::Relaxed);
                    Ok(true)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(error) => Err(error),
            }
        }
    }

    impl AsFd for super::Timer {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.platform.file.as_fd()
        }
    }

    impl AsRawFd for super::Timer {
        fn as_raw_fd(&self) -> RawFd {
            self.platform.file.as_raw_fd()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::convert::Infallible;
    use std::io;
    use std::time::Instant;

    /// Not available: an uninhabited type.
    #[derive(Debug)]
    pub(super) struct Timer(Infallible);

    impl Timer {
        pub(super) fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn arm_at(&self, _deadline: Instant) -> io::Result<()> {
            match self.0 {}
        }

        pub(super) fn disarm(&self) -> io::Result<()> {
            match self.0 {}
        }

        pub(super) fn clear(&self) -> io::Result<bool> {
            match self.0 {}
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// Sleeps until the timer fires; the sleep is not what is measured.
    fn wait(timer: &Timer) -> Instant {
        loop {
            if timer.clear().unwrap() {
                return Instant::now();
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    #[test]
    fn fires_at_the_deadline_or_after() {
        let timer = Timer::new().unwrap();
        for micros in [0, 1, 100, 3000] {
            let deadline = Instant::now() + Duration::from_micros(micros);
            timer.arm_at(deadline).unwrap();
            assert!(wait(&timer) >= deadline);
            assert!(!timer.clear().unwrap(), "fires once");
        }
        let start = Instant::now();
        timer.arm_in(Duration::from_millis(1)).unwrap();
        assert!(wait(&timer) >= start + Duration::from_millis(1));
    }

    #[test]
    fn timer_can_be_rearmed_after_firing() {
        let timer = Timer::new().unwrap();
        let past = Instant::now();
        for _ in 0..2 {
            timer.arm_at(past).unwrap();
            wait(&timer);
        }
    }

    #[test]
    fn earlier_deadline_replaces_later_and_disarm_cancels() {
        let timer = Timer::new().unwrap();
        timer.arm_in(Duration::from_secs(3600)).unwrap();
        timer.arm_in(Duration::from_millis(1)).unwrap();
        wait(&timer);
        timer.arm_in(Duration::ZERO).unwrap();
        timer.disarm().unwrap();
        assert!(!timer.clear().unwrap());
        timer.arm_in(Duration::MAX).unwrap();
        assert!(!timer.clear().unwrap());
    }
}
