//! Responses to PUT. A file is stored completely or not at all.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, EXPECT, IF_NONE_MATCH};
use http::{HeaderMap, Response, StatusCode, request};
use http_body::Body;
use http_body_util::BodyExt as _;
use rustix::io::Errno;
use tokio::task::{JoinError, JoinSet};

use super::conditions::{Verdict, has_conditions, judge};
use super::content::Content;
use super::download::{refuse, status};
use super::limits::Client;
use super::log::AccessLogEntry;
use super::site::SiteState;
use super::site_path::SitePath;
use super::temporary_file::TemporaryFile;
use super::validators::Validators;

/// Size of a batch that is handed to a thread at once, and that arrives before a file is created: a
/// client that sends a byte now and then has none.
const BATCH: usize = 256 << 10;

/// Why an upload is not stored.
#[derive(Debug)]
pub(super) enum Refusal {
    Status(StatusCode),
    System(Errno),
    /// The client aborted the upload.
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
    served: &Arc<SiteState>,
    request: &request::Parts,
    body: impl Body<Data = Bytes> + Unpin,
    client: Client,
    entry: &mut AccessLogEntry,
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

/// Stores it and returns whether the name was free.
async fn store(
    served: &Arc<SiteState>,
    request: &request::Parts,
    mut body: impl Body<Data = Bytes> + Unpin,
    client: Client,
    entry: &mut AccessLogEntry,
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
            writer.discard().await;
            return Err(Refusal::Status(StatusCode::PAYLOAD_TOO_LARGE));
        }
        // While one batch is written, the next is gathered.
        if gathered >= BATCH {
            writer.write(std::mem::take(&mut batch)).await?;
            gathered = 0;
        }
        gathered += piece.len();
        batch.push(piece);
    }
    writer.finish(batch, only_new).await
}

