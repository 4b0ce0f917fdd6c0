//! A peer that breaks HTTP/3 on purpose, over a transport that keeps its rules:
//! it writes what it likes on its streams, and we look at what it hears.

pub(crate) mod forger;

mod connection_errors;
mod deadlines;
mod floods;
mod messages;
mod priorities;
mod resets;
mod tolerance;
mod unread;
