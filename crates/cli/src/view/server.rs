//! The server of `clearway view`.

use core::net::{Ipv4Addr, SocketAddr};
use std::io::{BufReader, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

use clearway_trace::capture::KeyLog;
use clearway_trace::report::{MAX_PANELS, Panel, Served, page, panel_json};

use super::Args;
use super::source::Source;
use crate::failure::{Failure, Kind};
use crate::local_http::{Access, Answer, EventStreams, RequestHead, Response, serve};
use crate::output::print;
use crate::report::panels;
use crate::traces::{TraceFile, TraceReader, load_from};

/// Maximum size of a file dropped on the page, in bytes.
const MAX_UPLOAD: u64 = 4 << 30;

/// Serves until the process is ended.
///
/// # Errors
/// If the traces cannot be found, the server does not answer, or no port can be bound.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let source = Source::new(args)?;
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let bound = TcpListener::bind(any).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = bound
        .map_err(|error| Failure::caused(Kind::Address, "cannot listen on 127.0.0.1", &error))?;
    let url = format!("http://{address}/");
    print(|out| writeln!(out, "{url}"))?;
    if !args.no_open {
        open_browser(&url);
    }
    let viewer = Arc::new(Viewer {
        source,
        streams: EventStreams::default(),
    });
    serve(&listener, &Access::new(address), &viewer);
    Ok(())
}

/// Opens a URL in the user's browser, if there is one.
fn open_browser(url: &str) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let opened = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if opened.is_err() {
        say!("view: no browser found: open {url}");
    }
}

struct Viewer {
    source: Source,
    streams: EventStreams,
}

impl Answer for Viewer {
    fn answer(
        &self,
        head: &RequestHead,
        body: BufReader<TcpStream>,
        output: &TcpStream,
    ) -> Option<Response> {
        Some(match (head.method.as_str(), head.path()) {
            ("GET", "/") => self.page(),
            ("GET", "/live") => return self.streams.run(output, || self.source.list()),
            ("POST", "/examine") => examine(head, body, self.source.secrets()),
            (_, "/" | "/examine" | "/live") => {
                Response::text("405 Method Not Allowed", "wrong method\n")
            }
            ("GET", path) => self.panel(path),
            _ => Response::text("404 Not Found", "not found\n"),
        })
    }
}

impl Viewer {
    /// One of the traces listed by `/live`.
    fn panel(&self, path: &str) -> Response {
        let id = path.strip_prefix("/connections/").map(str::parse);
        match id {
            Some(Ok(id)) => match self.source.panel(id) {
                Ok(Some(json)) => Response::json(json),
                Ok(None) => Response::text("404 Not Found", "no such trace\n"),
                Err(message) => Response::text("422 Unprocessable Content", message),
            },
            Some(Err(_)) | None => Response::text("404 Not Found", "not found\n"),
        }
    }

    /// The page with the traces as they are now; the connections of a server are fetched by it.
    fn page(&self) -> Response {
        if let Some((served, drawn)) = self.source.drawn() {
            let served = vec![served; drawn.panels.len()];
            return html(page(&drawn.title, &drawn.panels, Some(&served)));
        }
        let loaded = self.source.load();
        let mut all: Vec<(Served, Panel<'_>)> = Vec::new();
        for (served, file) in &loaded {
            all.extend(panels(file).map(|panel| (*served, panel)));
        }
        let shown = all.get(..MAX_PANELS).unwrap_or(&all);
        if shown.len() < all.len() {
            let count = all.len();
            say!("view: warning: the page shows the first {MAX_PANELS} of {count} traces");
        }
        let json: Vec<String> = shown
            .iter()
            .map(|(_, panel)| panel_json(panel, shown.len()))
            .collect();
        let served: Vec<Served> = shown.iter().map(|(served, _)| *served).collect();
        let title = loaded
            .first()
            .map_or("clearway view", |(_, file)| &file.title);
        html(page(title, &json, Some(&served)))
    }
}

fn html(page: String) -> Response {
    Response {
        status: "200 OK",
        content_type: "text/html; charset=utf-8",
        body: page.into_bytes(),
    }
}

/// Diagnoses a file that was dropped on the page.
fn examine(head: &RequestHead, body: impl Read + 'static, secrets: &KeyLog) -> Response {
    let Some(length) = head.content_length else {
        return Response::text("411 Length Required", "missing Content-Length\n");
    };
    if length > MAX_UPLOAD {
        return Response::text("413 Content Too Large", "the file is larger than 4 GiB\n");
    }
    let name = head
        .target
        .split_once("name=")
        .map_or("trace", |(_, name)| name);
    let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
    match examined(body.take(length), name.into_owned(), secrets) {
        Ok(file) => match panels(&file).next() {
            Some(panel) => Response {
                status: "200 OK",
                content_type: "application/json",
                body: panel_json(&panel, 1).into_bytes(),
            },
            None => Response::text("422 Unprocessable Content", "no trace in this file\n"),
        },
        Err(failure) => Response::text("422 Unprocessable Content", failure.message),
    }
}

fn examined(
    body: impl Read + 'static,
    name: String,
    secrets: &KeyLog,
) -> Result<TraceFile, Failure> {
    let reader = TraceReader::decode(body, secrets).map_err(|error| {
        Failure::caused(Kind::Arguments, format!("cannot read {name}"), &*error)
    })?;
    load_from(reader, name)
}
