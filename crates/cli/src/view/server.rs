//! The server of `clearway view`.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::io::{BufReader, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clearway_trace::report::{MAX_PANELS, page, panel_json};

use super::Args;
use super::http::{RequestHead, Response, read_head};
use crate::failure::{Failure, Kind};
use crate::output::print;
use crate::report::panels;
use crate::traces::{TraceFile, decode, files, load, load_from};

/// Maximum number of connections at a time: each has a thread.
const MAX_CONNECTIONS: usize = 32;
/// Maximum size of a file dropped on the page, in bytes.
const MAX_UPLOAD: u64 = 4 << 30;
/// How long a browser may let the server wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// Serves until the process is ended.
///
/// # Errors
/// If the traces cannot be found, or no port can be bound.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    // What is wrong with an argument is said at once.
    if !args.traces.is_empty() {
        files(&args.traces)?;
    }
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
        traces: args.traces.clone(),
        port: address.port(),
    });
    let open = Arc::<AtomicUsize>::default();
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors, most likely.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (viewer, counted) = (viewer.clone(), open.clone());
        let serving = std::thread::Builder::new().spawn(move || {
            viewer.serve(&stream);
            counted.fetch_sub(1, Ordering::Relaxed);
        });
        if serving.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
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
    traces: Vec<PathBuf>,
    port: u16,
}

impl Viewer {
    /// Answers one request.
    fn serve(&self, stream: &TcpStream) {
        // Sockets refuse no time limit but zero.
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let _ = stream.set_write_timeout(Some(PATIENCE));
        let Ok(own) = stream.try_clone() else { return };
        let mut input = BufReader::new(own);
        let response = match read_head(&mut input) {
            Ok(head) => self.answer(&head, input),
            Err(response) => response,
        };
        // A browser that has gone away needs no answer.
        let _ = response.write(stream);
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }

    fn answer(&self, head: &RequestHead, body: impl Read + 'static) -> Response {
        if !self.is_for_us(head) {
            let text = "this page is only served to this host, under its own address\n";
            return Response::text("403 Forbidden", text);
        }
        let path = head.target.split('?').next().unwrap_or_default();
        match (head.method.as_str(), path) {
            ("GET", "/") => self.page(),
            ("POST", "/examine") => examine(head, body),
            (_, "/" | "/examine") => Response::text("405 Method Not Allowed", "wrong method\n"),
            _ => Response::text("404 Not Found", "not found\n"),
        }
    }

    /// Whether a request names this server: a page of another site whose name resolves to
    /// 127.0.0.1 does not, nor does a form on another site.
    fn is_for_us(&self, head: &RequestHead) -> bool {
        let port = self.port;
        let own = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        let host = head.host.as_ref().is_some_and(|host| own.contains(host));
        let origin = head.origin.as_ref().is_none_or(|origin| {
            let rest = origin.strip_prefix("http://");
            rest.is_some_and(|rest| own.iter().any(|own| own == rest))
        });
        host && origin
    }

    /// The page with the traces as they are now.
    fn page(&self) -> Response {
        let mut loaded = Vec::new();
        for path in files(&self.traces).unwrap_or_default() {
            match load(&path) {
                Ok(file) => loaded.push(file),
                Err(failure) => say!("view: {failure}"),
            }
        }
        let all: Vec<_> = loaded.iter().flat_map(panels).collect();
        let shown = all.get(..MAX_PANELS).unwrap_or(&all);
        if shown.len() < all.len() {
            let count = all.len();
            say!("view: warning: the page shows the first {MAX_PANELS} of {count} traces");
        }
        let json: Vec<String> = shown
            .iter()
            .map(|panel| panel_json(panel, shown.len()))
            .collect();
        let title = loaded.first().map_or("clearway view", |file| &file.title);
        Response {
            status: "200 OK",
            content_type: "text/html; charset=utf-8",
            body: page(title, &json, true).into_bytes(),
        }
    }
}

/// Diagnoses a file that was dropped on the page.
fn examine(head: &RequestHead, body: impl Read + 'static) -> Response {
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
    match examined(body.take(length), name.into_owned()) {
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

fn examined(body: impl Read + 'static, name: String) -> Result<TraceFile, Failure> {
    let input = decode(body)
        .map_err(|error| Failure::caused(Kind::Arguments, format!("cannot read {name}"), &error))?;
    load_from(input, name)
}
