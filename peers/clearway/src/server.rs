//! Clearway as a server.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    fs,
    future::{Ready, ready},
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context as Task, Poll, ready},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use clearway::{
    Connection, Endpoint, EndpointBuilder, ServerConfig, TransportConfig,
    http::{self as http3, BoxError},
};
use contract::{
    options::{STREAMS, Serve},
    pattern::{self, HEADER, pattern},
    report::{Closed, announce},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

use crate::client::untuned;

/// Application error code of a raw request shorter than its header.
const MALFORMED: u64 = 1;

/// Serves until killed.
pub(crate) async fn run(options: Serve) -> Result<()> {
    untuned(options.tuning)?;
    pattern::prepare();
    let config = ServerConfig::with_identity(read(&options.cert)?, read(&options.key)?)?
        .always_retry(options.retry)
        .early_data(options.zero_rtt)
        .transport(transport());
    if options.raw {
        return raw(&options, config).await;
    }
    let server = http3::Server::builder(options.listen, config)
        .endpoint(EndpointBuilder::on_caller_runtime)
        .build()?;
    announce(server.local_addr())?;
    server.serve(Pages::new(options.json)).await?;
    Ok(())
}

/// The defaults, with the streams that all peers allow.
fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.streams.max_bidi_streams = STREAMS.into();
    transport
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("reading {}", file.display()))
}

async fn raw(options: &Serve, config: ServerConfig) -> Result<()> {
    let endpoint = Endpoint::builder(options.listen)
        .server(config.alpn([pattern::ALPN]))
        .on_caller_runtime()
        .build()?;
    announce(endpoint.local_addr())?;
    let json = options.json;
    endpoint
        .serve(move |connection: Connection| async move {
            if json {
                tokio::spawn(tell(connection.clone()));
            }
            while let Ok((send, receive)) = connection.accept_bi().await {
                tokio::spawn(answer(send, receive));
            }
        })
        .await?;
    Ok(())
}

/// One raw request, read to its FIN, then answered.
async fn answer(mut send: clearway::SendStream, mut receive: clearway::RecvStream) -> Result<()> {
    let mut header = [0; HEADER];
    if receive.read_exact(&mut header).await.is_err() {
        send.reset(MALFORMED)?;
        return Ok(());
    }
    while receive.read_chunk(usize::MAX).await?.is_some() {}
    let wanted = u64::from_be_bytes(header);
    let mut offset = 0;
    while offset < wanted {
        let piece = pattern(offset, wanted - offset);
        offset += piece.len() as u64;
        send.write_chunk(piece).await?;
    }
    send.finish()?;
    Ok(())
}

/// Waits for a connection's end and prints what it was.
async fn tell(connection: Connection) {
    let cause = connection.closed().await;
    let counters = connection.stats().counters;
    Closed {
        retried: Some(connection.retried()),
        resumed: Some(connection.resumed()),
        zero_rtt_accepted: connection.zero_rtt_accepted(),
        key_updates: Some(counters.key_updates),
        peer_key_updates: Some(counters.peer_key_updates),
        cause: cause.to_string(),
        ..Closed::new("clearway")
    }
    .print();
}

/// Answers `GET /N` and `POST /echo`.
#[derive(Clone)]
struct Pages {
    json: bool,
    /// The connections whose end will be told; an ended one's number may come back.
    known: Arc<Mutex<BTreeSet<u64>>>,
}

impl Pages {
    fn new(json: bool) -> Self {
        Self {
            json,
            known: Arc::default(),
        }
    }

    /// Has a connection that is new here tell its end.
    fn meet(&self, connection: &Connection) {
        let id = connection.id();
        if !lock(&self.known).insert(id) {
            return;
        }
        let (known, connection) = (Arc::clone(&self.known), connection.clone());
        tokio::spawn(async move {
            tell(connection).await;
            lock(&known).remove(&id);
        });
    }
}

fn lock(known: &Mutex<BTreeSet<u64>>) -> MutexGuard<'_, BTreeSet<u64>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl tower_service::Service<Request<http3::Incoming>> for Pages {
    type Response = Response<Page>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Page>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Task<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<http3::Incoming>) -> Self::Future {
        if self.json
            && let Some(connection) = request.extensions().get::<Connection>()
        {
            self.meet(connection);
        }
        ready(Ok(answer_http(request)))
    }
}

fn answer_http(request: Request<http3::Incoming>) -> Response<Page> {
    if request.method() == Method::POST {
        return Response::new(Page::Echo {
            body: request.into_body(),
            sum: 0,
        });
    }
    let path = request.uri().path().trim_start_matches('/');
    if let Ok(length) = path.parse() {
        return Response::new(Page::Pattern { offset: 0, length });
    }
    let mut response = Response::new(Page::End);
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// A response's body.
enum Page {
    /// Bytes of the pattern.
    Pattern { offset: u64, length: u64 },
    /// The request's body as it arrives, then the trailer `x-sum`.
    Echo { body: http3::Incoming, sum: u64 },
    /// Nothing more.
    End,
}

impl Body for Page {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Pattern { offset, length } => {
                if offset == length {
                    return Poll::Ready(None);
                }
                let piece = pattern(*offset, *length - *offset);
                *offset += piece.len() as u64;
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Self::Echo { body, sum } => {
                let told = match ready!(Pin::new(body).poll_frame(cx)?) {
                    Some(frame) => match frame.into_data() {
                        Ok(data) => {
                            *sum += data.iter().copied().map(u64::from).sum::<u64>();
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                        Err(frame) => frame.into_trailers().ok(),
                    },
                    None => None,
                };
                let sum = HeaderValue::from(*sum);
                let told = told.as_ref().and_then(|told| told.get("x-sum"));
                if told.is_some_and(|told| *told != sum) {
                    return Poll::Ready(Some(Err("x-sum of the upload is wrong".into())));
                }
                *self = Self::End;
                let trailers = HeaderMap::from_iter([(HeaderName::from_static("x-sum"), sum)]);
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Self::End => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pattern { offset, length } => offset == length,
            Self::Echo { .. } => false,
            Self::End => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pattern { offset, length } => SizeHint::with_exact(length - offset),
            Self::Echo { .. } => SizeHint::default(),
            Self::End => SizeHint::with_exact(0),
        }
    }
}
