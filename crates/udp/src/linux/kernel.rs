//! The system calls and the clock of a socket. Tests inject errnos here, so that the code that
//! handles them is the code that runs in production.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::address::SockAddr;
use super::cmsg::ControlBuffer;
use super::errno::Call;
use super::sys::{self, Message, ReceivedMessage};

/// Performs a socket's system calls.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    #[cfg(any(test, feature = "testing"))]
    pub(crate) faults: Option<crate::testing::Faults>,
}

impl Kernel {
    pub(super) fn sendmsg(&self, fd: BorrowedFd<'_>, message: &Message<'_>) -> io::Result<usize> {
        self.meet_fault(Call::SendMessage)?;
        sys::sendmsg(fd, message)
    }

    pub(super) fn sendmmsg(
        &self,
        fd: BorrowedFd<'_>,
        messages: &[Message<'_>],
    ) -> io::Result<usize> {
        self.meet_fault(Call::SendMessages)?;
        sys::sendmmsg(fd, messages)
    }

    pub(super) fn recvmmsg(
        &self,
        fd: BorrowedFd<'_>,
        names: &mut [SockAddr],
        controls: &mut [ControlBuffer],
        buffer: &mut [u8],
        slot: usize,
        filled: &mut [ReceivedMessage],
    ) -> io::Result<usize> {
        self.meet_fault(Call::ReceiveMessages)?;
        sys::recvmmsg(fd, names, controls, buffer, slot, filled)
    }

    pub(super) fn recv_error(
        &self,
        fd: BorrowedFd<'_>,
        name: &mut SockAddr,
        control: &mut ControlBuffer,
        payload: &mut [u8],
    ) -> io::Result<usize> {
        self.meet_fault(Call::ReadErrors)?;
        sys::recv_error(fd, name, control, payload)
    }

    pub(super) fn set_option(
        &self,
        fd: BorrowedFd<'_>,
        level: i32,
        option: i32,
        value: i32,
    ) -> io::Result<()> {
        self.meet_fault(Call::SetOption)?;
        sys::set_option(fd, level, option, value)
    }

    #[cfg(not(any(test, feature = "testing")))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "with fault injection it does more"
    )]
    #[inline]
    fn meet_fault(&self, _: Call) -> io::Result<()> {
        Ok(())
    }

    #[cfg(not(any(test, feature = "testing")))]
    #[expect(clippy::unused_self, reason = "with fault injection it does more")]
    #[inline]
    pub(super) fn now(&self) -> Instant {
        Instant::now()
    }

    #[cfg(any(test, feature = "testing"))]
    fn meet_fault(&self, call: Call) -> io::Result<()> {
        match self.faults.as_ref().and_then(|faults| faults.meet(call)) {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(()),
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn now(&self) -> Instant {
        let now = Instant::now();
        let skipped = self.faults.as_ref().map(crate::testing::Faults::skipped);
        skipped.and_then(|by| now.checked_add(by)).unwrap_or(now)
    }
}
