//! The work of a flow: jobs, one stream each.

use core::time::Duration;

/// A number of bytes that means: send until the run ends.
pub const UNBOUNDED: u64 = u64::MAX;

/// When a job starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// This long after the flow's connection is established.
    At(Duration),
    /// This long after the previous job is done.
    After(Duration),
}

/// How the sending application writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the transport accepts it.
    #[default]
    Greedy,
    /// `chunk` bytes every `interval`.
    Every {
        /// Bytes per write.
        chunk: u32,
        /// Time between writes.
        interval: Duration,
    },
}

/// A stream opened by the client: bytes up, bytes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// When it starts.
    pub start: Start,
    /// Bytes from client to server; [`UNBOUNDED`] has no end.
    pub up: u64,
    /// Bytes from server to client; [`UNBOUNDED`] has no end.
    pub down: u64,
    /// How both ends write.
    pub pace: Pace,
}

impl Job {
    /// Whether it ends by itself.
    #[must_use]
    pub const fn is_bounded(&self) -> bool {
        self.up != UNBOUNDED && self.down != UNBOUNDED
    }
}

/// All jobs of a flow, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The first is also when a flow without others is over.
    pub jobs: Vec<Job>,
}

/// Bytes of an ordinary request.
const REQUEST_BYTES: u64 = 100;

impl Workload {
    /// One job that starts at once.
    #[must_use]
    pub fn single(up: u64, down: u64) -> Self {
        Self {
            jobs: vec![Job {
                start: Start::At(Duration::ZERO),
                up,
                down,
                pace: Pace::Greedy,
            }],
        }
    }

    /// `bytes` from server to client.
    #[must_use]
    pub fn download(bytes: u64) -> Self {
        Self::single(REQUEST_BYTES, bytes)
    }

    /// `bytes` from client to server.
    #[must_use]
    pub fn upload(bytes: u64) -> Self {
        Self::single(bytes, REQUEST_BYTES)
    }

    /// `bytes` in each direction at the same time.
    #[must_use]
    pub fn both(bytes: u64) -> Self {
        Self::single(bytes, bytes)
    }

    /// `count` responses of `bytes`, one every `every`.
    #[must_use]
    pub fn requests(count: u64, bytes: u64, every: Duration) -> Self {
        let job = |n| Job {
            start: Start::At(every.saturating_mul(n)),
            up: REQUEST_BYTES,
            down: bytes,
            pace: Pace::Greedy,
        };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            jobs: (0..count).map(job).collect(),
        }
    }

    /// `count` downloads of `bytes` with a pause of `gap` between them.
    #[must_use]
    pub fn on_off(count: u64, bytes: u64, gap: Duration) -> Self {
        let job = |n| Job {
            start: if n == 0 {
                Start::At(Duration::ZERO)
            } else {
                Start::After(gap)
            },
            up: REQUEST_BYTES,
            down: bytes,
            pace: Pace::Greedy,
        };
        Self {
            jobs: (0..count).map(job).collect(),
        }
    }

    /// Whether it ends by itself.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.jobs.iter().all(Job::is_bounded)
    }
}
