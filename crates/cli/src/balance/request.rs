//! What a running balancer is asked over its control socket, and what it answers: a line of JSON each.
//!
//! This file uses nothing else of the command than `report`, so that the fuzz target `balancer_inputs`
//! contains both.

use std::io;

use serde::{Deserialize, Serialize};

use super::report::Report;

/// What a balancer is asked.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Request {
    Status,
    Drain {
        backend: String,
    },
    Activate {
        backend: String,
    },
    /// Pass the service sockets on.
    TakeOver,
    /// They are read; stop reading them.
    Ready,
}

/// What it answers.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    Status(Report),
    Done,
    /// So many sockets follow, each with a byte of its own.
    Sockets {
        count: usize,
    },
    Error(String),
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, for the one who has sent it.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| format!("invalid request: {error}"))
    }
}

impl Reply {
    /// Reads a line.
    ///
    /// # Errors
    /// If it is not a reply.
    pub(super) fn parse(line: &[u8]) -> io::Result<Self> {
        Ok(serde_json::from_slice(line)?)
    }
}

/// Returns a request or a reply as a line.
///
/// # Errors
/// None in practice: everything in them can be written.
pub(super) fn line(message: &impl Serialize) -> io::Result<String> {
    let mut text = serde_json::to_string(message)?;
    text.push('\n');
    Ok(text)
}
