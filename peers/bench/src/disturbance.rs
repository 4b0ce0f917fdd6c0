//! A load that disturbs the measured processes: short bursts on every core.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// A burst, and the pause after it: a fifth of a core.
const BURST: Duration = Duration::from_millis(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Threads that take a fifth of each core until this is dropped.
#[derive(Debug)]
pub(crate) struct Disturbance(Arc<AtomicBool>);

impl Disturbance {
    /// Starts one thread for each of `cores`. The scheduler places them, as it would those of
    /// another program.
    pub(crate) fn start(cores: usize) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        for _ in 0..cores {
            let ended = ended.clone();
            thread::spawn(move || {
                while !ended.load(Relaxed) {
                    let begun = Instant::now();
                    while begun.elapsed() < BURST {
                        std::hint::spin_loop();
                    }
                    thread::sleep(PAUSE);
                }
            });
        }
        Self(ended)
    }
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
