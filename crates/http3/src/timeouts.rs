//! How long a server waits for a client.

use core::fmt;
use core::time::Duration;

use crate::progress::ProgressLimits;

/// Deadlines that a server sets its clients; a client has none. `None` means no deadline.
///
/// There is no deadline for the application's handler, nor for a silent tunnel (CONNECT). Progress
/// is sampled, so a deadline may act up to an eighth late, but never early. A request that misses
/// one is reset, and counted like one that its client abandoned
/// ([`Limits::abandoned_burst`](crate::Limits)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The time from the first byte of a request to the end of its header section; and, for the
    /// request of a WebTransport session, which waits for the client's SETTINGS, from there until
    /// they arrive. Then the stream is reset with `H3_REQUEST_REJECTED`, because the application has
    /// not seen the request.
    ///
    /// 60 s, like `client_header_timeout` of nginx.
    pub request_headers: Option<Duration>,
    /// The time without a byte of a request's body while the application waits for one. Then
    /// reading fails and the stream is reset with `H3_REQUEST_INCOMPLETE`.
    ///
    /// 60 s, like `client_body_timeout` of nginx.
    pub request_body: Option<Duration>,
    /// The time without an acknowledged byte of a response while the client holds it up, because it
    /// gives no flow control credit or acknowledges nothing. A response that waits for others of
    /// the same connection is not held up by the client as long as those make progress. Then the
    /// stream is reset with `H3_REQUEST_CANCELLED` and its body dropped.
    ///
    /// 60 s, like `send_timeout` of nginx.
    pub response: Option<Duration>,
    /// The minimum rate at which a client must send a body or accept a response while we wait for
    /// it, in bytes per second, on average over five times `request_body` or `response`. Without
    /// it, a byte now and then would keep a request open for ever. Zero means no minimum.
    ///
    /// 240, like `minBytesPerSecond` of IIS and the minimum data rates of Kestrel.
    pub min_rate: u32,
    /// The time without a request in progress, however often the client sends packets that keep the
    /// connection alive. Then the server sends GOAWAY and, a second later, closes the connection
    /// with `H3_NO_ERROR`.
    ///
    /// 75 s, like `keepalive_timeout` of nginx.
    pub idle: Option<Duration>,
    /// The time from the second call of [`Connection::shutdown`](crate::Connection::shutdown) until
    /// the connection is closed, whatever is still in progress.
    ///
    /// `None`, like `worker_shutdown_timeout` of nginx: whoever shuts a server down decides how
    /// long it may take.
    pub drain: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minute = Some(Duration::from_secs(60));
        Self {
            request_headers: minute,
            request_body: minute,
            response: minute,
            min_rate: 240,
            idle: Some(Duration::from_secs(75)),
            drain: None,
        }
    }
}

/// How often progress is sampled within the shortest deadline.
const SAMPLES: u32 = 16;

impl Timeouts {
    /// Returns timeouts without any deadline.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            request_headers: None,
            request_body: None,
            response: None,
            min_rate: 0,
            idle: None,
            drain: None,
        }
    }

    /// Returns the time between two samples.
    pub(crate) fn sample_interval(&self) -> Duration {
        let all = [
            self.request_headers,
            self.request_body,
            self.response,
            self.idle,
        ];
        let shortest = all.into_iter().flatten().min().unwrap_or(Duration::MAX);
        let part = shortest.checked_div(SAMPLES).unwrap_or(shortest);
        part.clamp(Duration::from_millis(1), Duration::from_secs(5))
    }

    pub(crate) fn request_body_limits(&self) -> Option<ProgressLimits> {
        self.progress_limits(self.request_body)
    }

    pub(crate) fn response_limits(&self) -> Option<ProgressLimits> {
        self.progress_limits(self.response)
    }

    fn progress_limits(&self, timeout: Option<Duration>) -> Option<ProgressLimits> {
        Some(ProgressLimits {
            timeout: timeout?,
            min_rate: self.min_rate,
        })
    }
}

/// A deadline of [`Timeouts`] that a client missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The header section was not complete in time, or the SETTINGS that the request of a session
    /// waits for ([`Timeouts::request_headers`]).
    RequestHeaders,
    /// No more of the body arrived in time ([`Timeouts::request_body`]).
    RequestBody,
    /// No more of the response was accepted in time ([`Timeouts::response`]).
    Response,
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequestHeaders => "timed out while receiving the request headers",
            Self::RequestBody => "timed out while receiving the request body",
            Self::Response => "timed out while sending the response",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_interval_follows_the_shortest_deadline() {
        let default = Timeouts::default();
        assert_eq!(default.sample_interval(), Duration::from_millis(3_750));
        let short = Timeouts {
            response: Some(Duration::from_millis(160)),
            ..default
        };
        assert_eq!(short.sample_interval(), Duration::from_millis(10));
        assert_eq!(Timeouts::none().sample_interval(), Duration::from_secs(5));
    }
}
