//! A peer that violates HTTP/3 over a transport that works: it writes raw bytes on its streams, and
//! the tests check what it receives.

pub(crate) mod hostile_peer;

mod connection_errors;
mod deadlines;
mod floods;
mod late_settings;
mod messages;
mod priorities;
mod resets;
mod sessions;
mod tolerance;
mod unread;
