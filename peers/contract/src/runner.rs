//! The contract of the public QUIC interop runner: everything is read from the environment.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `ROLE` | `client` or `server` | |
//! | `TESTCASE` | the name of the test case | |
//! | `REQUESTS` | URLs of a client, separated by spaces | |
//! | `SSLKEYLOGFILE`, `QLOGDIR` | where secrets and traces go | nowhere |
//! | `WWW`, `DOWNLOADS`, `CERTS` | directories | `/www`, `/downloads`, `/certs` |
//! | `PORT` | the server's | 443 |
//! | `PREFERRED` | the preferred address of the server | none |
//! | `PROTOCOL` | `h3` for HTTP/3 in tests that have HTTP/0.9 by the contract | |
//! | `CONGESTION` | the congestion controller | the stack's default |
//!
//! The exit code is 0 if everything was done, 127 if the test case is not supported, 1 otherwise.

use std::{
    env, fs,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Component, Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail, ensure};
use http::Uri;

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Downloads.
    Client,
    /// Serves until killed.
    Server,
}

/// What the runner asks for.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Which end this is.
    pub role: Role,
    /// The name of the test case.
    pub test_case: String,
    /// What a client downloads: URLs.
    pub requests: Vec<String>,
    /// Where a server's files are.
    pub www: PathBuf,
    /// Where a client's downloads go.
    pub downloads: PathBuf,
    /// Where `cert.pem` and `priv.key` are.
    pub certs: PathBuf,
    /// The port that a server listens on.
    pub port: u16,
    /// The address that a server prefers.
    pub preferred: Option<SocketAddr>,
    /// Whether to speak HTTP/3 whatever the test case: there are endpoints without HTTP/0.9.
    pub http3: bool,
    /// The name of the congestion controller.
    pub congestion: Option<String>,
}

impl Environment {
    /// Reads the variables.
    ///
    /// # Errors
    /// If one is missing or invalid.
    pub fn read() -> Result<Self> {
        let text = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let path =
            |name, default: &str| PathBuf::from(text(name).unwrap_or_else(|| default.to_owned()));
        let role = match text("ROLE").as_deref() {
            Some("client") => Role::Client,
            Some("server") => Role::Server,
            other => bail!("ROLE is {other:?}: expected \"client\" or \"server\""),
        };
        let port = text("PORT").map_or(Ok(443), |port| port.parse());
        Ok(Self {
            role,
            test_case: text("TESTCASE").context("TESTCASE is not set")?,
            requests: text("REQUESTS")
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            www: path("WWW", "/www"),
            downloads: path("DOWNLOADS", "/downloads"),
            certs: path("CERTS", "/certs"),
            port: port.context("PORT is not a port number")?,
            preferred: text("PREFERRED")
                .map(|address| address.parse().context("PREFERRED is not an address"))
                .transpose()?,
            http3: match text("PROTOCOL").as_deref() {
                None => false,
                Some("h3") => true,
                Some(other) => bail!("PROTOCOL is {other:?}: expected \"h3\""),
            },
            congestion: text("CONGESTION"),
        })
    }
}

/// The exit code for a test case that is not supported.
const UNSUPPORTED: u8 = 127;

/// Runs an endpoint: `run` returns false if it does not support the test case.
pub async fn main<F: Future<Output = Result<bool>>>(
    name: &str,
    run: impl FnOnce(Environment) -> F,
) -> ExitCode {
    let result = match Environment::read() {
        Ok(environment) => run(environment).await,
        Err(error) => Err(error),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("{name}: this test case is not supported");
            UNSUPPORTED.into()
        }
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A file that a client downloads.
#[derive(Clone, Debug)]
pub struct Target {
    /// The URL.
    pub url: String,
    /// The host, without the brackets of an IPv6 address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path.
    pub path: String,
    /// Where the content goes.
    pub file: PathBuf,
}

impl Environment {
    /// Returns what a client downloads.
    ///
    /// # Errors
    /// If there is nothing, or a URL is invalid.
    pub fn targets(&self) -> Result<Vec<Target>> {
        let targets: Result<Vec<Target>> = self
            .requests
            .iter()
            .map(|url| Target::parse(url, &self.downloads))
            .collect();
        let targets = targets?;
        ensure!(!targets.is_empty(), "REQUESTS is empty");
        Ok(targets)
    }

    /// Reads the file at the path of a request; `None` if there is none, or the path leads out of
    /// the directory.
    #[must_use]
    pub fn page(&self, path: &str) -> Option<Vec<u8>> {
        page(&self.www, path)
    }
}

/// Reads the file at the path of a request in `www`; `None` if there is none, or the path leads out
/// of the directory.
#[must_use]
pub fn page(www: &Path, path: &str) -> Option<Vec<u8>> {
    let path = PathBuf::from(path.trim_start_matches('/'));
    let inside = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    fs::read(inside.then(|| www.join(path))?).ok()
}

impl Target {
    fn parse(url: &str, downloads: &Path) -> Result<Self> {
        let uri: Uri = url
            .parse()
            .with_context(|| format!("invalid URL {url:?}"))?;
        let host = uri.host().with_context(|| format!("no host in {url:?}"))?;
        let name = uri.path().rsplit('/').next().unwrap_or_default();
        ensure!(!name.is_empty(), "no file name in {url:?}");
        Ok(Self {
            url: url.to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(443),
            path: uri.path().to_owned(),
            file: downloads.join(name),
        })
    }

    /// Returns the address of the server.
    ///
    /// # Errors
    /// If its name cannot be resolved.
    pub async fn resolve(&self) -> Result<SocketAddr> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let mut found = found.with_context(|| format!("resolving {}", self.host))?;
        found
            .next()
            .with_context(|| format!("no address for {}", self.host))
    }

    /// Stores the content.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn store(&self, content: &[u8]) -> Result<()> {
        let file = &self.file;
        fs::write(file, content).with_context(|| format!("writing {}", file.display()))
    }
}

/// Returns the path of a request of HTTP/0.9, `GET /path`.
#[must_use]
pub fn requested_path(request: &[u8]) -> Option<&str> {
    let request = std::str::from_utf8(request).ok()?;
    request.trim_end().strip_prefix("GET ")
}

/// Returns the address that a client binds to reach `server`.
#[must_use]
pub fn any_address(server: SocketAddr) -> SocketAddr {
    match server {
        SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        SocketAddr::V6(_) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out_of_the_directory_are_not_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let www = folder.path().join("www");
        fs::create_dir(&www).expect("a folder");
        fs::write(folder.path().join("secret"), "no").expect("a file");
        fs::write(www.join("page"), "yes").expect("a file");
        assert_eq!(page(&www, "/page").as_deref(), Some(&b"yes"[..]));
        for path in [
            "/../secret",
            "/./page",
            "/",
            "",
            "/missing",
            "/page/../../secret",
        ] {
            assert_eq!(page(&www, path), None, "{path}");
        }
    }
}
