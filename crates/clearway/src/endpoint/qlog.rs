//! A qlog file for each connection of an endpoint.

use std::path::PathBuf;

use clearway_quic::event::Observer;
use clearway_trace::Recorder;
use clearway_trace::qlog::QlogDir;

use super::EndpointBuilder;

impl EndpointBuilder {
    /// Writes a qlog file for each connection into a directory, which is made if
    /// it is not there. Takes the place of [`observe`](Self::observe).
    ///
    /// # Errors
    /// If the directory can't be made.
    pub fn qlog_dir(self, path: impl Into<PathBuf>) -> std::io::Result<Self> {
        Ok(self.qlog(QlogDir::new(path)?))
    }

    /// Writes qlog files where the environment variable QLOGDIR points, if it is
    /// set.
    ///
    /// # Errors
    /// If the directory can't be made.
    pub fn qlog_from_env(self) -> std::io::Result<Self> {
        Ok(match QlogDir::from_env()? {
            Some(dir) => self.qlog(dir),
            None => self,
        })
    }

    /// Writes qlog files as `dir` says: its dialect, one connection in so many.
    pub fn qlog(self, dir: QlogDir) -> Self {
        self.observe(move |_, _| {
            let sink = dir.sink()?;
            Some(Box::new(Recorder::new(sink)) as Box<dyn Observer>)
        })
    }
}
