//! qlog files of an endpoint.

use std::path::PathBuf;

use clearway_quic::event::Observer;
use clearway_trace::Recorder;
use clearway_trace::qlog::QlogDir;

use super::EndpointBuilder;

impl EndpointBuilder {
    /// Writes a qlog file for each connection into a directory, which is created if it does
    /// not exist. Replaces an observer set with [`observe`](Self::observe).
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

    /// Writes qlog files as configured in `dir`: its dialect, and which connections.
    pub fn qlog(self, dir: QlogDir) -> Self {
        self.observe(move |_, _| {
            let sink = dir.sink()?;
            Some(Box::new(Recorder::new(sink)) as Box<dyn Observer>)
        })
    }
}
