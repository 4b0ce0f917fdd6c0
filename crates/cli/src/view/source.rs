//! What the viewer shows: files, or the connections of a running server.

use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use clearway_trace::capture::KeyLog;
use clearway_trace::report::{MAX_PANELS, Served, panel_json};
use serde::Serialize;

use super::Args;
use crate::failure::{Failure, Kind};
use crate::local_http::RemoteEndpoint;
use crate::report::{draw, panels};
use crate::tokens;
use crate::traces::{Drawn, Index, TraceFile, files, load};

/// What the viewer shows.
#[derive(Debug)]
pub(super) struct Source {
    origin: Origin,
    secrets: KeyLog,
}

/// Where traces come from.
#[derive(Debug)]
enum Origin {
    /// Files and directories.
    Files(Vec<PathBuf>),
    /// A running server.
    Endpoint(RemoteEndpoint),
}

/// A line about a trace, as the page lists it.
#[derive(Serialize)]
struct TraceSummary {
    id: usize,
    title: String,
    /// Changes with the file.
    revision: u64,
}

impl Source {
    /// What the arguments name.
    ///
    /// # Errors
    /// If a URL or a token cannot be used, or there are no such files.
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
        let invalid = |message| Failure::new(Kind::Arguments, message);
        let url = args.traces.first().and_then(|first| first.to_str());
        let Some(endpoint) = url.and_then(RemoteEndpoint::parse) else {
            if args.token.is_some() {
                let message = "--token: expected the URL of a running server, found files";
                return Err(invalid(message.into()));
            }
            // What is wrong with an argument is said at once.
            if !args.traces.is_empty() {
                files(&args.traces)?;
            }
            return Ok(Self {
                origin: Origin::Files(args.traces.clone()),
                secrets: args.secrets.load()?,
            });
        };
        let mut endpoint = endpoint.map_err(invalid)?;
        if args.traces.len() > 1 {
            return Err(invalid("expected one URL, found more arguments".into()));
        }
        if let Some(file) = &args.token {
            let token = tokens::read("--token", file)?.into_iter().next();
            endpoint = endpoint.token(token.unwrap_or_default());
        }
        let source = Self {
            origin: Origin::Endpoint(endpoint),
            secrets: KeyLog::default(),
        };
        source.list().map_err(|error| {
            let what = format!("cannot observe {}", url.unwrap_or_default());
            Failure::caused(Kind::Connection, what, &error)
        })?;
        Ok(source)
    }

    /// The TLS secrets for packet captures.
    pub(super) const fn secrets(&self) -> &KeyLog {
        &self.secrets
    }

    /// The traces that there are now, as a JSON array in one line.
    ///
    /// # Errors
    /// If the server does not answer.
    pub(super) fn list(&self) -> io::Result<String> {
        match &self.origin {
            Origin::Files(arguments) => {
                let paths = files(arguments).unwrap_or_default();
                let list: Vec<TraceSummary> = paths
                    .iter()
                    .take(MAX_PANELS)
                    .enumerate()
                    .map(|(id, path)| TraceSummary {
                        id,
                        title: path.display().to_string(),
                        revision: revision(path),
                    })
                    .collect();
                Ok(serde_json::to_string(&list)?)
            }
            Origin::Endpoint(endpoint) => {
                let json = endpoint.get("/connections")?;
                let list: serde_json::Value = serde_json::from_slice(&json)?;
                Ok(list.to_string())
            }
        }
    }

    /// A single large file, as it is drawn.
    pub(super) fn drawn(&self) -> Option<(Served, Drawn)> {
        let Origin::Files(arguments) = &self.origin else {
            return None;
        };
        let paths = files(arguments).ok()?;
        let [path] = paths.as_slice() else {
            return None;
        };
        let index = Index::of(path)?;
        let served = (0, revision(path));
        match draw(path, &index, &self.secrets) {
            Ok(drawn) => Some((served, drawn)),
            Err(failure) => {
                say!("view: {failure}");
                None
            }
        }
    }

    /// The files with their numbers and revisions, as far as they can be read.
    pub(super) fn load(&self) -> Vec<(Served, TraceFile)> {
        let Origin::Files(arguments) = &self.origin else {
            return Vec::new();
        };
        let mut loaded = Vec::new();
        for (id, path) in (0..).zip(files(arguments).unwrap_or_default()) {
            // Before it is read: what is added meanwhile is another revision.
            let served = (id, revision(&path));
            match load(&path, &self.secrets) {
                Ok(file) => loaded.push((served, file)),
                Err(failure) => say!("view: {failure}"),
            }
        }
        loaded
    }

    /// One of these traces as a panel in JSON; `None` if there is none with this number.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn panel(&self, id: u64) -> Result<Option<Vec<u8>>, String> {
        match &self.origin {
            Origin::Files(arguments) => {
                let paths = files(arguments).unwrap_or_default();
                let at = usize::try_from(id).unwrap_or(usize::MAX);
                let Some(path) = paths.get(at) else {
                    return Ok(None);
                };
                let file = load(path, &self.secrets).map_err(|failure| failure.message)?;
                let panel = panels(&file).next();
                Ok(panel.map(|panel| panel_json(&panel, 1).into_bytes()))
            }
            Origin::Endpoint(endpoint) => endpoint
                .get(&format!("/connections/{id}"))
                .map(Some)
                .map_err(|error| error.to_string()),
        }
    }
}

/// A number that changes when the file does.
fn revision(path: &Path) -> u64 {
    let Ok(metadata) = path.metadata() else {
        return 0;
    };
    let changed = metadata.modified().ok();
    let since = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let millis = since.map_or(0, |since| since.as_millis() as u64);
    // JavaScript's numbers have 53 bits.
    (millis ^ metadata.len().wrapping_mul(0x9e37_79b9)) & ((1 << 53) - 1)
}
