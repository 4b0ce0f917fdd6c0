//! `clearway serve --observe`: the server's connections for the viewer, and metrics.

use core::net::SocketAddr;
use std::io::{self, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use clearway::EndpointBuilder;
use clearway_trace::report::{Panel, panel_json};
use clearway_trace::{Fleet, Recorder};
use serde::Serialize;

use crate::address;
use crate::failure::{Failure, Kind};
use crate::local_http::{Access, Answer, EventStreams, RequestHead, Response, serve};
use crate::output::print_json;
use crate::tokens;

/// Options of observation.
#[derive(Debug, clap::Args)]
pub(super) struct ObserveOptions {
    /// Show the connections to `clearway view`, and metrics to Prometheus, at this address:
    /// /connections, /live and /metrics over HTTP without TLS. The default is a free port of
    /// 127.0.0.1; an address that other hosts can reach needs --observe-token. Shown are peers'
    /// addresses and what their connections do, never headers or content.
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:0",
          value_parser = address::to_listen_on)]
    observe: Option<SocketAddr>,
    /// File with the tokens of those who may observe, one a line, of at least 16 characters.
    #[arg(long, value_name = "FILE", requires = "observe")]
    observe_token: Option<PathBuf>,
    /// Name under which observers may call this host, besides its addresses; may be repeated.
    #[arg(long, value_name = "NAME", requires = "observe")]
    observe_name: Vec<String>,
}

/// What is observed, and where.
pub(super) struct Observation {
    fleet: Fleet,
    listener: TcpListener,
    access: Access,
    address: SocketAddr,
}

/// The address of the observation, for scripts.
#[derive(Serialize)]
struct Observing {
    event: &'static str,
    address: SocketAddr,
    url: String,
}

impl ObserveOptions {
    /// Binds the address, if there is to be one.
    ///
    /// # Errors
    /// If it is in use, or needs a token that is not given.
    pub(super) fn open(&self) -> Result<Option<Observation>, Failure> {
        let Some(wanted) = self.observe else {
            return Ok(None);
        };
        let tokens = match &self.observe_token {
            Some(file) => tokens::read("--observe-token", file)?,
            None if wanted.ip().to_canonical().is_loopback() => Vec::new(),
            None => {
                let message = format!(
                    "--observe {wanted}: expected --observe-token FILE, because other hosts can \
                     reach this address"
                );
                return Err(Failure::new(Kind::Arguments, message));
            }
        };
        let bound =
            TcpListener::bind(wanted).and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = bound.map_err(|error| {
            let what = format!("--observe: cannot listen on {wanted}");
            Failure::caused(Kind::Address, what, &error)
        })?;
        let access = Access::new(address)
            .names(&self.observe_name)
            .tokens(tokens);
        Ok(Some(Observation {
            fleet: Fleet::new(),
            listener,
            access,
            address,
        }))
    }
}

impl Observation {
    /// The endpoint, with its connections observed.
    pub(super) fn watch(&self, endpoint: EndpointBuilder) -> EndpointBuilder {
        let fleet = self.fleet.clone();
        endpoint.observe(move |_, remote| {
            let sink = fleet.sink(remote)?;
            Some(Box::new(Recorder::new(sink)))
        })
    }

    /// Answers requests from now on, on a thread of its own.
    ///
    /// # Errors
    /// If there cannot be another thread, or standard output cannot be written.
    pub(super) fn start(self, json: bool) -> Result<(), Failure> {
        let (address, url) = (self.address, format!("http://{}/", self.address));
        std::thread::Builder::new()
            .name("observe".into())
            .spawn(move || {
                let observer = Arc::new(Observer {
                    fleet: self.fleet,
                    streams: EventStreams::default(),
                });
                serve(&self.listener, &self.access, &observer);
            })?;
        if json {
            let event = "observing";
            return print_json(&Observing {
                event,
                address,
                url,
            });
        }
        say!("serve: connections: clearway view {url}");
        say!("serve: metrics for Prometheus: {url}metrics");
        Ok(())
    }
}

/// Answers observers.
struct Observer {
    fleet: Fleet,
    streams: EventStreams,
}

impl Answer for Observer {
    fn answer(
        &self,
        head: &RequestHead,
        _body: BufReader<TcpStream>,
        output: &TcpStream,
    ) -> Option<Response> {
        if head.method != "GET" {
            return Some(Response::text("405 Method Not Allowed", "expected GET\n"));
        }
        Some(match head.path() {
            "/metrics" => Response {
                status: "200 OK",
                content_type: "text/plain; version=0.0.4; charset=utf-8",
                body: self.fleet.metrics().into_bytes(),
            },
            "/connections" => match list(&self.fleet) {
                Ok(json) => Response::json(json),
                Err(error) => Response::text("500 Internal Server Error", format!("{error}\n")),
            },
            "/live" => return self.streams.run(output, || list(&self.fleet)),
            "/" => Response::text("200 OK", "/connections, /live and /metrics are here\n"),
            path => match path.strip_prefix("/connections/").map(str::parse) {
                Some(Ok(id)) => connection(&self.fleet, id),
                Some(Err(_)) | None => Response::text("404 Not Found", "not found\n"),
            },
        })
    }
}

fn list(fleet: &Fleet) -> io::Result<String> {
    Ok(serde_json::to_string(&fleet.connections())?)
}

fn connection(fleet: &Fleet, id: u64) -> Response {
    match fleet.examination(id) {
        Some((title, examination)) => {
            let panel = Panel {
                title: &title,
                facts: &[],
                examination: &examination,
            };
            Response::json(panel_json(&panel, 1))
        }
        None => Response::text(
            "404 Not Found",
            "no such connection, or it ended long ago\n",
        ),
    }
}
