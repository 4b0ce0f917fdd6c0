//! Caught panics: their message and location.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use clearway_quic::connection::ConnectionError;
use clearway_quic::error::{Code, TransportError};

/// A caught panic: its message and its location in the source.
#[derive(Clone, PartialEq, Eq)]
pub struct CaughtPanic(Arc<Details>);

#[derive(PartialEq, Eq)]
struct Details {
    message: String,
    location: Option<String>,
}

impl CaughtPanic {
    /// Returns the panic's message, which is empty if the payload was not a string.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns `file:line:column` of the panic, or `None` if the process replaced its panic
    /// hook after the endpoint was created: only a hook learns the location.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        self.0.location.as_deref()
    }

    /// Converts it to the error of the connection that it ends; `when` says during what.
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
        // The payload may be of any type, so dropping it may panic too.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
        Self::with(message)
    }

    /// Describes the panic that unwinds this thread now. Its message is not known before
    /// it is caught.
    pub(crate) fn unwinding() -> Self {
        Self::with(String::new())
    }

    fn with(message: String) -> Self {
        let location = LOCATION.try_with(RefCell::take).unwrap_or_default();
        Self(Arc::new(Details { message, location }))
    }
}

impl fmt::Display for CaughtPanic {
    /// Formats it as the standard library's hook does: `src/file.rs:1:2: message`.
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
    /// The location of the last panic of this thread.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs a panic hook that stores the location of each panic, because a caught panic does
/// not contain it. The previous hook is called as before.
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
            // The thread-local is gone in a thread that is ending.
            let _ = LOCATION.try_with(|last| last.replace(location));
            before(info);
        }));
    });
}

/// Runs `act` and catches a panic in it. The state that it worked on must not be relied on
/// after a panic.
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
