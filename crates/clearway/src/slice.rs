//! Slices of work, so that both ends of a connection work at the same time.
//!
//! A hundred requests may arrive in one datagram. If all of them were answered before anything is
//! sent, the client would wait for the whole time, and then the server for the client. So work is
//! passed to the application in slices, and what one slice wrote is sent while the next is worked
//! on: a third of the streams that are open, so that one third is with the application, another
//! on its way and another with the peer. Where several connections are busy, one is worked on
//! while others are on their way, and a slice is larger.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::Poll;

/// The parts into which the streams are divided.
const PARTS: usize = 3;

/// The smallest slice. Each may cost a system call, which has to be worth it.
const SMALLEST: usize = 4;

/// The largest: the responses fill a train of datagrams if they have a kilobyte each.
const LARGEST: usize = 64;

/// Returns how much work of a connection with so many open streams makes a slice, if `busy`
/// connections of its shard have work.
pub(crate) fn slice_of(open_streams: usize, busy: u8) -> usize {
    let share = open_streams.saturating_mul(busy.max(1).into()) / PARTS;
    share.clamp(SMALLEST, LARGEST)
}

/// How many connections of a shard have work at about the same time, at most 255.
#[derive(Debug, Default)]
pub(crate) struct BusyConnections(AtomicU8);

impl BusyConnections {
    /// Records how many connections had a turn in a round of the event loop. A lower number
    /// than before has its full effect after some rounds.
    pub(crate) fn record(&self, served: usize) {
        let served = u8::try_from(served).unwrap_or(u8::MAX);
        let before = self.0.load(Relaxed);
        let decayed = before.saturating_sub(before.div_ceil(8));
        let now = served.max(decayed);
        if now != before {
            self.0.store(now, Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u8 {
        self.0.load(Relaxed)
    }
}

/// Lets every task run that is ready now.
///
/// `tokio::task::yield_now` also polls the runtime's I/O driver, a system call each time.
pub(crate) async fn requeue() {
    let mut is_requeued = false;
    poll_fn(|cx| {
        if is_requeued {
            return Poll::Ready(());
        }
        is_requeued = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_is_a_third_within_bounds_and_more_beside_other_connections() {
        for (open, busy, slice) in [
            (0, 0, 4),
            (16, 1, 5),
            (100, 1, 33),
            (1_000, 1, 64),
            (16, 2, 10),
            (10, 10, 33),
        ] {
            assert_eq!(slice_of(open, busy), slice, "{open} streams, {busy} busy");
        }
    }

    #[test]
    fn busy_connections_rise_at_once_and_fall_over_some_rounds() {
        let busy = BusyConnections::default();
        let seen: Vec<u8> = [10, 1, 1, 12, 0, 0]
            .into_iter()
            .map(|served| {
                busy.record(served);
                busy.get()
            })
            .collect();
        assert_eq!(seen, [10, 8, 7, 12, 10, 8]);
        (0..20).for_each(|_| busy.record(1));
        assert_eq!(busy.get(), 1);
    }

    #[tokio::test]
    async fn requeued_task_runs_after_those_that_are_ready() {
        let order = std::sync::Mutex::new(Vec::new());
        let (a, b) = (
            async {
                order.lock().unwrap().push("a begins");
                requeue().await;
                order.lock().unwrap().push("a ends");
            },
            async { order.lock().unwrap().push("b") },
        );
        tokio::join!(a, b);
        assert_eq!(*order.lock().unwrap(), ["a begins", "b", "a ends"]);
    }
}
