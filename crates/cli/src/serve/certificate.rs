//! The server's certificate, from files that may change.

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clearway::{Certificates, Fingerprint};
use tokio::signal::unix::{SignalKind, signal};

use super::Args;
use crate::failure::{Failure, Kind};
use crate::identity;

/// How often the files are checked. Polling notices every way of replacing them: renamed files,
/// switched symbolic links, network file systems.
const GLANCE: Duration = Duration::from_secs(2);

/// A certificate and where it comes from.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) certificates: Certificates,
    /// That of a generated certificate.
    pub(super) fingerprint: Option<Fingerprint>,
    files: Option<Files>,
}

/// The chain and its key.
#[derive(Clone, Debug)]
struct Files {
    chain: PathBuf,
    key: PathBuf,
}

impl Certificate {
    /// The certificate of the command line, or a generated one.
    ///
    /// # Errors
    /// If the files cannot be read or do not match.
    pub(super) fn load(args: &Args) -> Result<Self, Failure> {
        if let (Some(chain), Some(key)) = (&args.cert, &args.key) {
            let files = Files {
                chain: chain.clone(),
                key: key.clone(),
            };
            let certificates = Certificates::new(identity::read(chain)?, identity::read(key)?)
                .map_err(|error| files.failure(&error))?;
            return Ok(Self {
                certificates,
                fingerprint: None,
                files: Some(files),
            });
        }
        let made = if args.webtransport {
            identity::for_browsers()?
        } else {
            identity::development()?
        };
        let certificates = Certificates::new(made.certificate_pem(), made.key_pem())
            .map_err(|error| Failure::caused(Kind::Other, "development certificate", &error))?;
        say!(
            "serve: development certificate, SHA-256 {}",
            made.fingerprint()
        );
        Ok(Self {
            certificates,
            fingerprint: Some(made.fingerprint()),
            files: None,
        })
    }

    /// Reloads the files whenever they change or SIGHUP arrives, forever. If they are invalid, the
    /// old certificate stays in use.
    ///
    /// # Errors
    /// If signals cannot be received.
    pub(super) async fn keep_fresh(&self) -> Result<(), Failure> {
        let mut hangup = signal(SignalKind::hangup())?;
        let mut seen = self.files.as_ref().map(Files::stamps);
        loop {
            let asked = tokio::select! {
                _ = hangup.recv() => true,
                () = tokio::time::sleep(GLANCE), if self.files.is_some() => false,
            };
            let Some(files) = &self.files else { continue };
            let now = Some(files.stamps());
            if !asked && now == seen {
                continue;
            }
            seen = now;
            match files.reload(&self.certificates) {
                Ok(()) => say!("serve: certificate reloaded"),
                Err(failure) => {
                    say!("serve: cannot reload the certificate, keeping the old one: {failure}");
                }
            }
        }
    }
}

impl Files {
    fn reload(&self, certificates: &Certificates) -> Result<(), Failure> {
        certificates
            .replace(identity::read(&self.chain)?, identity::read(&self.key)?)
            .map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &dyn std::error::Error) -> Failure {
        identity::unusable(&self.chain, &self.key, error)
    }

    /// A value that changes when either file changes.
    fn stamps(&self) -> [Option<(SystemTime, u64)>; 2] {
        let stamp = |file: &Path| {
            let metadata = std::fs::metadata(file).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        [stamp(&self.chain), stamp(&self.key)]
    }
}
