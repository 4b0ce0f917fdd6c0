//! Panics in the siege itself: its clients are the library's, so a panic in one is a
//! finding, even where it is caught.

use std::sync::{Mutex, PoisonError};

/// Panics that are kept between two calls of [`take`].
const REMEMBERED: usize = 5;

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records panics from now on, instead of printing them.
pub(crate) fn record() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("?");
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        if panics.len() < REMEMBERED {
            let panic = panic.to_string().replace('\n', " ");
            panics.push(format!("thread {name} of the siege {panic}"));
        }
    }));
}

/// Returns the panics since the last call.
pub(crate) fn take() -> Vec<String> {
    std::mem::take(&mut PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}
