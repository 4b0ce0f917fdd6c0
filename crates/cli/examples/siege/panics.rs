//! Panics within the siege itself: its clients are the library's, and a defect of
//! theirs is a finding, also where somebody catches it.

use std::sync::{Mutex, PoisonError};

/// Panics that are kept, in words; more say nothing new.
const REMEMBERED: usize = 5;

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps panics from now on, instead of printing them.
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

/// Those since this was last called.
pub(crate) fn take() -> Vec<String> {
    std::mem::take(&mut PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}
