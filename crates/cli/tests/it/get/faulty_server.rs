//! A server that misbehaves on request.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use clearway::http::{Incoming, Server};
use clearway::{DevelopmentIdentity, ServerConfig};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};

/// How the test server answers its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Sends half of the content, then nothing more.
    Stall,
    /// Sends half of the content, then resets the stream.
    Reset,
    /// Answers correctly.
    Correct,
    /// Other content under the same entity tag, which must not be appended.
    SameTagOtherContent,
    /// A range that was not requested.
    WrongRange,
    /// Other content under a new entity tag.
    Changed,
    /// Like [`Behaviour::Stall`], without an entity tag.
    Untagged,
    /// Serves ranges whatever `if-range` says, and refuses those it does not have.
    StrictRanges,
    /// Correct content, with terminal escape sequences in header fields.
    TerminalEscapes,
    /// A redirect to a location with terminal escape sequences.
    Redirect,
    /// A 206 response that does not match the request.
    InvalidPartial(InvalidPartial),
    /// A full 200 response that ends after this many bytes.
    WholeUntil(usize),
}

/// What is wrong with a 206.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidPartial {
    /// The right range, and no content.
    Empty,
    /// The right range, and less content than it has.
    Short,
    /// The right range, and more content than it has.
    Long,
    /// `bytes A-B/*`.
    UnknownTotal,
    /// A total larger than what was asked for reaches.
    LargerTotal,
    /// Without `content-range`.
    NoRange,
    /// With two of them.
    TwoRanges,
    /// Several ranges in one body.
    Multipart,
    /// From the beginning, whatever was asked for.
    FromZero,
    /// Ends before it begins.
    Backwards,
}

impl InvalidPartial {
    pub(crate) const ALL: [Self; 10] = [
        Self::Empty,
        Self::Short,
        Self::Long,
        Self::UnknownTotal,
        Self::LargerTotal,
        Self::NoRange,
        Self::TwoRanges,
        Self::Multipart,
        Self::FromZero,
        Self::Backwards,
    ];

    /// The answer to a request for what begins at `first`; `None` asks for all.
    fn answer(self, content: &Bytes, first: Option<usize>) -> Response<Content> {
        let total = content.len();
        let first = first.unwrap_or(0);
        let last = total - 1;
        let right = format!("bytes {first}-{last}/{total}");
        let mut response = Response::builder().status(206).header("etag", "\"1\"");
        let mut body = content.slice(first..);
        let half = body.len() / 2;
        let ranges = match self {
            Self::Empty => {
                body.clear();
                vec![right]
            }
            Self::Short => {
                body.truncate(half);
                vec![right]
            }
            Self::Long => {
                body = [&body[..], b"more"].concat().into();
                vec![right]
            }
            Self::UnknownTotal => vec![format!("bytes {first}-{last}/*")],
            Self::LargerTotal => vec![format!("bytes {first}-{last}/{}", total + 1)],
            Self::NoRange => Vec::new(),
            Self::TwoRanges => vec![right.clone(), right],
            Self::Multipart => {
                response = response.header("content-type", "multipart/byteranges; boundary=x");
                Vec::new()
            }
            Self::FromZero => {
                body = content.slice(..half);
                vec![format!("bytes 0-{}/{total}", half - 1)]
            }
            Self::Backwards => vec![format!("bytes {last}-{first}/{total}")],
        };
        for range in ranges {
            response = response.header("content-range", range);
        }
        response.body(Content::unsized_of(&body)).unwrap()
    }
}

/// A server with one file and a [`Behaviour`].
pub(crate) struct FaultyServer {
    content: Bytes,
    behaviour: Mutex<Behaviour>,
    /// The `range` and `if-range` fields of all requests.
    pub(crate) asked: Mutex<Vec<(String, String)>>,
}

pub(crate) struct Content {
    pieces: Vec<Bytes>,
    /// As announced.
    length: Option<u64>,
    behaviour: Behaviour,
}

