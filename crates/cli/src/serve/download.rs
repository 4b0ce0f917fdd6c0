//! Responses to GET and HEAD.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED, LOCATION, RANGE, RETRY_AFTER,
};
use http::{Method, Response, StatusCode, request};
use rustix::fs::Stat;
use rustix::io::Errno;

use super::conditions::{Verdict, judge, range_applies};
use super::content::Content;
use super::limits::{CancelFlag, Client};
use super::listing;
use super::pieces::{Pieces, Shared, read_cached, read_exactly};
use super::range::Part;
use super::root::{Lookup, LookupMode, ReopenedFile};
use super::site::SiteState;
use super::site_path::SitePath;
use super::validators::Validators;

/// Files up to this size are sent in one piece with the header section.
const SMALL: u64 = 64 << 10;

/// The file that represents a directory, if it exists.
const INDEX: &str = "index.html";

/// The Content-Security-Policy of documents that a stranger may have uploaded: no scripts, no
/// forms, an origin of their own.
const SANDBOX: &str = "sandbox";

/// What a path refers to.
enum Step {
    Answer(Box<Response<Content>>),
    /// A directory without an index.
    List(PathBuf),
}

/// Responds to a GET or HEAD request.
pub(super) async fn download(
    served: &Arc<SiteState>,
    request: request::Parts,
    client: Client,
) -> Response<Content> {
    let shared = served.shared(client);
    let head = request.method == Method::HEAD;
    // Data that the kernel has cached is not worth a thread switch.
    let mut found = look_up(served, &shared, &request, LookupMode::CachedOnly);
    if matches!(found, Err(Errno::AGAIN)) {
        let (served, of) = (served.clone(), shared.clone());
        let work = move |abandoned: &CancelFlag| match abandoned.get() {
            true => Err(Errno::CANCELED),
            false => look_up(&served, &of, &request, LookupMode::MayBlock),
        };
        let looked = shared.disk.run(client, work).await;
        found = looked.unwrap_or(Err(Errno::IO));
    }
    let answer = match found {
        Ok(Step::Answer(response)) => Ok(*response),
        // Its length is known only once it is complete.
        Ok(Step::List(_)) if head => Ok(page(Content::nothing())),
        Ok(Step::List(path)) => match listing::begin(served, &shared, path).await {
            Ok(listing::ListingStart::Whole(text)) => Ok(page(Content::whole(text))),
            Ok(listing::ListingStart::Listing(listing)) => Ok(page(Content::listing(listing))),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    let mut response = answer.unwrap_or_else(refuse);
    if head {
        let length = http_body::Body::size_hint(response.body()).exact();
        if let Some(length @ 1..) = length {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        *response.body_mut() = Content::nothing();
    }
    response
}

/// Opens what the path refers to.
///
/// # Errors
/// If it must not be read, or like [`Root::find`](super::root::Root::find).
fn look_up(
    served: &SiteState,
    shared: &Shared,
    request: &request::Parts,
    mode: LookupMode,
) -> Result<Step, Errno> {
    let place = SitePath::of(request.uri.path()).ok_or(Errno::NOENT)?;
    if place.is_hidden() && !served.hidden {
        return Err(Errno::NOENT);
    }
    let SitePath { path, slash } = place;
    let root = &served.root;
    match root.find(&path, mode)? {
        Lookup::File(..) if slash => Err(Errno::NOENT),
        Lookup::File(file, stat) => FileResponse {
            served,
            shared,
            path,
            file,
            stat,
            mode,
        }
        .answer(request),
        Lookup::Directory(_) if !slash => Ok(with_slash(request)),
        Lookup::Directory(_) => {
            let index = path.join(INDEX);
            match root.find(&index, mode) {
                Ok(Lookup::File(file, stat)) => FileResponse {
                    served,
                    shared,
                    path: index,
                    file,
                    stat,
                    mode,
                }
                .answer(request),
                Err(Errno::AGAIN) if mode == LookupMode::CachedOnly => Err(Errno::AGAIN),
                Ok(Lookup::Directory(_)) | Err(_) => return Ok(Step::List(path)),
            }
        }
    }
    .map(|response| Step::Answer(Box::new(response)))
}

/// A directory's page.
fn page(content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, html);
    let policy = HeaderValue::from_static(listing::page::POLICY);
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    response
}

/// An open file to be sent.
struct FileResponse<'a> {
    served: &'a SiteState,
    shared: &'a Shared,
    path: PathBuf,
    file: File,
    stat: Stat,
    mode: LookupMode,
}

impl FileResponse<'_> {
    /// Sends the file, a range of it, or a 304.
    fn answer(self, request: &request::Parts) -> Result<Response<Content>, Errno> {
        let length = u64::try_from(self.stat.st_size).map_err(|_| Errno::OVERFLOW)?;
        let now = SystemTime::now();
        let validators = Validators::of(&self.stat, now);
        let part = match judge(&request.headers, Some(&validators), true) {
            Verdict::Failed => return Ok(status(StatusCode::PRECONDITION_FAILED)),
            Verdict::NotModified => {
                let mut response = Response::new(Content::nothing());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                describe(response.headers_mut(), &validators, now);
                return Ok(response);
            }
            Verdict::Proceed => part(request, &validators, length),
        };
        let (code, first, count) = match part {
            Part::Whole => (StatusCode::OK, 0, length),
            Part::Range { first, last } => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
            Part::Unsatisfiable => {
                let mut response = status(StatusCode::RANGE_NOT_SATISFIABLE);
                let range = format!("bytes */{length}");
                put(response.headers_mut(), CONTENT_RANGE, &range);
                describe(response.headers_mut(), &validators, now);
                return Ok(response);
            }
        };
        let content_type = content_type(&self.path);
        let served = self.served;
        let content = match request.method == Method::HEAD {
            true => Content::nothing(),
            false => self.content(first, count)?,
        };
        let mut response = Response::new(content);
        *response.status_mut() = code;
        let headers = response.headers_mut();
        put(headers, CONTENT_TYPE, &content_type);
        if served.writable && may_run(&content_type) {
            // Anybody may have uploaded it, and it must not act for the site.
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
        }
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        describe(headers, &validators, now);
        if code == StatusCode::PARTIAL_CONTENT {
            let range = format!("bytes {first}-{}/{length}", first + count - 1);
            put(headers, CONTENT_RANGE, &range);
        }
        if count == 0 || request.method == Method::HEAD {
            headers.insert(CONTENT_LENGTH, count.into());
        }
        Ok(response)
    }

    /// The `count` bytes from `first`: at once if they are few, and from a file that stays open if
    /// a permit is free.
    fn content(self, first: u64, count: u64) -> Result<Content, Errno> {
        let Shared {
            client, buffers, ..
        } = self.shared;
        if count <= SMALL.min(buffers.piece(*client)) {
            let charge = buffers.charge(*client, count);
            let bytes = match self.mode {
                LookupMode::CachedOnly => read_cached(&self.file, first, count as usize)
                    .filter(|bytes| bytes.len() as u64 == count)
                    .ok_or(Errno::AGAIN)?,
                LookupMode::MayBlock => {
                    read_exactly(&self.file, first, count as usize).map_err(|_| Errno::IO)?
                }
            };
            return Ok(Content::whole(charge.attach(bytes)));
        }
        let shared = self.shared.clone();
        let open_files = &self.served.resources.open_files;
        let pieces = match open_files.try_acquire(shared.client) {
            Some(permit) => Pieces::kept((self.file, permit), shared, first, count),
            None => {
                let file = ReopenedFile {
                    root: self.served.root.clone(),
                    path: self.path,
                    stat: self.stat,
                };
                Pieces::reopened(file, shared, first, count)
            }
        };
        Ok(Content::file(pieces))
    }
}

