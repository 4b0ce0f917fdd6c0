//! What has been transferred, and what it waited for.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use clearway::Connection;

use crate::failure::Failure;
use crate::serve::SenderReport;

/// The sum over transfers.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Transfers that succeeded.
    pub(super) done: u64,
    /// Transfers that failed.
    pub(super) failed: u64,
    /// Transfers that others' failures or an early end left no chance.
    pub(super) not_tried: u64,
    /// Content received, in bytes.
    pub(super) received: u64,
    /// Content read to be sent.
    pub(super) uploaded: Arc<AtomicU64>,
    /// Content that was there before and did not have to be sent again.
    pub(super) kept: u64,
    /// As seen from here.
    pub(super) waits: Waits,
    /// The newest word of a sender.
    pub(super) sender: Option<SenderReport>,
    /// The connection last used.
    pub(super) connection: Option<Connection>,
    /// The first failure.
    pub(super) failure: Option<Failure>,
}

/// Where a receiver's time goes, as far as it can tell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// For a connection.
    pub(super) connecting: Duration,
    /// From the request to the response's header section.
    pub(super) answer: Duration,
    /// For content.
    pub(super) content: Duration,
    /// For this host to take content.
    pub(super) output: Duration,
}

impl Tally {
    /// What became of several, where not all succeeded.
    pub(super) fn text(&self) -> String {
        let all = self.done + self.failed + self.not_tried;
        let mut text = format!("{} of {all} failed", self.failed);
        if self.not_tried > 0 {
            text.push_str(&format!(", {} not tried", self.not_tried));
        }
        text
    }
}

impl Waits {
    pub(super) fn add(&mut self, other: &Self) {
        self.connecting += other.connecting;
        self.answer += other.answer;
        self.content += other.content;
        self.output += other.output;
    }

    /// Each with its name for scripts and for people.
    pub(super) fn each(&self) -> [(&'static str, &'static str, Duration); 4] {
        [
            ("connecting", "connecting", self.connecting),
            ("answer", "the server's answer", self.answer),
            ("content", "network or server", self.content),
            ("output", "writing here", self.output),
        ]
    }
}
