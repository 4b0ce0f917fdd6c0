//! Text for people, on standard error.
//!
//! Messages, log lines and progress bars share it: what is said while a bar is shown
//! is said above it. Nothing that a terminal would obey gets there, whoever supplied it.

use std::fmt;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;

use crate::printable;

/// The bar that is shown now.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Like `eprintln!`, but a standard error that is closed or full is no reason
/// to abandon a transfer, and what it says cannot command a terminal.
macro_rules! say {
    ($($arg:tt)*) => {
        $crate::terminal::say(format_args!($($arg)*))
    };
}

/// Says something, in one line or several.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    let mut text = printable::lines(&text).into_owned();
    text.push('\n');
    let write = || {
        // In one piece: other processes may write there too.
        let _ = std::io::stderr().write_all(text.as_bytes());
    };
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Says things above this bar from now on.
pub(crate) fn show(bar: &ProgressBar) {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
}

/// Removes the bar.
pub(crate) fn clear() {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}
