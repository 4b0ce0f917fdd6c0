//! Logging: the `tracing` subscriber of all commands.
//!
//! Warnings by default; `-v` and `-vv`, or the variables `CLEARWAY_LOG` and `RUST_LOG` in the
//! syntax of `tracing-subscriber`'s `EnvFilter`, enable more. Each line is escaped, at most
//! [`LONGEST`] characters long, and goes to standard error.
//!
//! Peers can make a server log warnings, and must not fill its disk: each call site may log
//! [`BURST`] messages at once and then one a second (with `-v`, 1,000 and then a hundred), and
//! reports how many were suppressed. That is at most some 90 MB a day per call site.

use std::collections::HashMap;
use std::env;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Filter, Layer as _, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::failure::{Failure, Kind};
use crate::printable;
use crate::terminal;

/// Maximum length of a line, in characters.
const LONGEST: usize = 1_000;

/// Warnings that one call site may log at once.
const BURST: u32 = 20;

/// Other messages that one call site may log at once.
const VERBOSE_BURST: u32 = 1_000;

/// How long it takes until one more message is allowed, for each of both.
const EVERY: Duration = Duration::from_secs(1);
const VERBOSE_EVERY: Duration = Duration::from_millis(10);

/// The variables that set the filter; the first that is set counts.
const VARIABLES: [&str; 2] = ["CLEARWAY_LOG", "RUST_LOG"];

/// Whether the command is over, so that nothing more is logged.
static OVER: AtomicBool = AtomicBool::new(false);

/// Ends the log: what is shut down after a command is not an error.
pub(crate) fn end() {
    OVER.store(true, Relaxed);
}

/// Starts logging.
///
/// # Errors
/// If a variable has an invalid filter.
pub(crate) fn init(verbose: u8) -> Result<(), Failure> {
    let filter = filter(verbose)?;
    let layer = tracing_subscriber::fmt::layer()
        .event_format(LineFormat { verbose })
        .with_ansi(false)
        .with_writer(|| Stderr)
        .with_filter(RateLimit::default());
    // No other subscriber is installed.
    let _ = tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init();
    Ok(())
}

fn filter(verbose: u8) -> Result<EnvFilter, Failure> {
    for name in VARIABLES {
        let Some(value) = env::var_os(name).filter(|value| !value.is_empty()) else {
            continue;
        };
        let value = value.to_string_lossy();
        return EnvFilter::try_new(&*value).map_err(|error| {
            let message =
                format!("invalid {name} {value:?}: {error}; expected a filter such as debug or clearway=trace");
            Failure::new(Kind::Arguments, message)
        });
    }
    Ok(EnvFilter::new(match verbose {
        0 => "warn",
        1 => "info,clearway=debug",
        _ => "debug,clearway=trace",
    }))
}

/// Formats one event as one line.
struct LineFormat {
    verbose: u8,
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        write!(writer, "{level}: ")?;
        if self.verbose > 0 {
            write!(writer, "{}: ", event.metadata().target())?;
        }
        context.format_fields(writer, event)
    }
}

/// Standard error, a line at a time.
struct Stderr;

impl io::Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if OVER.load(Relaxed) {
            return Ok(line.len());
        }
        let shown = printable::short_bytes(line.trim_ascii_end(), LONGEST);
        terminal::say(format_args!("{shown}"));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Limits the rate of each call site.
#[derive(Default)]
struct RateLimit(Mutex<HashMap<Identifier, MessageBudget>>);

/// The budget of one call site.
struct MessageBudget {
    left: u32,
    /// When the next one was earned.
    since: Instant,
    left_out: u64,
}

impl MessageBudget {
    fn new(burst: u32, now: Instant) -> Self {
        Self {
            left: burst,
            since: now,
            left_out: 0,
        }
    }

    /// Takes one message from the budget; returns how many were suppressed before it, or `None` if
    /// this one is suppressed too.
    fn take(&mut self, now: Instant, burst: u32, every: Duration) -> Option<u64> {
        let earned = now.saturating_duration_since(self.since).as_nanos() / every.as_nanos();
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(earned).min(burst);
            self.since = now;
        }
        if self.left == 0 {
            self.left_out += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl<S> Filter<S> for RateLimit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let (burst, every) = match *metadata.level() {
            Level::ERROR | Level::WARN => (BURST, EVERY),
            Level::INFO | Level::DEBUG | Level::TRACE => (VERBOSE_BURST, VERBOSE_EVERY),
        };
        let now = Instant::now();
        let left_out = {
            let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let place = places.entry(metadata.callsite());
            let allowance = place.or_insert_with(|| MessageBudget::new(burst, now));
            allowance.take(now, burst, every)
        };
        if let Some(count @ 1..) = left_out {
            terminal::say(format_args!("log: {count} similar lines were suppressed"));
        }
        left_out.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_messages_are_rate_limited_and_counted() {
        let begin = Instant::now();
        let mut allowance = MessageBudget::new(BURST, begin);
        let mut said = 0;
        let mut left_out = 0;
        // A hundred thousand within ten seconds.
        for n in 0..100_000 {
            let now = begin + Duration::from_micros(100) * n;
            if let Some(count) = allowance.take(now, BURST, EVERY) {
                said += 1;
                left_out += count;
            }
        }
        assert_eq!(said, u64::from(BURST) + 9);
        assert_eq!(said + left_out + allowance.left_out, 100_000);
        // After a pause the full burst is available again, and no more.
        let later = begin + Duration::from_secs(3_600);
        let again = (0..100).filter_map(|_| allowance.take(later, BURST, EVERY));
        assert_eq!(again.count(), 20);
    }
}
