//! Output of a server, written by threads of its own.
//!
//! Whoever reads a server's log may stall: a pipe that is full, a terminal that is paused. The
//! threads that answer clients must not wait for it. They add lines to a queue of limited size,
//! from which one thread for each of stdout and stderr writes. Lines for which there is no room are
//! dropped and counted, and the count is written as soon as somebody reads again.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Size of a queue in bytes: some ten thousand lines, more than a second's of a busy server.
const MOST: usize = 2 << 20;

/// How much is written at once, in bytes.
const PIECE: usize = 64 << 10;

/// The pause after each write. What is added meanwhile is written at once after it: a thread that is woken
/// for every line would take the processor from the event loop some ten thousand times a second.
const PAUSE: Duration = Duration::from_millis(10);

/// How long the end of a command waits for a reader that takes nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// The output of a server.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) stdout: LineQueue,
    pub(crate) stderr: LineQueue,
}

static BACKGROUND: OnceLock<Background> = OnceLock::new();

/// Starts to write in the background, for the rest of the process.
///
/// # Errors
/// If there is no thread for it.
pub(crate) fn start() -> io::Result<()> {
    let output = BACKGROUND.get_or_init(|| Background {
        stdout: LineQueue::new(|count| {
            format!("{{\"event\":\"log_lines_dropped\",\"count\":{count}}}\n")
        }),
        stderr: LineQueue::new(|count| {
            format!(
                "log: {count} lines were dropped, because standard error was not read in time\n"
            )
        }),
    });
    let threads = std::thread::Builder::new;
    threads()
        .name("stdout".into())
        .spawn(|| output.stdout.write_to(&mut io::stdout()))?;
    threads()
        .name("stderr".into())
        .spawn(|| output.stderr.write_to(&mut io::stderr()))?;
    Ok(())
}

/// The queues, if this command writes in the background and is not over yet.
pub(crate) fn output() -> Option<&'static Background> {
    BACKGROUND.get()
}

/// Writes what is left, as long as somebody reads it.
pub(crate) fn finish() {
    if let Some(output) = BACKGROUND.get() {
        output.stdout.finish();
        output.stderr.finish();
    }
}

/// Lines that wait to be written.
#[derive(Debug)]
pub(crate) struct LineQueue {
    state: Mutex<QueueState>,
    /// The thread has something to do, or it has ended.
    changed: Condvar,
    /// The line that reports how many were dropped.
    report: fn(u64) -> String,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: Vec<u8>,
    dropped: u64,
    /// Bytes written so far.
    written: u64,
    /// The thread pauses, and is woken only if the queue is half full.
    is_paused: bool,
    /// Nothing is added any more.
    is_closed: bool,
    /// The thread has ended.
    is_done: bool,
}

impl QueueState {
    /// Whether the thread has to write now.
    fn is_urgent(&self) -> bool {
        let enough = if self.is_paused { MOST / 2 } else { 1 };
        self.is_closed || self.waiting.len() >= enough
    }
}

impl LineQueue {
    fn new(report: fn(u64) -> String) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            report,
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds whole lines. Returns false if the queue is closed.
    pub(crate) fn push(&self, lines: &[u8]) -> bool {
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        if state.waiting.len().saturating_add(lines.len()) > MOST {
            state.dropped += 1;
            return true;
        }
        let was_urgent = state.is_urgent();
        state.waiting.extend_from_slice(lines);
        let is_urgent = state.is_urgent();
        drop(state);
        if is_urgent && !was_urgent {
            self.changed.notify_all();
        }
        true
    }

    /// Writes until the queue is closed and empty. After an error, such as a reader that has gone
    /// away, lines are discarded.
    fn write_to(&self, out: &mut impl io::Write) {
        let mut batch = Vec::new();
        let mut is_broken = false;
        loop {
            {
                let mut state = self.state();
                while state.waiting.is_empty() && state.dropped == 0 && !state.is_closed {
                    state = self
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                std::mem::swap(&mut batch, &mut state.waiting);
                match std::mem::take(&mut state.dropped) {
                    0 => {}
                    count => batch.extend_from_slice((self.report)(count).as_bytes()),
                }
                if batch.is_empty() {
                    state.is_done = true;
                    drop(state);
                    return self.changed.notify_all();
                }
            }
            for piece in batch.chunks(PIECE) {
                is_broken |= !is_broken && out.write_all(piece).and_then(|()| out.flush()).is_err();
                self.state().written += piece.len() as u64;
            }
            batch.clear();
            batch.shrink_to(PIECE);
            self.pause();
        }
    }

    /// Waits until lines have gathered, or are to be written at once.
    fn pause(&self) {
        let mut state = self.state();
        state.is_paused = true;
        let waits = |state: &mut QueueState| !state.is_urgent();
        let waited = self.changed.wait_timeout_while(state, PAUSE, waits);
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_paused = false;
    }

    /// Closes the queue and waits until it is empty, or until nothing was read for a while.
    fn finish(&self) {
        let mut state = self.state();
        state.is_closed = true;
        self.changed.notify_all();
        while !state.is_done {
            let before = state.written;
            let waited = self.changed.wait_timeout(state, PATIENCE);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timeout.timed_out() && state.written == before {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// An output that takes a piece when the test lets it.
    struct Gated {
        allowed: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl io::Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.allowed.recv().map_err(io::Error::other)?;
            let _ = self.written.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn stalled_reader_costs_lines_that_are_counted_and_never_the_writers_time() {
        let queue = LineQueue::new(|count| format!("{count} dropped\n"));
        let (allow, allowed) = channel();
        let (written, read) = channel();
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let lines = 3 * MOST / line.len();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.write_to(&mut Gated { allowed, written }));
            for _ in 0..lines {
                assert!(queue.push(&line));
            }
            assert!(queue.state().waiting.len() <= MOST);
            for _ in 0..1_000 {
                allow.send(()).unwrap();
            }
            queue.finish();
        });
        assert!(!queue.push(&line), "it is closed");
        let all: Vec<u8> = read.try_iter().flatten().collect();
        let text = String::from_utf8(all).unwrap();
        let (full, others): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.len() == 999);
        let dropped: usize = others
            .iter()
            .map(|line| {
                line.strip_suffix(" dropped")
                    .unwrap()
                    .parse::<usize>()
                    .unwrap()
            })
            .sum();
        assert!(dropped > 0);
        assert_eq!(full.len() + dropped, lines);
    }

    #[test]
    fn thread_that_pauses_is_woken_by_a_queue_that_is_half_full_or_closed_only() {
        let line = vec![b'x'; MOST / 4];
        let mut state = QueueState::default();
        assert!(!state.is_urgent());
        state.waiting.push(b'x');
        assert!(state.is_urgent());
        state.is_paused = true;
        assert!(!state.is_urgent());
        state.waiting.extend_from_slice(&line);
        assert!(!state.is_urgent());
        state.waiting.extend_from_slice(&line);
        assert!(state.is_urgent());
        state.waiting.clear();
        state.is_closed = true;
        assert!(state.is_urgent());
    }

    #[test]
    fn reader_that_has_gone_away_does_not_stop_the_queue() {
        let queue = LineQueue::new(|count| format!("{count}\n"));
        let (allow, allowed) = channel();
        let (written, _read) = channel();
        drop(allow);
        std::thread::scope(|scope| {
            scope.spawn(|| queue.write_to(&mut Gated { allowed, written }));
            for _ in 0..10_000 {
                queue.push(&[b'x'; 1_000]);
            }
            queue.finish();
        });
        assert!(queue.state().is_done);
    }
}
