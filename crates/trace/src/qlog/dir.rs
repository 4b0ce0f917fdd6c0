//! One file per connection in a directory, as QLOGDIR asks
//! (draft-ietf-quic-qlog-main-schema-14, "Set file output destination").

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use super::{Description, Dialect, Spool, SpoolOutput, Writer};
use crate::event::{Event, EventData};
use crate::sink::Sink;

/// A directory that gets a qlog file for each connection, or for one in n.
#[derive(Clone, Debug)]
pub struct QlogDir {
    path: Arc<Path>,
    spool: Arc<Spool>,
    dialect: Dialect,
    every: u64,
    seen: Arc<AtomicU64>,
    failures: Arc<Failures>,
}

/// Called with the first failure.
type ReportFailure = Box<dyn Fn(&QlogFailure<'_>) + Send + Sync>;

/// What is done about files that could not be written.
#[derive(Default)]
struct Failures {
    count: AtomicU64,
    report: OnceLock<ReportFailure>,
}

/// A qlog file that could not be created or written. Its connection is not affected.
#[derive(Clone, Copy, Debug)]
pub struct QlogFailure<'a> {
    /// The directory.
    pub dir: &'a Path,
    /// What the system said.
    pub error: &'a io::Error,
}

impl core::fmt::Display for QlogFailure<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "cannot write a qlog file in {}: {}; the connection continues without its trace, and \
             further failures are not reported",
            self.dir.display(),
            self.error
        )
    }
}

impl core::fmt::Debug for Failures {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Failures")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Failures {
    /// Counts a failure, and reports the first.
    fn note(&self, dir: &Path, error: &io::Error) {
        if self.count.fetch_add(1, Ordering::Relaxed) == 0
            && let Some(report) = self.report.get()
        {
            report(&QlogFailure { dir, error });
        }
    }
}

