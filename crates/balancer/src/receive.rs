//! Receiving, with errors that concern single datagrams set aside.

use std::io;

use clearway_udp::{DatagramSocket, RecvBatch, RecvError};
use rustix::event::Timespec;

use crate::sample::SampledSocket;

/// How long a thread sleeps at most: then it looks for a new plan, expires flows, and publishes
/// its counts.
pub(crate) const SLEEP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Returns whether `batch` has messages now.
pub(crate) fn receive(socket: &SampledSocket, batch: &mut RecvBatch) -> io::Result<bool> {
    match socket.recv(batch) {
        Ok(received) => Ok(received > 0),
        Err(RecvError::WouldBlock) => Ok(false),
        Err(RecvError::Unavailable(error)) => {
            tracing::warn!(%error, "the system cannot receive datagrams at the moment");
            Ok(false)
        }
        Err(RecvError::Broken(error)) => Err(error),
    }
}

/// Empties the socket's queue of ICMP errors, which would take room from datagrams. They are not
/// passed on: anybody can forge them, and QUIC does without.
pub(crate) fn discard_errors(socket: &impl DatagramSocket) -> io::Result<()> {
    socket.expect_errors();
    for _ in 0..64 {
        if socket.poll_errors()?.is_none() {
            break;
        }
    }
    Ok(())
}
