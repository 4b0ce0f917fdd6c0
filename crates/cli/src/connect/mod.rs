//! How the commands that are clients reach a server, and which certificates they accept.

mod key_log;
mod route;
mod trust;

pub(crate) use route::{ConnectTo, Resolve, direct, resolved};
pub(crate) use trust::TrustOptions;

use clearway_links::Span;

use crate::failure::Failure;
use crate::seconds;

/// Options of every command that connects to the server of a URL.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectOptions {
    /// Use these addresses for a host and port instead of resolving the name; the
    /// certificate is still checked against HOST.
    #[arg(long, value_name = "HOST:PORT:ADDR[,ADDR]…")]
    pub(crate) resolve: Vec<Resolve>,
    /// Append TLS secrets to the file named by the environment variable SSLKEYLOGFILE.
    #[arg(long)]
    keylog: bool,
    /// Maximum time to wait for a connection to be established: seconds, or a time with its unit
    /// such as 500ms.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = seconds::limit)]
    pub(crate) connect_timeout: Span,
}

impl ConnectOptions {
    /// Returns whether TLS secrets are to be written, after a check that they can be.
    ///
    /// # Errors
    /// If they cannot.
    pub(crate) fn writes_key_log(&self) -> Result<bool, Failure> {
        if self.keylog {
            key_log::key_log_is_writable()?;
        }
        Ok(self.keylog)
    }
}
