//! A server that does not always do what it should.

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

/// How a server of the tests answers its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// All of it, but half way it stops for ever.
    Stall,
    /// Half of it, then the stream is reset.
    Reset,
    /// As it should.
    Proper,
    /// Other content with the same tag: what must not be appended.
    Liar,
    /// A range nobody asked for.
    Elsewhere,
    /// Other content, and it says so.
    Changed,
    /// Stops like [`Mood::Stall`], and names no tag.
    Untagged,
    /// Serves ranges whatever `if-range` says, and refuses those it does not have.
    Refusing,
    /// As it should, with header fields that mean to command a terminal.
    Colourful,
    /// A redirect to such a place.
    Elsewhither,
    /// 206, in a way that is not what was asked for.
    Partial(Partial),
    /// 200 with all of it, whatever is asked for, that ends after so many bytes.
    WholeUntil(usize),
}

/// What is wrong with a 206.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partial {
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

impl Partial {
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

/// A server with one file and moods.
pub(crate) struct Moody {
    content: Bytes,
    mood: Mutex<Mood>,
    /// The `range` and `if-range` fields of all requests.
    pub(crate) asked: Mutex<Vec<(String, String)>>,
}

pub(crate) struct Content {
    pieces: Vec<Bytes>,
    /// As announced.
    length: Option<u64>,
    mood: Mood,
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
            mood: Mood::Proper,
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
        match (self.pieces.pop(), self.mood) {
            (Some(piece), _) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            (None, Mood::Stall | Mood::Untagged) => Poll::Pending,
            (None, Mood::Reset) => Poll::Ready(Some(Err(std::io::Error::other("enough")))),
            (None, _) => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

impl Moody {
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
        let mood = *self.mood.lock().unwrap();
        if let Mood::Colourful | Mood::Elsewhither = mood {
            let location = [&b"https://h/\xe2\x80\xae\x9b"[..], &[b'l'; 9_000]].concat();
            let mut response = Response::builder()
                .header("x-title", &b"a\x9b31mb\xe2\x80\xaec\td"[..])
                .header("x-long", "l".repeat(30_000));
            if mood == Mood::Elsewhither {
                response = response.status(301).header("location", location);
            }
            return response.body(Content::unsized_of(&self.content)).unwrap();
        }
        if let Mood::Partial(partial) = mood {
            let first = range
                .strip_prefix("bytes=")
                .and_then(|range| range.strip_suffix('-'));
            return partial.answer(&self.content, first.map(|first| first.parse().unwrap()));
        }
        if let Mood::WholeUntil(length) = mood {
            let content = Content {
                mood: Mood::Reset,
                ..Content::unsized_of(&self.content.slice(..length))
            };
            return Response::builder()
                .header("etag", "\"1\"")
                .body(content)
                .unwrap();
        }
        let whole = match mood {
            Mood::Liar | Mood::Changed => Bytes::from(vec![7; self.content.len()]),
            _ => self.content.clone(),
        };
        let etag = if mood == Mood::Changed {
            "\"2\""
        } else {
            "\"1\""
        };
        let total = whole.len();
        let ranges = if_range == etag || (mood == Mood::Refusing && if_range.is_empty());
        let first = (ranges && !range.is_empty()).then(|| {
            let first = range
                .strip_prefix("bytes=")
                .and_then(|range| range.strip_suffix('-'));
            first.unwrap().parse::<usize>().unwrap()
        });
        let first = first.map(|first| first + usize::from(mood == Mood::Elsewhere));
        if mood == Mood::Refusing && first.is_some_and(|first| first >= total) {
            return refusal(total);
        }
        let rest = whole.slice(first.unwrap_or(0)..);
        let length = rest.len() as u64;
        let sent = match mood {
            Mood::Stall | Mood::Untagged | Mood::Reset => rest.slice(..rest.len() / 2),
            _ => rest,
        };
        let pieces = sent
            .chunks(100_000)
            .rev()
            .map(Bytes::copy_from_slice)
            .collect();
        let mut response = Response::builder();
        if mood != Mood::Untagged {
            response = response.header("etag", etag);
        }
        if let Some(first) = first {
            let range = format!("bytes {first}-{}/{total}", total - 1);
            response = response.status(206).header("content-range", range);
        }
        let content = Content {
            pieces,
            length: Some(length),
            mood,
        };
        response.body(content).unwrap()
    }

    pub(crate) fn is(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Serves on another thread, as long as the test runs.
    pub(crate) fn serve(content: &[u8]) -> (Arc<Self>, Server, String) {
        let moody = Arc::new(Self {
            content: Bytes::copy_from_slice(content),
            mood: Mutex::new(Mood::Proper),
            asked: Mutex::default(),
        });
        let identity = DevelopmentIdentity::generate(["localhost"]).unwrap();
        let config =
            ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let service = Service(moody.clone());
        std::thread::spawn(move || {
            runtime.block_on(async {
                let server = Server::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
                tell.send(server.clone()).unwrap();
                server.serve(service).await.unwrap();
            });
        });
        let server = told.recv().unwrap();
        let url = format!("https://localhost:{}/file", server.local_addr().port());
        (moody, server, url)
    }
}

fn refusal(total: usize) -> Response<Content> {
    let content = Content {
        pieces: Vec::new(),
        length: Some(0),
        mood: Mood::Refusing,
    };
    let range = format!("bytes */{total}");
    let response = Response::builder()
        .status(416)
        .header("content-range", range);
    response.body(content).unwrap()
}

#[derive(Clone)]
pub(crate) struct Service(Arc<Moody>);

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
