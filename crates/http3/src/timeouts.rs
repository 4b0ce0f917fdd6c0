//! How long a client may keep a server waiting.

use core::fmt;
use core::time::Duration;

use crate::progress::Patience;

/// Deadlines of a server; a client has none. `None` waits for ever.
///
/// What a handler takes to answer is the application's business and not limited, nor
/// is the silence of a tunnel (CONNECT). Progress is sampled, so a deadline strikes up
/// to an eighth late, never early. A request that misses one is reset and counted like
/// one that its client abandoned ([`Limits::abandoned_burst`](crate::Limits)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request to the end of its header section. Then the
    /// stream is reset with `H3_REQUEST_REJECTED`: nobody has seen the request.
    ///
    /// 60 s, as `client_header_timeout` of nginx.
    pub request_headers: Option<Duration>,
    /// Without a byte of a request's body while the application waits for one. Then
    /// reading fails and the stream is reset with `H3_REQUEST_INCOMPLETE`.
    ///
    /// 60 s, as `client_body_timeout` of nginx.
    pub request_body: Option<Duration>,
    /// Without an acknowledged byte of a response while the client holds it up: it
    /// gives no credit, or acknowledges nothing. A response that waits for others of
    /// the same connection is not held up by the client as long as those get on. Then
    /// the stream is reset with `H3_REQUEST_CANCELLED` and its body dropped.
    ///
    /// 60 s, as `send_timeout` of nginx.
    pub response: Option<Duration>,
    /// Bytes a second that a client has to send of a body, or to take of a response,
    /// while it is waited for; the average over five times `request_body` or
    /// `response`. A byte now and then would hold a request for ever otherwise. Zero
    /// asks for none.
    ///
    /// 240, as `minBytesPerSecond` of IIS and the minimum rates of Kestrel.
    pub min_rate: u32,
    /// Without a request under way, however often the client shows that it is there.
    /// Then the connection says GOAWAY and, a second later, closes with `H3_NO_ERROR`.
    ///
    /// 75 s, as `keepalive_timeout` of nginx.
    pub idle: Option<Duration>,
    /// From the second call of [`Connection::shutdown`](crate::Connection::shutdown)
    /// to the end of the connection, whatever is left then.
    ///
    /// `None`, as `worker_shutdown_timeout` of nginx: who shuts a server down says how
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

/// Samples in the shortest of the deadlines.
const SAMPLES: u32 = 16;

impl Timeouts {
    /// No deadline at all.
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

    /// What lies between two samples.
    pub(crate) fn interval(&self) -> Duration {
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

    pub(crate) fn of_body(&self) -> Option<Patience> {
        self.patience(self.request_body)
    }

    pub(crate) fn of_response(&self) -> Option<Patience> {
        self.patience(self.response)
    }

    fn patience(&self, silence: Option<Duration>) -> Option<Patience> {
        Some(Patience {
            silence: silence?,
            min_rate: self.min_rate,
        })
    }
}

/// What a client did not do in time ([`Timeouts`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Send the rest of a header section ([`Timeouts::request_headers`]).
    RequestHeaders,
    /// Send more of a body that is being read ([`Timeouts::request_body`]).
    RequestBody,
    /// Take more of a response ([`Timeouts::response`]).
    Response,
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequestHeaders => "the client took too long to send a request's headers",
            Self::RequestBody => "the client sent nothing, or too little, of the request's body",
            Self::Response => "the client took nothing, or too little, of the response",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_follow_the_shortest_deadline() {
        let default = Timeouts::default();
        assert_eq!(default.interval(), Duration::from_millis(3_750));
        let short = Timeouts {
            response: Some(Duration::from_millis(160)),
            ..default
        };
        assert_eq!(short.interval(), Duration::from_millis(10));
        assert_eq!(Timeouts::none().interval(), Duration::from_secs(5));
    }
}
