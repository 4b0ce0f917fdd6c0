//! Interim responses (1xx, RFC 9110 §15.2), sent and received.

use std::fmt;
use std::sync::Arc;

use clearway_http3::SendError;
use http::{HeaderMap, Response, header};

use super::error::Error;
use super::message;
use super::request_stream::WeakRequestStream;

/// The interim responses (1xx, such as 103 Early Hints) that came before a response: an
/// extension of the response, if there were any.
#[derive(Clone, Debug)]
pub struct Interim(pub(super) Arc<[Response<()>]>);

impl Interim {
    /// Returns them in the order in which they arrived.
    #[must_use]
    pub fn responses(&self) -> &[Response<()>] {
        &self.0
    }
}

/// A callback for interim responses as they arrive: an extension of a client's request.
///
/// ```
/// use clearway::http::OnInterim;
///
/// let mut request = http::Request::get("https://localhost/").body(())?;
/// request.extensions_mut().insert(OnInterim::new(|interim| {
///     println!("{}: {:?}", interim.status(), interim.headers().get("link"));
/// }));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone)]
pub struct OnInterim(Arc<Hook>);

type Hook = dyn Fn(&Response<()>) + Send + Sync;

impl OnInterim {
    /// Calls `hook` with each interim response, in order, in the task that awaits the final
    /// response.
    #[must_use]
    pub fn new(hook: impl Fn(&Response<()>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    pub(super) fn call(&self, interim: &Response<()>) {
        (self.0)(interim);
    }
}

impl fmt::Debug for OnInterim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnInterim")
    }
}

/// Sends interim responses, such as 103 Early Hints: an extension of every request that a
/// server passes to its service. 100 (Continue) is sent automatically when a client waits for
/// it and the body is first read.
///
/// ```
/// use axum::Extension;
/// use clearway::http::InterimSender;
///
/// async fn page(Extension(interim): Extension<InterimSender>) -> &'static str {
///     let hints = http::Response::builder()
///         .status(103)
///         .header("link", "</style.css>; rel=preload; as=style");
///     // The page is served without the hint if it cannot be sent.
///     let _ = interim.send(hints.body(()).expect("a valid response"));
///     "… a page that takes a while to generate"
/// }
/// # let _: axum::Router = axum::Router::new().route("/", axum::routing::get(page));
/// ```
#[derive(Clone, Debug)]
pub struct InterimSender(WeakRequestStream);

impl InterimSender {
    pub(super) fn new(stream: WeakRequestStream) -> Self {
        Self(stream)
    }

    /// Sends an interim response now, ahead of the final one.
    ///
    /// # Errors
    /// [`Error::Unsendable`] if its status is not 1xx or is 101 (which HTTP/3 does not have),
    /// if the final response has begun or the exchange is over, or if the client's flow
    /// control has no room now.
    pub fn send(&self, response: Response<()>) -> Result<(), Error> {
        let (parts, ()) = response.into_parts();
        match self.0.upgrade() {
            Some(stream) => stream.inform(&message::response_head(parts)),
            None => Err(Error::Unsendable(SendError::Unknown)),
        }
    }
}

/// Whether the sender of these fields waits for 100 (Continue) before it sends the
/// body (RFC 9110 §10.1.1).
pub(super) fn expects_continue(headers: &HeaderMap) -> bool {
    let expect = headers.get(header::EXPECT).map(http::HeaderValue::as_bytes);
    expect.is_some_and(|expect| expect.eq_ignore_ascii_case(b"100-continue"))
}
