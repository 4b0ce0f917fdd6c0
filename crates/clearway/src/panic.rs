//! Panics that are caught: what they said, and where.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use clearway_quic::connection::ConnectionError;
use clearway_quic::error::{Code, TransportError};

/// A panic that was caught: its message, and where in the source it began.
#[derive(Clone, PartialEq, Eq)]
pub struct CaughtPanic(Arc<Details>);

#[derive(PartialEq, Eq)]
struct Details {
    message: String,
    location: Option<String>,
}

impl CaughtPanic {
    /// The panic's message; empty if the payload was no string.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// `file:line:column` of the panic; `None` if the process replaced its panic
    /// hook after the endpoint was made, because only a hook is told.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        self.0.location.as_deref()
    }

    /// The error of a connection that it ends; `when` says what was going on.
    pub(crate) fn as_connection_error(&self, when: impl fmt::Display) -> ConnectionError {
        let reason = format!("panic {when}: {self}");
        ConnectionError::Transport(TransportError::new(Code::INTERNAL_ERROR, reason))
    }

    fn new(payload: Box<dyn Any + Send>) -> Self {
        let message = match payload.downcast_ref::<&str>() {
            Some(text) => (*text).to_owned(),
            None => payload
                .downcast_ref::<String>()
                .cloned()
                .unwrap_or_default(),
        };
        // The payload is anybody's type, so dropping it may panic too.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
        Self::with(message)
    }

    /// The panic that unwinds this thread now, whose message only its catcher is
    /// given.
    pub(crate) fn unwinding() -> Self {
        Self::with(String::new())
    }

    fn with(message: String) -> Self {
        let location = LOCATION.try_with(RefCell::take).unwrap_or_default();
        Self(Arc::new(Details { message, location }))
    }
}

impl fmt::Display for CaughtPanic {
    /// Says it as the standard library's hook does: `src/file.rs:1:2: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = match self.message() {
            "" => "no message",
            message => message,
        };
        match self.location() {
            Some(location) => write!(f, "{location}: {message}"),
            None => f.write_str(message),
        }
    }
}

impl std::error::Error for CaughtPanic {}

impl fmt::Debug for CaughtPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaughtPanic({self})")
    }
}

thread_local! {
    /// Where this thread panicked last.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has the process note where its threads panic, before it does whatever it did
/// so far: a caught panic does not tell.
pub(crate) fn note_locations() {
    static ONCE: Once = Once::new();
    // A hook cannot be set while the thread unwinds.
    if std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let location = info.location().map(ToString::to_string);
            // A thread that is ending has no place for it any more.
            let _ = LOCATION.try_with(|last| last.replace(location));
            before(info);
        }));
    });
}

/// Runs `act`; a panic in it ends there. What it worked on must not be relied on
/// afterwards.
///
/// # Errors
/// The panic.
pub(crate) fn catch<R>(act: impl FnOnce() -> R) -> Result<R, CaughtPanic> {
    catch_unwind(AssertUnwindSafe(act)).map_err(CaughtPanic::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caught_panic_has_message_and_location() {
        note_locations();
        let line = line!() + 1;
        let caught = catch(|| panic!("seven is {}", "odd")).unwrap_err();
        assert_eq!(caught.message(), "seven is odd");
        let location = caught.location().unwrap();
        assert!(
            location.contains(&format!("panic.rs:{line}:")),
            "{location}"
        );
        assert_eq!(caught.to_string(), format!("{location}: seven is odd"));
    }

    #[test]
    fn panic_payload_that_panics_on_drop_is_caught() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        note_locations();
        let caught = catch(|| std::panic::panic_any(Bomb)).unwrap_err();
        assert_eq!(caught.message(), "");
    }

    #[test]
    fn result_without_panic_is_returned() {
        assert_eq!(catch(|| 7), Ok(7));
    }
}
