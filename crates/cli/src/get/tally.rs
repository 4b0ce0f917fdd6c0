//! Totals of the transfers.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use clearway::Connection;

use crate::failure::Failure;
use crate::serve::SenderReport;

/// The totals of all transfers.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Transfers that succeeded.
    pub(super) done: u64,
    /// Transfers that failed.
    pub(super) failed: u64,
    /// Transfers not tried because of other failures or an early end.
    pub(super) not_tried: u64,
    /// Content received, in bytes.
    pub(super) received: u64,
    /// Content read to be sent.
    pub(super) uploaded: Arc<AtomicU64>,
    /// Content that existed before and was not sent again.
    pub(super) kept: u64,
    /// Times measured here.
    pub(super) waits: WaitTimes,
    /// The latest report of a sender.
    pub(super) sender: Option<SenderReport>,
    /// The connection last used.
    pub(super) connection: Option<Connection>,
    /// The first failure.
    pub(super) failure: Option<Failure>,
}

/// Where a receiver's time goes, as far as it can measure.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WaitTimes {
    /// For a connection.
    pub(super) connecting: Duration,
    /// From the request to the response's header section.
    pub(super) answer: Duration,
    /// For content.
    pub(super) content: Duration,
    /// For this host to write content.
    pub(super) output: Duration,
}

impl Tally {
    /// A summary of several transfers of which some failed.
    pub(super) fn text(&self) -> String {
        let all = self.done + self.failed + self.not_tried;
        let mut text = format!("{} of {all} failed", self.failed);
        if self.not_tried > 0 {
            text.push_str(&format!(", {} not tried", self.not_tried));
        }
        text
    }
}

impl WaitTimes {
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
            ("answer", "the server's response", self.answer),
            ("content", "network or server", self.content),
            ("output", "writing here", self.output),
        ]
    }
}
