//! System calls that std does not provide. All of the crate's `unsafe` is here; each function is
//! safe to call with any arguments its types allow.

#![expect(
    unsafe_code,
    reason = "recvmmsg, sendmmsg, socket options and timerfd have no safe form in std"
)]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::address::SockAddr;
use super::cmsg::{ControlBuffer, SentControl};
use crate::MAX_SLOTS;

/// What a receive call returns about one message besides its address and control messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceivedMessage {
    pub(super) len: usize,
    pub(super) truncated: bool,
}

/// One message to send.
pub(super) struct Message<'a> {
    pub(super) name: SockAddr,
    pub(super) control: SentControl,
    pub(super) contents: &'a [u8],
}

fn check(result: libc::c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn check_size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Receives up to one message for each of `filled` (at most [`MAX_SLOTS`]), each into a chunk of
/// `slot` bytes of `buffer` and the name and control of the same index.
pub(super) fn recvmmsg(
    fd: BorrowedFd<'_>,
    names: &mut [SockAddr],
    controls: &mut [ControlBuffer],
    buffer: &mut [u8],
    slot: usize,
    filled: &mut [ReceivedMessage],
) -> io::Result<usize> {
    // SAFETY: both are C structs of integers and raw pointers, for which zero is a value.
    let mut headers: [libc::mmsghdr; MAX_SLOTS] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut iovecs: [libc::iovec; MAX_SLOTS] = unsafe { mem::zeroed() };
    let mut count: libc::c_uint = 0;
    let slots = buffer
        .chunks_exact_mut(slot)
        .zip(&mut *names)
        .zip(&mut *controls);
    let places = headers.iter_mut().zip(&mut iovecs).take(filled.len());
    for (((chunk, name), control), (header, iovec)) in slots.zip(places) {
        iovec.iov_base = chunk.as_mut_ptr().cast();
        iovec.iov_len = chunk.len();
        let header = &mut header.msg_hdr;
        header.msg_name = name.room().as_mut_ptr().cast();
        header.msg_namelen = name.room().len() as _;
        header.msg_iov = iovec;
        header.msg_iovlen = 1;
        header.msg_control = control.room().as_mut_ptr().cast();
        header.msg_controllen = control.room().len() as _;
        count = count.saturating_add(1);
    }
    // SAFETY: the first `count` headers point at live, exclusively borrowed memory of the
    // lengths beside the pointers (a chunk, a name, a control buffer, an iovec), none of which
    // moves or is touched by anyone else during the call. The kernel keeps no pointer.
    let result = unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    };
    let received = check(result)?;
    let outcome = names
        .iter_mut()
        .zip(controls)
        .zip(filled)
        .zip(&headers)
        .take(received);
    for (((name, control), filled), header) in outcome {
        name.set_len(header.msg_hdr.msg_namelen as usize);
        control.set_len(header.msg_hdr.msg_controllen as _);
        filled.len = (header.msg_len as usize).min(slot);
        filled.truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
    }
    Ok(received)
}

/// Takes one message off the socket's error queue; returns the bytes of the quoted payload.
pub(super) fn recv_error(
    fd: BorrowedFd<'_>,
    name: &mut SockAddr,
    control: &mut ControlBuffer,
    payload: &mut [u8],
) -> io::Result<usize> {
    let mut iovec = libc::iovec {
        iov_base: payload.as_mut_ptr().cast(),
        iov_len: payload.len(),
    };
    // SAFETY: a C struct of integers and raw pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = name.room().as_mut_ptr().cast();
    header.msg_namelen = name.room().len() as _;
    header.msg_iov = &raw mut iovec;
    header.msg_iovlen = 1;
    header.msg_control = control.room().as_mut_ptr().cast();
    header.msg_controllen = control.room().len() as _;
    // SAFETY: the header's pointers are to live, exclusively borrowed memory of the lengths
    // beside them; the kernel keeps none.
    let result = unsafe {
        libc::recvmsg(
            fd.as_raw_fd(),
            &raw mut header,
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        )
    };
    let len = check_size(result)?;
    name.set_len(header.msg_namelen as usize);
    control.set_len(header.msg_controllen as _);
    Ok(len.min(payload.len()))
}