/// The requested part of a file. Ranges apply to GET only (RFC 9110 §14.2).
fn part(request: &request::Parts, validators: &Validators, length: u64) -> Part {
    let headers = &request.headers;
    let mut ranges = headers.get_all(RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else {
        return Part::Whole;
    };
    match range.to_str() {
        Ok(range) if request.method == Method::GET && range_applies(headers, validators) => {
            Part::of(range, length)
        }
        _ => Part::Whole,
    }
}

fn describe(headers: &mut HeaderMap, validators: &Validators, now: SystemTime) {
    put(headers, ETAG, &validators.etag);
    if let Some(modified) = validators.modified {
        // Never later than the response's own date (RFC 9110 §8.8.2.1).
        let modified = httpdate::fmt_http_date(modified.min(now));
        put(headers, LAST_MODIFIED, &modified);
    }
}

fn content_type(name: &Path) -> String {
    let guess = mime_guess::from_path(name).first_or_octet_stream();
    let text = guess.to_string();
    if text.starts_with("text/") && !text.contains(';') {
        return format!("{text}; charset=utf-8");
    }
    text
}

/// Whether browsers run scripts in content of this type: HTML, and XML of any kind, such as SVG.
fn may_run(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence == "text/html" || essence.ends_with("/xml") || essence.ends_with("+xml")
}

/// A redirect to the same path with a slash, so that relative links on its page work.
fn with_slash(request: &request::Parts) -> Response<Content> {
    let mut target = format!("{}/", request.uri.path());
    if let Some(query) = request.uri.query() {
        target.push('?');
        target.push_str(query);
    }
    let mut response = status(StatusCode::MOVED_PERMANENTLY);
    put(response.headers_mut(), LOCATION, &target);
    response
}

/// A status and its name as the body.
pub(super) fn status(status: StatusCode) -> Response<Content> {
    let text = format!("{status}\n");
    let mut response = Response::new(Content::whole(text));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// The response to a request that the file system or the server's limits reject.
pub(super) fn refuse(error: Errno) -> Response<Content> {
    match error {
        Errno::AGAIN | Errno::MFILE | Errno::NFILE => busy(),
        error => status(status_of(error)),
    }
}

/// The response under overload: the same request may succeed soon.
pub(super) fn busy() -> Response<Content> {
    let mut response = status(StatusCode::SERVICE_UNAVAILABLE);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The status for a failure of the file system; clients learn nothing about files outside the
/// directory.
pub(super) fn status_of(error: Errno) -> StatusCode {
    match error {
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::NAMETOOLONG
        | Errno::XDEV
        | Errno::NXIO => StatusCode::NOT_FOUND,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => StatusCode::FORBIDDEN,
        Errno::NOSPC | Errno::DQUOT => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Sets a field; an invalid value is omitted.
pub(super) fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
