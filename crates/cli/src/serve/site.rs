//! The service: one answer for each request.

use core::convert::Infallible;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::time::SystemTime;

use clearway::Connection;
use clearway::http::{ArrivedEarly, Incoming};
use http::header::{ALLOW, DATE, HeaderValue, TE, TRAILER, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode, request};
use tokio::task::spawn_blocking;
use tower_service::Service;

use super::content::Content;
use super::download::{download, put, status};
use super::log::Entry;
use super::root::Root;
use super::sender_report;
use super::upload::upload;

/// A directory as a tower service.
#[derive(Clone, Debug)]
pub(super) struct Site {
    root: Arc<Root>,
    writable: bool,
    json: bool,
}

impl Site {
    /// `json` is how requests are logged.
    pub(super) fn new(root: Root, writable: bool, json: bool) -> Self {
        Self {
            root: Arc::new(root),
            writable,
            json,
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Response<Content> {
        let mut entry = Entry::of(&request, self.json);
        let (parts, body) = request.into_parts();
        let report_on = wants_trailers(&parts)
            .then(|| parts.extensions.get::<Connection>().cloned())
            .flatten();
        let mut response = match parts.method {
            Method::GET | Method::HEAD => {
                let root = self.root.clone();
                spawn_blocking(move || download(&root, &parts))
                    .await
                    .unwrap_or_else(|_| status(StatusCode::INTERNAL_SERVER_ERROR))
            }
            // It must not happen again at an attacker's will (RFC 8470 §3).
            Method::PUT if parts.extensions.get::<ArrivedEarly>().is_some() => {
                status(StatusCode::TOO_EARLY)
            }
            Method::PUT if self.writable => upload(&self.root, &parts, body, &mut entry).await,
            Method::OPTIONS => self.allow(StatusCode::NO_CONTENT),
            _ => self.allow(StatusCode::METHOD_NOT_ALLOWED),
        };
        let headers = response.headers_mut();
        put(headers, DATE, &httpdate::fmt_http_date(SystemTime::now()));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if report_on.is_some() && !response.body().is_nothing() {
            let headers = response.headers_mut();
            headers.insert(TRAILER, HeaderValue::from_name(sender_report::NAME));
            response.body_mut().report_on(report_on);
        }
        entry.answered(response.status());
        response.body_mut().log(entry);
        response
    }

    /// A status and what methods there are.
    fn allow(&self, code: StatusCode) -> Response<Content> {
        let mut response = status(code);
        if code == StatusCode::NO_CONTENT {
            response = Response::new(Content::nothing());
            *response.status_mut() = code;
        }
        let methods = if self.writable {
            "GET, HEAD, OPTIONS, PUT"
        } else {
            "GET, HEAD, OPTIONS"
        };
        let methods = HeaderValue::from_static(methods);
        response.headers_mut().insert(ALLOW, methods);
        response
    }
}

impl Service<Request<Incoming>> for Site {
    type Response = Response<Content>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Content>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let site = self.clone();
        Box::pin(async move { Ok(site.answer(request).await) })
    }
}

/// Whether the client keeps trailers (RFC 9110 §10.1.4).
fn wants_trailers(request: &request::Parts) -> bool {
    let values = request.headers.get_all(TE);
    values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}