impl Content {
    /// Content that does not say how long it is.
    fn unsized_of(bytes: &Bytes) -> Self {
        Self {
            pieces: bytes
                .chunks(100_000)
                .rev()
                .map(Bytes::copy_from_slice)
                .collect(),
            length: None,
            behaviour: Behaviour::Correct,
        }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        match (self.pieces.pop(), self.behaviour) {
            (Some(piece), _) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            (None, Behaviour::Stall | Behaviour::Untagged) => Poll::Pending,
            (None, Behaviour::Reset) => Poll::Ready(Some(Err(std::io::Error::other("enough")))),
            (None, _) => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

impl FaultyServer {
    fn answer(&self, request: &Request<Incoming>) -> Response<Content> {
        let field = |name: &str| {
            let value = request.headers().get(name);
            value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
        };
        let (range, if_range) = (field("range"), field("if-range"));
        self.asked
            .lock()
            .unwrap()
            .push((range.clone(), if_range.clone()));
        let behaviour = *self.behaviour.lock().unwrap();
        if let Behaviour::TerminalEscapes | Behaviour::Redirect = behaviour {
            let location = [&b"https://h/\xe2\x80\xae\x9b"[..], &[b'l'; 9_000]].concat();
            let mut response = Response::builder()
                .header("x-title", &b"a\x9b31mb\xe2\x80\xaec\td"[..])
                .header("x-long", "l".repeat(30_000));
            if behaviour == Behaviour::Redirect {
                response = response.status(301).header("location", location);
            }
            return response.body(Content::unsized_of(&self.content)).unwrap();
        }
        if let Behaviour::InvalidPartial(partial) = behaviour {
            let first = range
                .strip_prefix("bytes=")
                .and_then(|range| range.strip_suffix('-'));
            return partial.answer(&self.content, first.map(|first| first.parse().unwrap()));
        }
        if let Behaviour::WholeUntil(length) = behaviour {
            let content = Content {
                behaviour: Behaviour::Reset,
                ..Content::unsized_of(&self.content.slice(..length))
            };
            return Response::builder()
                .header("etag", "\"1\"")
                .body(content)
                .unwrap();
        }
        let whole = match behaviour {
            Behaviour::SameTagOtherContent | Behaviour::Changed => {
                Bytes::from(vec![7; self.content.len()])
            }
            _ => self.content.clone(),
        };
        let etag = if behaviour == Behaviour::Changed {
            "\"2\""
        } else {
            "\"1\""
        };
        let total = whole.len();
        let ranges =
            if_range == etag || (behaviour == Behaviour::StrictRanges && if_range.is_empty());
        let first = (ranges && !range.is_empty()).then(|| {
            let first = range
                .strip_prefix("bytes=")
                .and_then(|range| range.strip_suffix('-'));
            first.unwrap().parse::<usize>().unwrap()
        });
        let first = first.map(|first| first + usize::from(behaviour == Behaviour::WrongRange));
        if behaviour == Behaviour::StrictRanges && first.is_some_and(|first| first >= total) {
            return refusal(total);
        }
        let rest = whole.slice(first.unwrap_or(0)..);
        let length = rest.len() as u64;
        let sent = match behaviour {
            Behaviour::Stall | Behaviour::Untagged | Behaviour::Reset => {
                rest.slice(..rest.len() / 2)
            }
            _ => rest,
        };
        let pieces = sent
            .chunks(100_000)
            .rev()
            .map(Bytes::copy_from_slice)
            .collect();
        let mut response = Response::builder();
        if behaviour != Behaviour::Untagged {
            response = response.header("etag", etag);
        }
        if let Some(first) = first {
            let range = format!("bytes {first}-{}/{total}", total - 1);
            response = response.status(206).header("content-range", range);
        }
        let content = Content {
            pieces,
            length: Some(length),
            behaviour,
        };
        response.body(content).unwrap()
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    /// Serves on another thread, as long as the test runs.
    pub(crate) fn serve(content: &[u8]) -> (Arc<Self>, Server, String) {
        let faulty = Arc::new(Self {
            content: Bytes::copy_from_slice(content),
            behaviour: Mutex::new(Behaviour::Correct),
            asked: Mutex::default(),
        });
        let identity = DevelopmentIdentity::generate(["localhost"]).unwrap();
        let config =
            ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let service = Service(faulty.clone());
        std::thread::spawn(move || {
            runtime.block_on(async {
                let server = Server::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
                tell.send(server.clone()).unwrap();
                server.serve(service).await.unwrap();
            });
        });
        let server = told.recv().unwrap();
        let url = format!("https://localhost:{}/file", server.local_addr().port());
        (faulty, server, url)
    }
}

fn refusal(total: usize) -> Response<Content> {
    let content = Content {
        pieces: Vec::new(),
        length: Some(0),
        behaviour: Behaviour::StrictRanges,
    };
    let range = format!("bytes */{total}");
    let response = Response::builder()
        .status(416)
        .header("content-range", range);
    response.body(content).unwrap()
}

#[derive(Clone)]
pub(crate) struct Service(Arc<FaultyServer>);

impl tower_service::Service<Request<Incoming>> for Service {
    type Response = Response<Content>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Content>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        std::future::ready(Ok(self.0.answer(&request)))
    }
}

/// Waits until so much of a download is on the disk.
pub(crate) fn wait_for(file: &Path, length: u64) {
    while fs::metadata(file).map_or(0, |found| found.len()) < length {
        std::thread::sleep(Duration::from_millis(5));
    }
}
