//! Traces of a command's connections: `--qlog`.

use core::time::Duration;
use std::path::PathBuf;

use clearway::{EndpointBuilder, QlogDir};
use clearway_trace::qlog::Dialect;

use crate::failure::{Failure, Kind};

/// How long to wait for connections to end, and for their last events to be written.
const PATIENCE: Duration = Duration::from_secs(2);

/// Options of every command that has a connection.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct QlogOptions {
    /// Write a qlog file of each connection to this directory, which is created if it does not
    /// exist. The default is the directory named by the environment variable QLOGDIR; without
    /// either, nothing is written.
    #[arg(long, value_name = "DIR")]
    qlog: Option<PathBuf>,
    /// Event names in qlog files: those of the newest drafts (draft), or those of qlog 0.3 that
    /// qvis and older tools read (qvis).
    #[arg(long, value_name = "draft|qvis", default_value = "draft")]
    dialect: Dialect,
}

impl QlogOptions {
    /// The directory for the traces of `command`, if there is to be one.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn open(&self, command: &'static str) -> Result<Option<QlogDir>, Failure> {
        let from_env = || std::env::var_os("QLOGDIR").filter(|dir| !dir.is_empty());
        let Some(path) = self.qlog.clone().or_else(|| from_env().map(PathBuf::from)) else {
            return Ok(None);
        };
        let dir = QlogDir::new(&path).map_err(|error| {
            let what = format!("cannot write qlog files to {}", path.display());
            Failure::caused(Kind::Output, what, &error)
        })?;
        let dir = dir.dialect(self.dialect);
        Ok(Some(dir.on_failure(move |failure| {
            say!("{command}: warning: {failure}");
        })))
    }
}

/// The endpoint with traces, if there are to be any.
pub(crate) fn with_traces(endpoint: EndpointBuilder, dir: Option<&QlogDir>) -> EndpointBuilder {
    match dir {
        Some(dir) => endpoint.qlog(dir.clone()),
        None => endpoint,
    }
}

/// Waits until the traces are complete, before the process ends.
pub(crate) fn finish(dir: Option<QlogDir>) {
    // A disk that hangs is not waited for.
    let _ = dir.map(|dir| dir.finish(PATIENCE));
}
