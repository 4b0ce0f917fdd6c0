//! Requests and responses.

use std::io::{self, BufRead, Read, Write};

/// Maximum size of a request's head, in bytes.
const MAX_HEAD: u64 = 16 << 10;

/// The head of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    /// The path, with its query.
    pub(crate) target: String,
    pub(crate) host: Option<String>,
    pub(crate) origin: Option<String>,
    pub(crate) authorization: Option<String>,
    pub(crate) content_length: Option<u64>,
}

/// A response, which closes the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

impl RequestHead {
    /// The path without its query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

impl Response {
    /// A line of text.
    pub(crate) fn text(status: &'static str, text: impl Into<String>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: text.into().into_bytes(),
        }
    }

    /// JSON.
    pub(crate) fn json(body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: "200 OK",
            content_type: "application/json",
            body: body.into(),
        }
    }

    pub(crate) fn write(&self, mut out: impl Write) -> io::Result<()> {
        write!(
            out,
            "HTTP/1.1 {}\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\
             cache-control: no-store\r\nx-content-type-options: nosniff\r\n\
             referrer-policy: no-referrer\r\n\
             content-security-policy: default-src 'none'; script-src 'unsafe-inline'; \
             style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        )?;
        out.write_all(&self.body)?;
        out.flush()
    }
}

/// Reads the head of a request; what follows it is left in `input`.
///
/// # Errors
/// What is wrong with it, as the response to send.
pub(crate) fn read_head(input: &mut impl BufRead) -> Result<RequestHead, Response> {
    let bad = |what: &str| Response::text("400 Bad Request", format!("invalid request: {what}\n"));
    let mut limited = input.take(MAX_HEAD);
    let mut line = || {
        let mut line = String::new();
        match limited.read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => Ok(line.trim_end().to_owned()),
            Ok(_) | Err(_) => Err(bad("the head is too long, incomplete or not UTF-8")),
        }
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1")) = (words.next(), words.next(), words.next())
    else {
        return Err(bad("expected METHOD PATH HTTP/1.1"));
    };
    let mut head = RequestHead {
        method: method.to_owned(),
        target: target.to_owned(),
        ..RequestHead::default()
    };
    loop {
        let line = line()?;
        if line.is_empty() {
            return Ok(head);
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| bad("a field without a colon"))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "host" if head.host.is_some() => return Err(bad("more than one Host")),
            "host" => head.host = Some(value.to_owned()),
            "origin" => head.origin = Some(value.to_owned()),
            "authorization" if head.authorization.is_some() => {
                return Err(bad("more than one Authorization"));
            }
            "authorization" => head.authorization = Some(value.to_owned()),
            "content-length" => {
                let length = value
                    .parse()
                    .map_err(|_| bad("an invalid Content-Length"))?;
                head.content_length = Some(length);
            }
            "transfer-encoding" => return Err(bad("Transfer-Encoding is not supported")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RequestHead, Response> {
        read_head(&mut text.as_bytes())
    }

    #[test]
    fn head_is_read_up_to_the_body() {
        let mut input =
            &b"POST /examine?name=a HTTP/1.1\r\nHost: localhost:1\r\nCONTENT-LENGTH: 4\r\n\r\nbody"
                [..];
        let head = read_head(&mut input).unwrap();
        assert_eq!(
            (head.method.as_str(), head.target.as_str()),
            ("POST", "/examine?name=a")
        );
        assert_eq!(head.host.as_deref(), Some("localhost:1"));
        assert_eq!(head.content_length, Some(4));
        assert_eq!(input, b"body");
    }

    #[test]
    fn invalid_heads_are_rejected() {
        let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(20 << 10));
        for text in [
            "",
            "GET /",
            "GET / HTTP/1.0\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nauthorization: a\r\nauthorization: b\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
            &long,
        ] {
            let status = read(text).map_err(|response| response.status);
            assert_eq!(status, Err("400 Bad Request"), "{text:.60}");
        }
    }
}
