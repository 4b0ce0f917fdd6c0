//! Receiving a batch.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use super::address::{destination_v4, destination_v6};
use super::cmsg::{ControlBuffer, u32_of};
use super::errno::{RecvErrno, receiving};
use super::{Backend, errno_of};
use crate::{Ecn, Meta, RecvBatch, RecvError};

/// ICMP errors of earlier sends that one call skips before it switches the kernel's reports off:
/// each needs a message of its own, so more than this is a flood.
const QUEUED_WHILE_LISTENING: u32 = 8;

/// The total number that it skips. With reports off there should be none.
const QUEUED: u32 = 16;

/// How often a call is repeated that was interrupted or failed for an unknown reason.
const FAILURES: u32 = 4;

impl Backend {
    pub(crate) fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError> {
        self.icmp.reopen(&self.kernel, self.socket.as_fd());
        let received = self.receive(batch)?;
        self.receive_streak.end();
        let parts = batch.parts();
        let scratch = parts.scratch;
        let places = parts
            .metas
            .iter_mut()
            .zip(&scratch.filled)
            .zip(scratch.names.iter().zip(&scratch.controls));
        for ((meta, filled), (name, control)) in places.take(received) {
            *meta = self.read_control(control, filled.len);
            if let Some(remote) = name.decode() {
                meta.remote = remote;
            }
            if filled.truncated {
                self.tally.truncated.add(1);
                // A truncated datagram cannot be authenticated: keep only the whole ones.
                let whole = meta.len.checked_div(meta.stride).unwrap_or(0);
                meta.len = whole.saturating_mul(meta.stride);
            }
        }
        self.count(parts.metas.get(..received).unwrap_or_default());
        batch.fill(received);
        Ok(received)
    }

    /// Repeats the system call until its result is about receiving.
    fn receive(&self, batch: &mut RecvBatch) -> Result<usize, RecvError> {
        let (mut queued, mut failures) = (0_u32, 0_u32);
        loop {
            let error = match self.receive_once(batch) {
                Ok(received) => return Ok(received),
                Err(error) => error,
            };
            let answered = match receiving(errno_of(&error)) {
                RecvErrno::Wait => {
                    self.receive_streak.end();
                    return Err(RecvError::WouldBlock);
                }
                RecvErrno::Broken => return Err(RecvError::Broken(error)),
                RecvErrno::Queued => {
                    self.note_pending();
                    queued = queued.saturating_add(1);
                    if queued == QUEUED_WHILE_LISTENING {
                        self.stop_listening();
                    }
                    queued == QUEUED
                }
                RecvErrno::Again | RecvErrno::Unavailable => {
                    failures = failures.saturating_add(1);
                    failures == FAILURES
                }
            };
            if answered {
                return Err(self.unavailable(error));
            }
        }
    }

    fn receive_once(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        let parts = batch.parts();
        let scratch = parts.scratch;
        self.tally.receive_calls.add(1);
        self.kernel.recvmmsg(
            self.socket.as_fd(),
            &mut scratch.names,
            &mut scratch.controls,
            parts.buffer,
            parts.slot,
            &mut scratch.filled,
        )
    }

    /// Handles a failure to receive that is not an empty queue.
    fn unavailable(&self, error: io::Error) -> RecvError {
        self.tally.unexplained_errors.add(1);
        let now = self.kernel.now();
        if self.receive_streak.add(now) {
            return RecvError::Broken(error);
        }
        if self.receive_warning.is_due(now) {
            tracing::warn!("receiving datagrams fails temporarily: {error}");
        }
        RecvError::Unavailable(error)
    }

    fn read_control(&self, control: &ControlBuffer, len: usize) -> Meta {
        let drops = self.last_drops.load(Ordering::Relaxed);
        let mut meta = Meta {
            len,
            stride: len,
            drops,
            ..Meta::EMPTY
        };
        for (level, kind, data) in control.iter() {
            match (level, kind) {
                (libc::SOL_IP, libc::IP_TOS) | (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
                    // One byte for IPv4; for IPv6 an int, whose value is a byte's.
                    let tos = u32_of(data)
                        .map(|word| word as u8)
                        .or(data.first().copied());
                    meta.ecn = tos.and_then(Ecn::from_bits);
                }
                (libc::SOL_IP, libc::IP_PKTINFO) => meta.local_ip = destination_v4(data),
                (libc::SOL_IPV6, libc::IPV6_PKTINFO) => meta.local_ip = destination_v6(data),
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    if let Some(stride) = u32_of(data).filter(|stride| *stride > 0) {
                        meta.stride = stride as usize;
                    }
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    if let Some(drops) = u32_of(data) {
                        meta.drops = drops;
                        self.note_drops(drops);
                    }
                }
                _ => {}
            }
        }
        meta
    }

    /// The kernel's count is 32 bits wide, wraps, and stands still on messages queued before a
    /// drop: only a step forward is news.
    pub(super) fn note_drops(&self, drops: u32) {
        let last = self.last_drops.load(Ordering::Relaxed);
        let step = drops.wrapping_sub(last);
        if step > 0 && step < u32::MAX / 2 {
            self.last_drops.store(drops, Ordering::Relaxed);
            self.tally.receive_drops.add(u64::from(step));
        }
    }

    fn count(&self, metas: &[Meta]) {
        let mut datagrams = 0_u64;
        let mut bytes = 0_u64;
        let mut trains = 0_u64;
        for meta in metas {
            let inside = meta.datagrams();
            datagrams = datagrams.saturating_add(inside as u64);
            bytes = bytes.saturating_add(meta.len as u64);
            trains = trains.saturating_add(u64::from(inside > 1));
        }
        self.tally.received_datagrams.add(datagrams);
        self.tally.received_bytes.add(bytes);
        if trains > 0 {
            self.tally.gro_trains.add(trains);
        }
    }
}
