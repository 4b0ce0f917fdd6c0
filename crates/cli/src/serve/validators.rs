//! Validators: the entity tag and modification date of content (RFC 9110 §8.8).

use std::time::{Duration, SystemTime};

use rustix::fs::Stat;

/// The coarsest clock with which file systems record changes: another change within this time might
/// not be visible.
const TICK: Duration = Duration::from_secs(1);

/// The entity tag and the date of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Validators {
    /// With its quotes, and `W/` if weak.
    pub(super) etag: String,
    /// `None` before 1970.
    pub(super) modified: Option<SystemTime>,
}

impl Validators {
    /// The validators of a file at `now`. The tag changes with the inode, its size and either of
    /// its times; it is weak while the file is so new that it might change again without a visible
    /// change (RFC 9110 §8.8.1).
    pub(super) fn of(stat: &Stat, now: SystemTime) -> Self {
        let modified = u64::try_from(stat.st_mtime).ok().map(|seconds| {
            SystemTime::UNIX_EPOCH + Duration::new(seconds, stat.st_mtime_nsec as u32)
        });
        let settled = modified
            .and_then(|modified| now.duration_since(modified).ok())
            .is_some_and(|age| age > TICK);
        let etag = format!(
            "{}\"{:x}-{:x}-{:x}.{:x}-{:x}.{:x}\"",
            if settled { "" } else { "W/" },
            stat.st_ino,
            stat.st_size,
            stat.st_mtime,
            stat.st_mtime_nsec,
            stat.st_ctime,
            stat.st_ctime_nsec
        );
        Self { etag, modified }
    }

    /// Strong comparison with a client's tag (§8.8.3.2).
    pub(super) fn is_strongly(&self, etag: &str) -> bool {
        self.etag == etag && !etag.starts_with("W/")
    }

    /// Weak comparison.
    pub(super) fn is_weakly(&self, etag: &str) -> bool {
        opaque(&self.etag) == opaque(etag)
    }

    /// Whether it was changed after that date, which has whole seconds only.
    pub(super) fn changed_since(&self, date: SystemTime) -> bool {
        self.modified
            .is_none_or(|modified| whole_seconds(modified) > whole_seconds(date))
    }
}

fn opaque(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag)
}

fn whole_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
