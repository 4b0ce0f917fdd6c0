//! Text for people, on standard error.

/// Like `eprintln!`, but a standard error that is closed or full is no reason
/// to abandon a transfer.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($arg)*);
    }};
}
