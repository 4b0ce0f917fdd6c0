//! Sending trains, with every datagram counted as forwarded or dropped.

use clearway_udp::{DatagramSocket as _, MAX_SLOTS, SendError, Transmit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sample::SampledSocket;
use crate::traffic::{DropReason, Traffic};

/// How long a full send buffer is waited for, before what does not fit is dropped.
const SEND_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// Returns the number of datagrams that a train has left.
pub(crate) fn datagrams(transmit: &Transmit<'_>) -> u64 {
    let size = transmit.segment_size.unwrap_or(0).max(1);
    transmit.contents.len().div_ceil(size) as u64
}

/// Returns the vector without its elements, for others with another lifetime. Its memory is kept.
pub(crate) fn emptied<'b>(mut transmits: Vec<Transmit<'_>>) -> Vec<Transmit<'b>> {
    transmits.clear();
    // The standard library collects in place where the size of the elements is the same.
    transmits.into_iter().map_while(|_| None).collect()
}

/// Sends all of `transmits`, and counts every datagram as forwarded or dropped.
pub(crate) fn send(socket: &SampledSocket, transmits: &mut [Transmit<'_>], traffic: &mut Traffic) {
    for call in transmits.chunks_mut(MAX_SLOTS) {
        send_call(socket, call, traffic);
    }
}

/// Sends what takes one call.
fn send_call(socket: &SampledSocket, transmits: &mut [Transmit<'_>], traffic: &mut Traffic) {
    let mut rest = transmits;
    let mut waited = false;
    while !rest.is_empty() {
        let mut before = [0; MAX_SLOTS];
        for (count, transmit) in before.iter_mut().zip(&*rest) {
            *count = datagrams(transmit);
        }
        let (done, failed) = match socket.send_many(rest) {
            Ok(sent) => (sent, None),
            Err(error) => (0, Some(error)),
        };
        traffic.forwarded += before.iter().take(done).sum::<u64>();
        let (_, after) = rest.split_at_mut(done);
        rest = after;
        let Some(error) = failed else {
            continue;
        };
        let Some((first, others)) = rest.split_first_mut() else {
            return;
        };
        let left = datagrams(first);
        traffic.forwarded += before[0].saturating_sub(left);
        let reason = match error {
            SendError::WouldBlock if !waited => {
                waited = true;
                wait_until_writable(socket);
                rest = std::slice::from_mut(first);
                // Once more, alone; then the others.
                send_again(socket, rest, traffic);
                rest = others;
                continue;
            }
            SendError::WouldBlock => DropReason::SendBlocked,
            SendError::TooLarge => DropReason::TooLarge,
            SendError::Dropped(_) => DropReason::SendFailed,
            SendError::Broken(error) => {
                tracing::error!(%error, "an upstream socket is broken");
                DropReason::SendFailed
            }
        };
        traffic.drop(reason, left);
        rest = others;
    }
}

/// Sends one train that did not fit before; what does not fit now is dropped.
fn send_again(socket: &SampledSocket, train: &mut [Transmit<'_>], traffic: &mut Traffic) {
    for transmit in train {
        let before = datagrams(transmit);
        let left = match socket.send(transmit) {
            Ok(()) => 0,
            Err(_) => datagrams(transmit),
        };
        traffic.forwarded += before - left;
        traffic.drop(DropReason::SendBlocked, left);
    }
}

fn wait_until_writable(socket: &SampledSocket) {
    let mut descriptors = [PollFd::new(socket, PollFlags::OUT)];
    // Whether it became writable shows when the train is sent again.
    let _ = poll(&mut descriptors, Some(&SEND_WAIT));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emptied_vector_keeps_its_memory() {
        let to = "127.0.0.1:1".parse().unwrap();
        let transmits: Vec<_> = (0..40).map(|_| Transmit::new(to, b"datagram")).collect();
        let (place, capacity) = (transmits.as_ptr() as usize, transmits.capacity());
        let empty = emptied(transmits);
        assert!(empty.is_empty());
        assert_eq!(
            (empty.as_ptr() as usize, empty.capacity()),
            (place, capacity)
        );
    }
}
