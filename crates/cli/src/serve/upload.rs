//! Answers to PUT: a file that is there whole or not at all.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, IF_NONE_MATCH};
use http::{Response, StatusCode, request};
use http_body::Body;
use http_body_util::BodyExt as _;
use rustix::io::Errno;
use tokio::task::{JoinError, JoinSet};

use super::conditions::{Verdict, judge};
use super::content::Content;
use super::download::{refuse, status};
use super::half::Half;
use super::limits::Client;
use super::log::Entry;
use super::place::Place;
use super::site::Served;
use super::validators::Validators;

/// How much of an upload is gathered for one change of threads, and until there is
/// a file for it: who sends a byte now and then has none.
const BATCH: usize = 256 << 10;

/// Why an upload is not stored.
#[derive(Debug)]
pub(super) enum Refusal {
    Status(StatusCode),
    System(Errno),
    /// The client broke off.
    BrokenOff,
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

impl From<JoinError> for Refusal {
    fn from(_: JoinError) -> Self {
        Self::Status(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Stores the body of a PUT.
pub(super) async fn upload(
    served: &Arc<Served>,
    request: &request::Parts,
    body: impl Body<Data = Bytes> + Unpin,
    client: Client,
    entry: &mut Entry,
) -> Response<Content> {
    match store(served, request, body, client, entry).await {
        Ok(true) => empty(StatusCode::CREATED),
        Ok(false) => empty(StatusCode::NO_CONTENT),
        Err(Refusal::Status(refused)) => status(refused),
        Err(Refusal::System(Errno::ISDIR | Errno::NOTEMPTY)) => status(StatusCode::CONFLICT),
        Err(Refusal::System(error)) => refuse(error),
        Err(Refusal::BrokenOff) => {
            entry.broken_off();
            status(StatusCode::BAD_REQUEST)
        }
    }
}

fn empty(status: StatusCode) -> Response<Content> {
    let mut response = Response::new(Content::nothing());
    *response.status_mut() = status;
    response
}

/// Stores it and answers whether there was nothing before.
async fn store(
    served: &Arc<Served>,
    request: &request::Parts,
    mut body: impl Body<Data = Bytes> + Unpin,
    client: Client,
    entry: &mut Entry,
) -> Result<bool, Refusal> {
    let (place, only_new) = examine(served, request)?;
    let mut writer = Writer::begin(served, request, place, client).await?;
    let mut batch: Vec<Bytes> = Vec::new();
    let (mut gathered, mut received) = (0, 0_u64);
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| Refusal::BrokenOff)?.into_data() else {
            continue;
        };
        entry.received(piece.len() as u64);
        received = received.saturating_add(piece.len() as u64);
        if received > served.max_upload {
            return Err(Refusal::Status(StatusCode::PAYLOAD_TOO_LARGE));
        }
        gathered += piece.len();
        batch.push(piece);
        // While one batch is written, the next is gathered.
        if gathered >= BATCH {
            writer.write(std::mem::take(&mut batch)).await?;
            gathered = 0;
        }
    }
    writer.finish(batch, only_new).await
}

/// What can be said before anything is done: where it goes, and whether nothing may
/// be there.
fn examine(served: &Served, request: &request::Parts) -> Result<(Place, bool), Refusal> {
    let refused = |status| Err(Refusal::Status(status));
    // Half a file must not replace a whole one (RFC 9110 §14.5).
    if request.headers.contains_key(CONTENT_RANGE) {
        return refused(StatusCode::BAD_REQUEST);
    }
    let Some(place) = Place::of(request.uri.path()) else {
        return refused(StatusCode::FORBIDDEN);
    };
    if place.slash {
        return refused(StatusCode::CONFLICT);
    }
    let announced = request.headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > served.max_upload) {
        return refused(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let conditions = request.headers.get_all(IF_NONE_MATCH);
    let only_new = conditions.iter().any(|value| value == "*");
    Ok((place, only_new))
}

/// The file of an upload: begun when there is something to write, and written while
/// more arrives.
struct Writer {
    served: Arc<Served>,
    client: Client,
    place: Place,
    /// The file is in here while it is written; gone with this, it is removed.
    writing: JoinSet<Result<Half, Refusal>>,
}

impl Writer {
    /// Whether the upload may be.
    async fn begin(
        served: &Arc<Served>,
        request: &request::Parts,
        place: Place,
        client: Client,
    ) -> Result<Self, Refusal> {
        let (root, path) = (served.root.clone(), place.path.clone());
        let headers = request.headers.clone();
        let judged = move |_: &_| {
            root.parent(&path)?;
            let current = root.stat(&path).ok();
            let current = current.map(|stat| Validators::of(&stat, SystemTime::now()));
            match judge(&headers, current.as_ref(), false) {
                Verdict::Proceed => Ok(()),
                Verdict::NotModified | Verdict::Failed => {
                    Err(Refusal::Status(StatusCode::PRECONDITION_FAILED))
                }
            }
        };
        served.resources.disk.run(client, judged).await??;
        Ok(Self {
            served: served.clone(),
            client,
            place,
            writing: JoinSet::new(),
        })
    }

    /// Begins to write a batch, once the one before is written.
    async fn write(&mut self, batch: Vec<Bytes>) -> Result<(), Refusal> {
        let file = self.file().await?;
        let (served, client) = (self.served.clone(), self.client);
        self.writing.spawn(async move {
            let write = move |_: &_| file.write(&batch).map_err(Refusal::System);
            served.resources.disk.run(client, write).await?
        });
        Ok(())
    }

    /// Writes the rest and gives the file its name; answers whether nothing had it.
    async fn finish(mut self, batch: Vec<Bytes>, only_new: bool) -> Result<bool, Refusal> {
        let file = self.file().await?;
        let finish = move |_: &_| file.write(&batch)?.finish(only_new);
        let Self { served, client, .. } = &self;
        served.resources.disk.run(*client, finish).await?
    }

    /// The file, when nothing is being written to it: a new one, when it is this
    /// client's turn to have one, if there is none.
    async fn file(&mut self) -> Result<Half, Refusal> {
        if let Some(written) = self.writing.join_next().await {
            return written?;
        }
        let Self { served, client, .. } = &*self;
        let permit = served.resources.uploads.acquire(*client).await;
        let (root, place) = (served.root.clone(), self.place.clone());
        let begin = move |_: &_| Half::begin(&root, &place, permit);
        Ok(served.resources.disk.run(*client, begin).await??)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use clearway::MemoryAccount;
    use http::Request;
    use http_body::Frame;

    use super::*;
    use crate::serve::limits::{Descriptors, Memory, Resources};
    use crate::serve::listing::Snapshots;
    use crate::serve::root::Root;
    use crate::serve::test_dir::TestDir;

    /// Pieces that come one at a time, each only when asked for a second time.
    struct Slow {
        pieces: VecDeque<Bytes>,
        ready: bool,
    }

    impl Body for Slow {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.ready = !self.ready;
            if self.ready {
                return Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))));
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }

