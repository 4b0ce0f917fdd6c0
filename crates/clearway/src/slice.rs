//! Slices of work, so that both ends of a connection work at the same time.
//!
//! A hundred requests may arrive in one datagram. If all of them were answered before anything is
//! sent, the client would wait for the whole time, and then the server for the client. So work is
//! passed to the application in slices, and what one slice wrote is sent while the next is worked
//! on: a third of the streams that are open, so that one third is with the application, another
//! on its way and another with the peer.

use std::future::poll_fn;
use std::task::Poll;

/// The parts into which the streams are divided.
const PARTS: usize = 3;

/// The smallest slice. Each may cost a system call, which has to be worth it.
const SMALLEST: usize = 4;

/// The largest: the responses fill a train of datagrams if they have a kilobyte each.
const LARGEST: usize = 64;

/// Returns how much work of a connection with so many open streams makes a slice.
pub(crate) fn slice_of(open_streams: usize) -> usize {
    (open_streams / PARTS).clamp(SMALLEST, LARGEST)
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
    fn slice_is_a_third_within_bounds() {
        for (open, slice) in [(0, 4), (16, 5), (100, 33), (1_000, 64)] {
            assert_eq!(slice_of(open), slice, "of {open} streams");
        }
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
