//! Answers to GET and HEAD.

use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName,
    HeaderValue, LAST_MODIFIED, LOCATION, RANGE,
};
use http::{Method, Response, StatusCode, request};
use rustix::fs::Stat;
use rustix::io::Errno;

use super::conditions::{Verdict, judge, range_applies};
use super::content::Content;
use super::listing;
use super::pieces::{Pieces, read_exactly};
use super::place::Place;
use super::range::Part;
use super::root::{Found, Root};
use super::validators::Validators;

/// Files up to this size are sent in one piece with the header section.
const SMALL: u64 = 64 << 10;

/// What stands for a directory if it is there.
const INDEX: &str = "index.html";

/// Answers a GET or HEAD. Blocks on the file system.
pub(super) fn download(root: &Root, request: &request::Parts) -> Response<Content> {
    let mut response = look_up(root, request).unwrap_or_else(|error| status(status_of(error)));
    if request.method == Method::HEAD {
        let length = http_body::Body::size_hint(response.body()).exact();
        if let Some(length @ 1..) = length {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        *response.body_mut() = Content::nothing();
    }
    response
}

fn look_up(root: &Root, request: &request::Parts) -> Result<Response<Content>, Errno> {
    let place = Place::of(request.uri.path()).ok_or(Errno::NOENT)?;
    match root.find(&place.path)? {
        Found::File(..) if place.slash => Err(Errno::NOENT),
        Found::File(file, stat) => send(request, file, &stat, &place.path),
        Found::Directory(_) if !place.slash => Ok(with_slash(request)),
        Found::Directory(directory) => match root.find(&place.path.join(INDEX)) {
            Ok(Found::File(file, stat)) => send(request, file, &stat, Path::new(INDEX)),
            Ok(Found::Directory(_)) | Err(_) => {
                let page = listing::page(root, &directory, &place.path)?;
                let mut response = Response::new(Content::whole(page));
                let html = HeaderValue::from_static("text/html; charset=utf-8");
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, html);
                let policy = HeaderValue::from_static(listing::POLICY);
                headers.insert(http::header::CONTENT_SECURITY_POLICY, policy);
                Ok(response)
            }
        },
    }
}

/// Sends a file, a part of it, or word that it is what the client has already.
fn send(
    request: &request::Parts,
    file: File,
    stat: &Stat,
    name: &Path,
) -> Result<Response<Content>, Errno> {
    let length = u64::try_from(stat.st_size).map_err(|_| Errno::OVERFLOW)?;
    let now = SystemTime::now();
    let validators = Validators::of(stat, now);
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
    let content = if count <= SMALL {
        let bytes = read_exactly(&file, first, count as usize).map_err(|_| Errno::IO)?;
        Content::whole(bytes)
    } else {
        Content::file(Pieces::new(file, first, count))
    };
    let mut response = Response::new(content);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    put(headers, CONTENT_TYPE, &content_type(name));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    describe(headers, &validators, now);
    if code == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {first}-{}/{length}", first + count - 1);
        put(headers, CONTENT_RANGE, &range);
    }
    if count == 0 {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    Ok(response)
}

/// What is wanted of a file. Ranges are a matter of GET (RFC 9110 §14.2).
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

/// To the same place as a directory, so that links on its page work.
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

/// What a failure of the file system is to a client, who learns nothing of what
/// is outside.
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

/// Sets a field; what cannot stand in one is left out.
pub(super) fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
