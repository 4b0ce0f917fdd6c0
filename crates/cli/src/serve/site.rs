//! The service: one response for each request.

use core::convert::Infallible;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::time::SystemTime;

use clearway::Connection;
use clearway::http::connect_udp::UdpProxy;
use clearway::http::webtransport::{AllowedOrigins, SessionRequest};
use clearway::http::{ArrivedEarly, Incoming};
use http::header::{ALLOW, DATE, HeaderValue, TE, TRAILER, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode, request};
use tower_service::Service;

use super::content::Content;
use super::download::{busy, download, put, status};
use super::echo;
use super::limits::{Client, Resources};
use super::listing::Snapshots;
use super::log::AccessLogEntry;
use super::pieces::Shared;
use super::root::Root;
use super::sender_report;
use super::upload::upload;

const METHOD_NOT_ALLOWED: StatusCode = StatusCode::METHOD_NOT_ALLOWED;

/// The answer to an upload that the server was not started for.
const READ_ONLY: &str =
    "This server does not accept uploads. To accept them, start it with --writable.\n";

/// A directory as a tower service.
#[derive(Clone, Debug)]
pub(super) struct Site(Arc<SiteState>);

/// The directory that is served, and its limits.
#[derive(Debug)]
pub(super) struct SiteState {
    pub(super) root: Arc<Root>,
    pub(super) resources: Resources,
    pub(super) snapshots: Snapshots,
    pub(super) writable: bool,
    /// Whether names that begin with a dot are served and listed.
    pub(super) hidden: bool,
    /// Maximum size of an upload, in bytes.
    pub(super) max_upload: u64,
    /// How requests are logged.
    pub(super) json: bool,
    /// The proxy for UDP, if it is one.
    pub(super) proxy: Option<UdpProxy>,
    /// Whether WebTransport sessions are answered with an echo.
    pub(super) webtransport: bool,
}

impl SiteState {
    /// The resources that a download of this client uses.
    pub(super) fn shared(&self, client: Client) -> Shared {
        Shared {
            client,
            disk: self.resources.disk.clone(),
            buffers: self.resources.buffers.clone(),
        }
    }
}

impl Site {
    pub(super) fn new(served: SiteState) -> Self {
        Self(Arc::new(served))
    }

    async fn answer(self, request: Request<Incoming>) -> Response<Content> {
        let Self(served) = &self;
        let connection = request.extensions().get::<Connection>().cloned();
        let remote = connection.as_ref().map(Connection::remote_address);
        let client = (connection.as_ref().map_or(0, Connection::id), remote);
        let mut entry = AccessLogEntry::of(&request, remote, served.json);
        if let Some(proxy) = &served.proxy
            && UdpProxy::is_for(&request)
        {
            // Tunnels have a limit of their own, and their response is not used.
            let response = proxy.serve(request).await;
            return self.conclude(response.map(|()| Content::nothing()), entry);
        }
        if served.webtransport
            && let Ok(session) = SessionRequest::of(&request, &AllowedOrigins::Any)
        {
            let code = echo::serve(session).await;
            return self.conclude(status(code), entry);
        }
        let Some(admitted) = served.resources.admission.admit(client) else {
            return self.conclude(busy(), entry);
        };
        let (parts, body) = request.into_parts();
        let report_on = connection.filter(|_| wants_trailers(&parts));
        let mut response = match parts.method {
            Method::GET | Method::HEAD => {
                // Discarded. A malformed body is noticed now, which ends the request, and not after
                // all work for it is done.
                drop(body);
                download(served, parts, client).await
            }
            // An attacker must not be able to replay it (RFC 8470 §3).
            Method::PUT if parts.extensions.get::<ArrivedEarly>().is_some() => {
                status(StatusCode::TOO_EARLY)
            }
            Method::PUT if served.writable => {
                upload(served, &parts, body, client, &mut entry).await
            }
            Method::PUT => self.allow(METHOD_NOT_ALLOWED, READ_ONLY),
            Method::OPTIONS => self.allow(StatusCode::NO_CONTENT, ""),
            _ => self.allow(METHOD_NOT_ALLOWED, ""),
        };
        if report_on.is_some() && !response.body().is_nothing() {
            let headers = response.headers_mut();
            headers.insert(TRAILER, HeaderValue::from_name(sender_report::NAME));
            response.body_mut().report_on(report_on);
        }
        response.body_mut().admitted(admitted);
        self.conclude(response, entry)
    }

    /// Adds the headers that all responses have.
    fn conclude(
        &self,
        mut response: Response<Content>,
        mut entry: AccessLogEntry,
    ) -> Response<Content> {
        let headers = response.headers_mut();
        put(headers, DATE, &httpdate::fmt_http_date(SystemTime::now()));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        entry.answered(response.status());
        response.body_mut().log(entry);
        response
    }

    /// A response with a status, more about it for people, and the allowed methods.
    fn allow(&self, code: StatusCode, more: &str) -> Response<Content> {
        let mut response = status(code);
        if !more.is_empty() {
            *response.body_mut() = Content::whole(format!("{code}\n{more}"));
        }
        if code == StatusCode::NO_CONTENT {
            response = Response::new(Content::nothing());
            *response.status_mut() = code;
        }
        let methods = if self.0.writable {
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

/// Whether the client accepts trailers (RFC 9110 §10.1.4).
fn wants_trailers(request: &request::Parts) -> bool {
    let values = request.headers.get_all(TE);
    values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}
