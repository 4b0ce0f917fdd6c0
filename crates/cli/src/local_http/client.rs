//! Requests to the observation address of a running endpoint.

use core::time::Duration;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};

/// How long the endpoint may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of a response, in bytes: a page is smaller.
const MAX_BODY: u64 = 32 << 20;
/// Maximum size of a response's head, in bytes.
const MAX_HEAD: u64 = 16 << 10;

/// The observation address of a running endpoint.
#[derive(Clone, Debug)]
pub(crate) struct RemoteEndpoint {
    /// `host:port`.
    authority: String,
    token: Option<String>,
}

impl RemoteEndpoint {
    /// The endpoint of this URL; `None` if it is not a URL.
    ///
    /// # Errors
    /// If the URL cannot be used.
    pub(crate) fn parse(url: &str) -> Option<Result<Self, String>> {
        if url.starts_with("https://") {
            let message = format!("invalid URL {url:?}: expected http://, found https://");
            return Some(Err(message));
        }
        let rest = url.strip_prefix("http://")?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let port = authority.rsplit_once(':').map(|(_, port)| port);
        let valid = port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        let host_is_plain = authority
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
        if !valid || !host_is_plain {
            let message = format!("invalid URL {url:?}: expected http://HOST:PORT/");
            return Some(Err(message));
        }
        Some(Ok(Self {
            authority: authority.to_owned(),
            token: None,
        }))
    }

    /// Identifies with this token.
    pub(crate) fn token(mut self, token: String) -> Self {
        self.token = Some(token);
        self
    }

    /// Fetches a path.
    ///
    /// # Errors
    /// If the endpoint does not answer, or with another status than 200: then with the endpoint's
    /// own words.
    pub(crate) fn get(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut input = BufReader::new(self.connect()?);
        let mut out = input.get_ref();
        let authority = &self.authority;
        write!(out, "GET {path} HTTP/1.1\r\nHost: {authority}\r\n")?;
        if let Some(token) = &self.token {
            write!(out, "Authorization: Bearer {token}\r\n")?;
        }
        out.write_all(b"Connection: close\r\n\r\n")?;
        let status = read_status(&mut input)?;
        let mut body = Vec::new();
        input.take(MAX_BODY + 1).read_to_end(&mut body)?;
        if body.len() as u64 > MAX_BODY {
            return Err(io::Error::other("the answer is larger than 32 MiB"));
        }
        if status == 200 {
            return Ok(body);
        }
        let text = String::from_utf8_lossy(&body);
        let text = text.lines().next().unwrap_or_default();
        Err(io::Error::other(format!("status {status}: {text}")))
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in self.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Reads the head of a response, and returns its status.
fn read_status(input: &mut BufReader<TcpStream>) -> io::Result<u16> {
    let broken = || io::Error::other("the answer is not HTTP/1.1");
    let mut head = input.take(MAX_HEAD);
    let mut first = String::new();
    head.read_line(&mut first)?;
    let status = first
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .ok_or_else(broken)?;
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Err(broken());
        }
        if line.trim_end().is_empty() {
            return Ok(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_with_host_and_port_are_accepted() {
        assert!(RemoteEndpoint::parse("traces/a.sqlog").is_none());
        for url in [
            "http://127.0.0.1:9/",
            "http://[::1]:9",
            "http://host.example:80/",
        ] {
            assert!(RemoteEndpoint::parse(url).unwrap().is_ok(), "{url}");
        }
        for url in [
            "https://127.0.0.1:9/",
            "http://127.0.0.1/",
            "http://127.0.0.1:0/",
            "http://127.0.0.1:9/path",
            "http://user@host:9/",
            "http://host\r\nx:9/",
        ] {
            assert!(RemoteEndpoint::parse(url).unwrap().is_err(), "{url}");
        }
    }
}