/// A header for `message`, whose one iovec is `iovec`. The pointers are only good while both
/// live; the kernel writes through none of them when sending, whatever their type.
fn header_of(message: &Message<'_>, iovec: &mut libc::iovec) -> libc::msghdr {
    iovec.iov_base = message.contents.as_ptr().cast_mut().cast();
    iovec.iov_len = message.contents.len();
    // SAFETY: a C struct of integers and raw pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = message.name.as_bytes().as_ptr().cast_mut().cast();
    header.msg_namelen = message.name.as_bytes().len() as _;
    header.msg_iov = iovec;
    header.msg_iovlen = 1;
    let control = message.control.as_bytes();
    if !control.is_empty() {
        header.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len() as _;
    }
    header
}

/// Sends one message.
pub(super) fn sendmsg(fd: BorrowedFd<'_>, message: &Message<'_>) -> io::Result<usize> {
    let mut iovec = libc::iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    };
    let header = header_of(message, &mut iovec);
    // SAFETY: the header points at `message`'s parts and `iovec`, all alive across the call,
    // with their true lengths; sending only reads them.
    check_size(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) })
}

/// Sends messages (at most [`MAX_SLOTS`] of them) until one is refused; returns how many went.
/// An error is about the first.
pub(super) fn sendmmsg(fd: BorrowedFd<'_>, messages: &[Message<'_>]) -> io::Result<usize> {
    // SAFETY: both are C structs of integers and raw pointers, for which zero is a value.
    let mut headers: [libc::mmsghdr; MAX_SLOTS] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut iovecs: [libc::iovec; MAX_SLOTS] = unsafe { mem::zeroed() };
    let mut count: libc::c_uint = 0;
    for ((message, header), iovec) in messages.iter().zip(&mut headers).zip(&mut iovecs) {
        header.msg_hdr = header_of(message, iovec);
        count = count.saturating_add(1);
    }
    // SAFETY: the first `count` headers point at parts of `messages` and at `iovecs`, all alive
    // across the call, with their true lengths; sending reads them and writes only `msg_len`
    // in the headers, which are ours.
    check(unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            libc::MSG_DONTWAIT as _,
        )
    })
}

/// Sets an integer socket option.
pub(super) fn set_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the pointer is to a live `c_int`, and the length is its size.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    check(result).map(drop)
}

/// Has `program` choose a socket of the reuseport group `fd` belongs to.
pub(super) fn attach_reuseport(
    fd: BorrowedFd<'_>,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: `filter` is a live `sock_fprog` whose pointer and length are those of `program`;
    // the kernel copies and checks the program and writes to neither.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of_val(&filter) as libc::socklen_t,
        )
    };
    check(result).map(drop)
}

/// A disarmed timer on the monotonic clock.
pub(crate) fn timer() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are involved.
    let result = unsafe {
        libc::timerfd_create(
            libc::CLOCK_MONOTONIC,
            libc::TFD_NONBLOCK | libc::TFD_CLOEXEC,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above just made this descriptor, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Has `timer` fire when the monotonic clock reads `nanos`; 0 disarms it.
pub(crate) fn set_timer(timer: BorrowedFd<'_>, nanos: u64) -> io::Result<()> {
    // SAFETY: a C struct of integers, for which zero is a value.
    let mut spec: libc::itimerspec = unsafe { mem::zeroed() };
    spec.it_value.tv_sec = (nanos / 1_000_000_000) as _;
    spec.it_value.tv_nsec = (nanos % 1_000_000_000) as _;
    // SAFETY: the new value is live and initialised, and a null old value is allowed.
    let result = unsafe {
        libc::timerfd_settime(
            timer.as_raw_fd(),
            libc::TFD_TIMER_ABSTIME,
            &raw const spec,
            ptr::null_mut(),
        )
    };
    check(result).map(drop)
}

/// The monotonic clock, nanoseconds.
pub(crate) fn monotonic_nanos() -> io::Result<u64> {
    // SAFETY: a C struct of integers, for which zero is a value.
    let mut now: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a live, exclusively borrowed timespec.
    check(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) })?;
    Ok((now.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec as u64))
}
