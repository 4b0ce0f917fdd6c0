//! Receiving a batch.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use super::address::{destination_v4, destination_v6};
use super::cmsg::{Control, u32_of};
use super::{Backend, errors, sys};
use crate::{Ecn, Meta, RecvBatch, RecvError};

/// Errors of earlier sends that one call passes over before it reports back: each needs an ICMP
/// message of its own, so more than this is a flood.
const MAX_PENDING_ERRORS: usize = 64;

impl Backend {
    pub(crate) fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError> {
        let parts = batch.parts();
        let scratch = parts.scratch;
        let mut errors = 0;
        let received = loop {
            self.tally.receive_calls.add(1);
            let result = sys::recvmmsg(
                self.socket.as_fd(),
                &mut scratch.names,
                &mut scratch.controls,
                parts.buffer,
                parts.slot,
                &mut scratch.filled,
            );
            match result {
                Ok(received) => break received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if errors::is_pending(&error) => {
                    self.note_pending();
                    errors += 1;
                    if errors == MAX_PENDING_ERRORS {
                        return Ok(0);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(RecvError::WouldBlock);
                }
                Err(error) => return Err(RecvError::Broken(error)),
            }
        };
        for (index, meta) in parts.metas.iter_mut().take(received).enumerate() {
            let filled = scratch.filled[index];
            *meta = self.read_control(&scratch.controls[index], filled.len);
            if let Some(remote) = scratch.names[index].decode() {
                meta.remote = remote;
            }
            if filled.truncated {
                self.tally.truncated.add(1);
                // A datagram cut short cannot be authenticated: keep the whole ones.
                meta.len -= meta.len % meta.stride.max(1);
            }
        }
        self.count(&parts.metas[..received]);
        batch.fill(received);
        Ok(received)
    }

    fn read_control(&self, control: &Control, len: usize) -> Meta {
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
        let mut datagrams = 0;
        let mut bytes = 0;
        let mut trains = 0;
        for meta in metas {
            let inside = meta.datagrams();
            datagrams += inside as u64;
            bytes += meta.len as u64;
            trains += u64::from(inside > 1);
        }
        self.tally.received_datagrams.add(datagrams);
        self.tally.received_bytes.add(bytes);
        if trains > 0 {
            self.tally.gro_trains.add(trains);
        }
    }
}