    fn served(dir: &TestDir) -> Arc<Served> {
        Arc::new(Served {
            root: Arc::new(Root::open(dir.path()).unwrap()),
            resources: Resources::new(
                &Descriptors {
                    open_files: 1,
                    uploads: 1,
                },
                &Memory::default(),
                &MemoryAccount::default(),
            ),
            snapshots: Snapshots::default(),
            writable: true,
            max_upload: u64::MAX,
            json: true,
        })
    }

    fn names(dir: &TestDir) -> Vec<String> {
        let entries = std::fs::read_dir(dir.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// An upload of three batches is dropped after each number of polls, with the
    /// threads given time or not; it ends whole, or leaves nothing.
    #[tokio::test]
    async fn upload_dropped_at_any_await_leaves_nothing() {
        let batch = Bytes::from(vec![7; BATCH]);
        let mut whole = 0;
        for polls in 1..40 {
            for pause in [Duration::ZERO, Duration::from_millis(2)] {
                let dir = TestDir::new();
                let served = served(&dir);
                let (parts, ()) = Request::put("/file").body(()).unwrap().into_parts();
                let body = Slow {
                    pieces: vec![batch.clone(); 3].into(),
                    ready: true,
                };
                let mut entry = Entry::of(&Request::new(()), None, true);
                let mut done = false;
                {
                    let client = (1, None);
                    let mut storing = pin!(store(&served, &parts, body, client, &mut entry));
                    for _ in 0..polls {
                        let mut cx = Context::from_waker(Waker::noop());
                        if storing.as_mut().poll(&mut cx).is_ready() {
                            done = true;
                            break;
                        }
                        tokio::time::sleep(pause).await;
                    }
                }
                // Whoever has the one permit now has waited for the other's end.
                let permit = served.resources.uploads.acquire((2, None)).await;
                // The name may come without anybody to hear of it.
                let left = names(&dir);
                assert!(
                    left.is_empty() || left == ["file"],
                    "after {polls} polls: {left:?}"
                );
                drop(permit);
                whole += usize::from(done);
            }
        }
        assert!(whole > 0, "none came to its end");
    }
}