/// Checks that are made before anything is written; returns the path, and whether it must be free.
fn examine(served: &SiteState, request: &request::Parts) -> Result<(SitePath, bool), Refusal> {
    let refused = |status| Err(Refusal::Status(status));
    // Half a file must not replace a whole one (RFC 9110 §14.5).
    if request.headers.contains_key(CONTENT_RANGE) {
        return refused(StatusCode::BAD_REQUEST);
    }
    let Some(place) = SitePath::of(request.uri.path()) else {
        return refused(StatusCode::FORBIDDEN);
    };
    // Also those that may be read: who owns `.well-known` speaks for the host.
    if place.has_dotfile() && !served.hidden {
        return refused(StatusCode::FORBIDDEN);
    }
    if place.slash {
        return refused(StatusCode::CONFLICT);
    }
    if announced_length(&request.headers).is_some_and(|length| length > served.max_upload) {
        return refused(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let conditions = request.headers.get_all(IF_NONE_MATCH);
    let only_new = conditions.iter().any(|value| value == "*");
    Ok((place, only_new))
}

fn announced_length(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// Checks the request's conditions against the file that is there now. Blocks.
fn check_conditions(
    served: &SiteState,
    place: &SitePath,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    let current = served.root.stat(&place.path).ok();
    let current = current.map(|stat| Validators::of(&stat, SystemTime::now()));
    match judge(headers, current.as_ref(), false) {
        Verdict::Proceed => Ok(()),
        Verdict::NotModified | Verdict::Failed => {
            Err(Refusal::Status(StatusCode::PRECONDITION_FAILED))
        }
    }
}

/// The file of an upload: created when there is data to write, and written while more arrives.
struct Writer {
    served: Arc<SiteState>,
    client: Client,
    place: SitePath,
    /// The headers with conditions, if there are any.
    conditions: Option<Arc<HeaderMap>>,
    /// Whether they were checked before the body.
    is_checked: bool,
    /// The file, while it is not being written; removed if dropped.
    writing: JoinSet<Result<TemporaryFile, Refusal>>,
}

impl Writer {
    /// Checks the conditions before the body arrives, unless it is about to arrive in one batch:
    /// then everything is done at once, when it is complete.
    async fn begin(
        served: &Arc<SiteState>,
        request: &request::Parts,
        place: SitePath,
        client: Client,
    ) -> Result<Self, Refusal> {
        let is_short =
            announced_length(&request.headers).is_some_and(|length| length <= BATCH as u64);
        let is_asked_first = request.headers.contains_key(EXPECT);
        let headers = &request.headers;
        let conditions = has_conditions(headers).then(|| Arc::new(headers.clone()));
        let writer = Self {
            served: served.clone(),
            client,
            place,
            conditions,
            is_checked: is_asked_first || !is_short,
            writing: JoinSet::new(),
        };
        if writer.is_checked {
            let check = writer.check();
            let parent = {
                let (served, place) = (served.clone(), writer.place.clone());
                move || served.root.parent(&place.path).map(drop)
            };
            let early = move || parent().map_err(Refusal::System).and_then(|()| check());
            served.resources.disk.run(client, |_| early()).await??;
        }
        Ok(writer)
    }

    /// What checks the conditions against the file that is there when it is called.
    fn check(&self) -> impl FnOnce() -> Result<(), Refusal> + Send + use<> {
        let (served, place) = (self.served.clone(), self.place.clone());
        let conditions = self.conditions.clone();
        move || match conditions {
            Some(headers) => check_conditions(&served, &place, &headers),
            None => Ok(()),
        }
    }

    /// Starts to write a batch, once the previous one is written.
    async fn write(&mut self, batch: Vec<Bytes>) -> Result<(), Refusal> {
        let file = self.file().await?;
        let (served, client) = (self.served.clone(), self.client);
        self.writing.spawn(async move {
            let write = move |_: &_| file.write(&batch).map_err(Refusal::System);
            served.resources.disk.run(client, write).await?
        });
        Ok(())
    }

    /// Writes the rest and renames the file; returns whether the name was free.
    async fn finish(mut self, batch: Vec<Bytes>, only_new: bool) -> Result<bool, Refusal> {
        // Again, because another upload may have ended meanwhile.
        let check = self.check();
        if let Some(written) = self.writing.join_next().await {
            let file = written??;
            let work = move || file.write(&batch)?.finish(only_new, check);
            return self.run(work).await;
        }
        let begin = self.create().await;
        self.run(move || begin()?.write(&batch)?.finish(only_new, check))
            .await
    }

    /// Ends an upload that is refused. Its file is gone before the client hears of it.
    async fn discard(mut self) {
        while self.writing.join_next().await.is_some() {}
    }

    /// The file, when nothing is being written to it; a new one, when it is this client's turn, if
    /// there is none.
    async fn file(&mut self) -> Result<TemporaryFile, Refusal> {
        if let Some(written) = self.writing.join_next().await {
            return written?;
        }
        let begin = self.create().await;
        self.run(begin).await
    }

    /// What creates the file, when it is this client's turn to have one.
    async fn create(&mut self) -> impl FnOnce() -> Result<TemporaryFile, Refusal> + Send + use<> {
        let check = (!self.is_checked).then(|| self.check());
        self.is_checked = true;
        let (served, place) = (self.served.clone(), self.place.clone());
        let permit = served.resources.uploads.acquire(self.client).await;
        move || {
            check.map_or(Ok(()), |check| check())?;
            Ok(TemporaryFile::begin(&served.root, &place, permit)?)
        }
    }

    /// Runs what blocks.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let Self { served, client, .. } = self;
        served.resources.disk.run(*client, |_| work()).await?
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

    /// A body whose pieces come one at a time, each only after a second poll.
    struct OneByOneBody {
        pieces: VecDeque<Bytes>,
        ready: bool,
    }

    impl Body for OneByOneBody {
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

    fn served(dir: &TestDir) -> Arc<SiteState> {
        Arc::new(SiteState {
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
            hidden: false,
            max_upload: u64::MAX,
            json: true,
            proxy: None,
            webtransport: false,
        })
    }

    fn names(dir: &TestDir) -> Vec<String> {
        let entries = std::fs::read_dir(dir.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// An upload of three batches is dropped after each number of polls, with and without time for
    /// the threads; it is complete, or leaves nothing.
    #[tokio::test]
    async fn upload_dropped_at_any_await_leaves_nothing() {
        let batch = Bytes::from(vec![7; BATCH]);
        let mut whole = 0;
        for polls in 1..40 {
            for pause in [Duration::ZERO, Duration::from_millis(2)] {
                let dir = TestDir::new();
                let served = served(&dir);
                let (parts, ()) = Request::put("/file").body(()).unwrap().into_parts();
                let body = OneByOneBody {
                    pieces: vec![batch.clone(); 3].into(),
                    ready: true,
                };
                let mut entry = AccessLogEntry::of(&Request::new(()), None, true);
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
                // The current owner of the only permit has waited for the other's end.
                let permit = served.resources.uploads.acquire((2, None)).await;
                // The file may be renamed although nobody waits for it any more.
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