impl QlogDir {
    /// Writes files to `path`, which is created if it does not exist.
    ///
    /// # Errors
    /// If the directory cannot be created, or the writer thread cannot be started.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        std::fs::create_dir_all(&path)?;
        Ok(Self {
            path: path.into(),
            spool: Arc::new(Spool::start()?),
            dialect: Dialect::Newest,
            every: 1,
            seen: Arc::default(),
            failures: Arc::default(),
        })
    }

    /// Uses the directory named by QLOGDIR; `None` if it is not set.
    ///
    /// # Errors
    /// Like [`QlogDir::new`].
    pub fn from_env() -> io::Result<Option<Self>> {
        match std::env::var_os("QLOGDIR") {
            Some(path) if !path.is_empty() => Self::new(PathBuf::from(path)).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    /// Sets the dialect to write.
    #[must_use]
    pub const fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Traces one connection in this many, for a busy server; at least 1.
    #[must_use]
    pub const fn one_in(mut self, connections: u64) -> Self {
        self.every = if connections == 0 { 1 } else { connections };
        self
    }

    /// Calls `report` with the first failure to create or write a file, from another thread.
    /// Connections are never affected. Only the first function set is used.
    #[must_use]
    pub fn on_failure(self, report: impl Fn(&QlogFailure<'_>) + Send + Sync + 'static) -> Self {
        let _ = self.failures.report.set(Box::new(report));
        self
    }

    /// The number of files that could not be created or written to their end.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.count.load(Ordering::Relaxed)
    }

    /// Waits until all connections have ended and their files are complete, for at most
    /// `timeout`; returns whether that is so. To be called before the process ends.
    #[must_use]
    pub fn finish(&self, timeout: Duration) -> bool {
        self.spool.finish(timeout)
    }

    /// A sink for a new connection; `None` if it is not among those sampled.
    #[must_use]
    pub fn sink(&self) -> Option<Qlog> {
        let turn = self.seen.fetch_add(1, Ordering::Relaxed);
        turn.is_multiple_of(self.every).then(|| Qlog {
            dir: self.clone(),
            state: State::Unnamed,
        })
    }
}

/// One connection's file. It is created with its first event, which names it.
#[derive(Debug)]
pub struct Qlog {
    state: State,
    dir: QlogDir,
}

#[derive(Debug)]
enum State {
    Unnamed,
    Writing(Box<Writer<SpoolOutput>>),
    /// There is no file; the reason does not concern the connection.
    Failed,
}

impl Qlog {
    /// Whether events are being written.
    #[must_use]
    pub const fn is_writing(&self) -> bool {
        matches!(self.state, State::Writing(_))
    }

    fn open(&self, event: &Event) -> io::Result<Writer<SpoolOutput>> {
        let started = match &event.data {
            EventData::ConnectionStarted(started) => Some(started),
            _ => None,
        };
        let description = Description {
            role: started.and_then(|started| started.role),
            title: String::new(),
            original_dcid: started.and_then(|started| started.original_dcid.clone()),
            wall_clock: now(),
        };
        let dcid = description.original_dcid.as_deref().unwrap_or("unknown");
        let role = description.role.map_or("unknown", crate::event::Role::name);
        let stem = format!("{dcid}_{role}");
        let (path, dir) = (self.dir.path.clone(), self.dir.path.clone());
        let failures = self.dir.failures.clone();
        let open = move || Ok(Box::new(create(&path, &stem)?) as Box<dyn io::Write + Send>);
        let output = self
            .dir
            .spool
            .open_with(open, move |error| failures.note(&dir, error))
            .ok_or(io::ErrorKind::WouldBlock)?;
        Ok(Writer::with_dialect(output, &description, self.dir.dialect))
    }
}

impl Sink for Qlog {
    fn event(&mut self, event: &Event) {
        if matches!(self.state, State::Unnamed) {
            self.state = match self.open(event) {
                Ok(writer) => State::Writing(Box::new(writer)),
                Err(error) => {
                    self.dir.failures.note(&self.dir.path, &error);
                    State::Failed
                }
            };
        }
        if let State::Writing(writer) = &mut self.state {
            writer.event(event);
        }
    }
}

/// Creates a file; if the name is taken (a second trace of one connection) a number is appended.
fn create(dir: &Path, stem: &str) -> io::Result<File> {
    for number in 0..1000 {
        let name = match number {
            0 => format!("{stem}.sqlog"),
            _ => format!("{stem}-{number}.sqlog"),
        };
        match File::create_new(dir.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other,
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The wall clock in RFC 3339, which is only needed for files.
fn now() -> Option<String> {
    let unix = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?;
    Some(rfc3339(unix.as_millis() as u64))
}

/// Milliseconds since 1970 in RFC 3339 (civil-from-days, proleptic Gregorian).
#[expect(
    clippy::arithmetic_side_effects,
    reason = "parts of 64 bits of milliseconds, and no part is less than what is taken off it"
)]
fn rfc3339(millis: u64) -> String {
    let (days, rest) = (millis / 86_400_000, millis % 86_400_000);
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 {
        (year, month + 3)
    } else {
        (year + 1, month - 9)
    };
    let year = era * 400 + year;
    let (hours, rest) = (rest / 3_600_000, rest % 3_600_000);
    let (minutes, rest) = (rest / 60_000, rest % 60_000);
    let (seconds, millis) = (rest / 1_000, rest % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Role, Started};

    fn started(dcid: &str) -> Event {
        Event {
            time: 0,
            data: EventData::ConnectionStarted(Box::new(Started {
                role: Some(Role::Server),
                original_dcid: Some(dcid.into()),
                ..Started::default()
            })),
        }
    }

    #[test]
    fn rfc3339_formats_dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_735_689_599_999), "2024-12-31T23:59:59.999Z");
    }

    #[test]
    fn sampled_connections_get_files_named_by_odcid() {
        let path = std::env::temp_dir().join(format!("clearway-qlogdir-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let dir = QlogDir::new(&path).expect("a directory").one_in(3);
        let mut traced = 0;
        for at in 0..6 {
            if let Some(mut sink) = dir.sink() {
                sink.event(&started(&format!("{at:02x}")));
                assert!(sink.is_writing());
                traced += 1;
            }
        }
        assert_eq!(traced, 2);
        let mut second = dir.clone().one_in(1).sink().expect("each");
        second.event(&started("00"));
        drop(second);
        assert!(dir.finish(Duration::from_secs(600)));
        let mut names: Vec<_> = std::fs::read_dir(&path)
            .expect("there")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("UTF-8")
            })
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["00_server-1.sqlog", "00_server.sqlog", "03_server.sqlog"]
        );
        let _ = std::fs::remove_dir_all(&path);
    }

    #[test]
    fn directory_that_vanishes_is_reported_once() {
        let name = format!("clearway-qlogdir-gone-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let (tell, told) = std::sync::mpsc::channel();
        let dir = QlogDir::new(&path).expect("a directory");
        let dir = dir.on_failure(move |failure| {
            tell.send(failure.to_string()).expect("the test listens");
        });
        std::fs::remove_dir_all(&path).expect("it was there");
        for at in 0..3 {
            let mut sink = dir.sink().expect("each");
            sink.event(&started(&format!("{at:02x}")));
        }
        assert!(dir.finish(Duration::from_secs(600)));
        assert_eq!(dir.failures(), 3);
        let reports: Vec<String> = told.try_iter().collect();
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert!(
            reports[0].starts_with("cannot write a qlog file in "),
            "{reports:?}"
        );
        assert!(reports[0].contains("No such file"), "{reports:?}");
    }
}
