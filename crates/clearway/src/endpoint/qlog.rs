//! qlog files of an endpoint.

use std::path::PathBuf;

use clearway_quic::Instant;
use clearway_quic::event::{Observer, TraceEvent};
use clearway_trace::Recorder;
use clearway_trace::qlog::QlogDir;

use super::EndpointBuilder;
use crate::connection::Connection;

/// An application's observer, and the qlog file's.
#[derive(Debug)]
struct ObserverPair(Box<dyn Observer>, Box<dyn Observer>);

impl Observer for ObserverPair {
    fn on_event(&mut self, now: Instant, event: &TraceEvent<'_>) {
        self.0.on_event(now, event);
        self.1.on_event(now, event);
    }
}

impl EndpointBuilder {
    /// Writes a qlog file for each connection into a directory, which is created if it does
    /// not exist. A file that cannot be written does not affect its connection; the first is
    /// logged.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn qlog_dir(self, path: impl Into<PathBuf>) -> std::io::Result<Self> {
        Ok(self.qlog(QlogDir::new(path)?))
    }

    /// Writes qlog files into the directory in the environment variable `QLOGDIR`, if that is
    /// set.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn qlog_from_env(self) -> std::io::Result<Self> {
        Ok(match QlogDir::from_env()? {
            Some(dir) => self.qlog(dir),
            None => self,
        })
    }

    /// Writes qlog files as configured in `dir`: its dialect, and which connections. An observer
    /// set before with [`observe`](Self::observe) is called too.
    pub fn qlog(self, dir: QlogDir) -> Self {
        let dir = log_failure(dir);
        let before = self.observers.clone();
        self.observe(move |role, remote| {
            let own = before.as_ref().and_then(|before| before(role, remote));
            let Some(sink) = dir.sink() else { return own };
            let qlog = Box::new(Recorder::new(sink));
            Some(match own {
                Some(own) => Box::new(ObserverPair(own, qlog)),
                None => qlog,
            })
        })
    }
}

impl Connection {
    /// Begins to write a qlog file of this connection, if it is among those that `dir` samples;
    /// returns whether it is. The file begins now: [`EndpointBuilder::qlog`] writes files from the
    /// beginning. Replaces an observer that was set before.
    pub fn start_qlog(&self, dir: QlogDir) -> bool {
        let sink = log_failure(dir).sink();
        let chosen = sink.is_some();
        if let Some(sink) = sink {
            self.set_observer(Box::new(Recorder::new(sink)));
        }
        chosen
    }
}

/// Logs the first failure, unless the application does something else about it.
fn log_failure(dir: QlogDir) -> QlogDir {
    dir.on_failure(|failure| tracing::warn!("{failure}"))
}
