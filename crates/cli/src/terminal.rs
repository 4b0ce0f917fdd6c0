//! Output for people, on standard error.
//!
//! Messages, log lines and progress bars share it: while a bar is shown, messages are printed above
//! it. Everything that a terminal would interpret is escaped, wherever it comes from.

use std::fmt;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;

use crate::background;
use crate::printable;

/// The bar that is currently shown.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Like `eprintln!`, but a closed or full standard error does not abort a transfer, and text cannot
/// send commands to a terminal.
macro_rules! say {
    ($($arg:tt)*) => {
        $crate::terminal::say(format_args!($($arg)*))
    };
}

/// Prints text of one line or several.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    let mut text = printable::lines(&text).into_owned();
    text.push('\n');
    // A server does not wait for whoever reads this.
    if background::output().is_some_and(|output| output.stderr.push(text.as_bytes())) {
        return;
    }
    let write = || {
        // In one call: other processes may write there too.
        let _ = std::io::stderr().write_all(text.as_bytes());
    };
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Prints messages above this bar from now on.
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
