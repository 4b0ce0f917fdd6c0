//! Decides whether the kernel reports ICMP errors to the socket.
//!
//! These reports are worth little (QUIC has loss detection, and anyone can forge them) and in a
//! flood cost much: each makes a call fail and uses receive buffer. So above a certain rate, and
//! whenever a call's own errno has to be told from an ICMP error's, reports are switched off for a
//! second. With `IP_RECVERR` off, the kernel drops ICMP errors about unconnected UDP sockets
//! (`__udp4_lib_err`) and empties the queue; the errors of the next calls are then their own.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::kernel::Kernel;
use crate::warning_interval::WarningInterval;

/// ICMP errors accepted in one [`WINDOW`] before the gate closes. Each costs two system calls, so
/// this many are some milliseconds of CPU time, and more than any honest network sends.
const PER_WINDOW: u32 = 1_000;

/// The interval over which [`PER_WINDOW`] is counted.
const WINDOW: Duration = Duration::from_secs(1);

/// How long the gate stays closed. Closing it again at once costs some ten system calls, which
/// a second makes negligible.
const PAUSE: Duration = Duration::from_secs(1);

/// Open: ICMP errors are queued and fail calls. Closed: the kernel drops them.
#[derive(Debug)]
pub(super) struct IcmpGate {
    /// Whether the kernel supports switching reports on and off.
    offered: bool,
    is_v6: bool,
    closed: AtomicBool,
    state: Mutex<State>,
    warning: WarningInterval,
}

#[derive(Debug, Default)]
struct State {
    closed_until: Option<Instant>,
    window_began: Option<Instant>,
    heard: u32,
}

impl IcmpGate {
    /// Open, if the kernel has switched ICMP errors on (`offered`).
    pub(super) fn new(offered: bool, is_v6: bool) -> Self {
        Self {
            offered,
            is_v6,
            closed: AtomicBool::new(!offered),
            state: Mutex::default(),
            warning: WarningInterval::default(),
        }
    }

    /// Whether a call may fail because of an ICMP error.
    pub(super) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    /// Counts an ICMP error; returns whether there are too many.
    pub(super) fn hear(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let fresh = state
            .window_began
            .is_none_or(|began| now.saturating_duration_since(began) >= WINDOW);
        if fresh {
            state.window_began = Some(now);
            state.heard = 0;
        }
        state.heard = state.heard.saturating_add(1);
        state.heard > PER_WINDOW
    }

    /// Closes the gate for a while; returns whether it is closed.
    pub(super) fn close(&self, kernel: &Kernel, fd: BorrowedFd<'_>) -> bool {
        if !self.offered {
            return true;
        }
        let now = kernel.now();
        if let Err(error) = set_listening(kernel, fd, self.is_v6, false) {
            if self.warning.is_due(now) {
                tracing::warn!("cannot switch off ICMP error reporting: {error}");
            }
            return false;
        }
        let mut state = self.lock();
        state.closed_until = now.checked_add(PAUSE);
        let flood = state.heard > PER_WINDOW;
        drop(state);
        self.closed.store(true, Ordering::Relaxed);
        if flood && self.warning.is_due(now) {
            tracing::warn!(
                "more than {PER_WINDOW} ICMP errors a second about datagrams of this socket, \
                 probably forged: ignoring them for {PAUSE:?} at a time (they affect no connection)"
            );
        }
        true
    }

    /// Opens the gate if the pause is over.
    pub(super) fn reopen(&self, kernel: &Kernel, fd: BorrowedFd<'_>) {
        if self.is_open() || !self.offered {
            return;
        }
        let now = kernel.now();
        let mut state = self.lock();
        if state.closed_until.is_none_or(|until| now < until) {
            return;
        }
        state.closed_until = now.checked_add(PAUSE);
        // If the kernel refuses, it stays closed and is tried again after another pause.
        if set_listening(kernel, fd, self.is_v6, true).is_ok() {
            self.closed.store(false, Ordering::Relaxed);
            state.window_began = None;
            state.heard = 0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Switches the kernel's ICMP reports on or off. An IPv6 socket may also carry IPv4.
pub(super) fn set_listening(
    kernel: &Kernel,
    fd: BorrowedFd<'_>,
    is_v6: bool,
    listening: bool,
) -> io::Result<()> {
    let value = i32::from(listening);
    kernel.set_option(fd, libc::SOL_IP, libc::IP_RECVERR, value)?;
    if is_v6 {
        kernel.set_option(fd, libc::SOL_IPV6, libc::IPV6_RECVERR, value)?;
    }
    Ok(())
}
