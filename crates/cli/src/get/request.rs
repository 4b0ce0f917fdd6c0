//! Requests.

use std::path::Path;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, TE, USER_AGENT};
use http::{Method, Request, Uri};

use super::Args;
use super::existing_file::ExistingFile;
use super::upload::{Upload, UploadReadStatus};
use crate::failure::{Failure, Kind};

const AGENT: &str = concat!("clearway/", env!("CARGO_PKG_VERSION"));

/// The content type of HTML forms, which `-d` sends.
const FORM: &str = "application/x-www-form-urlencoded";

/// The method that the options select.
pub(super) fn method(args: &Args) -> Method {
    match &args.method {
        Some(method) => method.clone(),
        None if args.head => Method::HEAD,
        None if args.data.is_some() => Method::POST,
        None if args.upload.is_some() => Method::PUT,
        None => Method::GET,
    }
}

/// The request for a URL, of which data may exist in `held`.
///
/// # Errors
/// If a file to upload cannot be read.
pub(super) fn request(
    args: &Args,
    url: &Uri,
    held: &ExistingFile,
    reading: &UploadReadStatus,
) -> Result<Request<Upload>, Failure> {
    let body = match (&args.data, &args.upload) {
        (Some(data), _) => match data.strip_prefix('@') {
            Some(file) => Upload::file(Path::new(file), reading.clone())?,
            None => Upload::data(Bytes::copy_from_slice(data.as_bytes())),
        },
        (None, Some(file)) => Upload::file(file, reading.clone())?,
        (None, None) => Upload::nothing(),
    };
    let length = http_body::Body::size_hint(&body).exact();
    let mut request = Request::new(body);
    *request.method_mut() = method(args);
    *request.uri_mut() = url.clone();
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    if args.data.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(FORM));
    }
    if (args.data.is_some() || args.upload.is_some()) && length == Some(0) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    for (name, _) in &args.header {
        headers.remove(name);
    }
    for (name, value) in &args.header {
        headers.append(name, value.clone());
    }
    held.ask(headers)
        .map_err(|error| Failure::caused(Kind::Other, "request", &error))?;
    Ok(request)
}
