//! Connection IDs that a load balancer routes to this server.

use std::path::PathBuf;
use std::sync::Arc;

use clearway::connection_id::quic_lb::{Config, Generator, Server, ServerId};
use clearway::connection_id::{CidGenerator, Rng};
use clearway_balancer::config::ServerEncoding;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::signal::unix::{SignalKind, signal};

use super::Args;
use crate::balance::{Watched, invalid_file, read_file};
use crate::failure::{Failure, Kind};

/// How often the file is looked at.
const GLANCE: core::time::Duration = core::time::Duration::from_secs(1);

/// Shortest connection ID that steers to a shard, in bytes.
const STEERED: usize = 8;

/// Longest server ID without a key with which connection IDs steer to shards, in bytes: enough of
/// the nonce must be among the first eight bytes.
const STEERED_PLAIN: usize = 4;

/// How the server makes its connection IDs, and the file that says so.
#[derive(Debug)]
pub(super) struct LoadBalancer {
    file: PathBuf,
    server_id: ServerId,
    shards: u16,
    server: Arc<Server>,
}

impl LoadBalancer {
    /// Reads the file of the command line, if there is one.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid, or the server ID does not fit it.
    pub(super) fn load(args: &Args) -> Result<Option<Self>, Failure> {
        let (Some(file), Some(server_id)) = (&args.lb, args.server_id) else {
            return Ok(None);
        };
        let encoding = encoding(file)?;
        let this = Self {
            file: file.clone(),
            server_id,
            shards: args.shards,
            server: Arc::new(Server::unconfigured(encoding.lifetime)),
        };
        this.configure(&encoding)?;
        Ok(Some(this))
    }

    fn configure(&self, encoding: &ServerEncoding) -> Result<(), Failure> {
        let failure = |message: String| {
            let message = format!("--lb: {}: {message}", self.file.display());
            Failure::new(Kind::Arguments, message)
        };
        let ServerEncoding { active, others, .. } = encoding;
        for config in core::iter::once(active).chain(others) {
            self.check_steering(config).map_err(failure)?;
        }
        let mut seed = [0; 32];
        // So few bytes are returned at once or not at all (getrandom(2)).
        getrandom(&mut seed, GetRandomFlags::empty()).map_err(std::io::Error::from)?;
        let mut rng = Rng::from_seed(seed);
        self.server
            .configure(active, self.server_id, others, &mut rng)
            .map_err(|error| failure(error.to_string()))
    }

    fn check_steering(&self, config: &Config) -> Result<(), String> {
        let (id, len) = (config.id(), config.cid_len());
        if self.shards > 1 && len < STEERED {
            return Err(format!(
                "config {id} has connection IDs of {len} bytes: several --shards need at least \
                 {STEERED}"
            ));
        }
        let plain = !config.is_encrypted() && config.server_id_len() > STEERED_PLAIN;
        if self.shards > 1 && plain {
            return Err(format!(
                "config {id} has server IDs of {} bytes and no key: with several --shards, add a \
                 key, or use server IDs of at most {STEERED_PLAIN} bytes",
                config.server_id_len()
            ));
        }
        Ok(())
    }

    /// Returns what makes the generator of each connection.
    pub(super) fn generators(
        &self,
    ) -> impl Fn() -> Box<dyn CidGenerator> + Send + Sync + use<> + 'static {
        let server = self.server.clone();
        move || Box::new(Generator::new(server.clone()))
    }

    /// Reads the file again whenever it changes or SIGHUP arrives, forever. If it is invalid, the
    /// old configuration stays in use.
    ///
    /// # Errors
    /// If signals cannot be received.
    pub(super) async fn keep_fresh(this: Option<Self>) -> Result<(), Failure> {
        let Some(this) = this else {
            return core::future::pending().await;
        };
        let mut hangup = signal(SignalKind::hangup())?;
        let mut watched = Watched::new(&this.file);
        loop {
            let asked = tokio::select! {
                _ = hangup.recv() => true,
                () = tokio::time::sleep(GLANCE) => false,
            };
            if !(watched.changed() | asked) {
                continue;
            }
            match encoding(&this.file).and_then(|encoding| this.configure(&encoding)) {
                Ok(()) => say!("serve: connection IDs follow {} anew", this.file.display()),
                Err(failure) => {
                    say!("serve: cannot reload, keeping the old connection IDs: {failure}");
                }
            }
        }
    }
}

fn encoding(file: &std::path::Path) -> Result<ServerEncoding, Failure> {
    let read = read_file(file)?;
    read.server().map_err(|error| invalid_file(file, &error))
}
