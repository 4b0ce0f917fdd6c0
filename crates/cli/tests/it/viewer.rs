//! A running `clearway view`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A `clearway view` that ends with the test.
pub(crate) struct Viewer {
    child: Child,
    /// `ADDR:PORT` of its page.
    pub(crate) address: String,
}

impl Viewer {
    /// Starts `clearway view` with these arguments, and reads where its page is.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["view", "--no-open"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let address = line
            .trim()
            .strip_prefix("http://")
            .and_then(|rest| rest.strip_suffix('/'));
        let address = address
            .unwrap_or_else(|| panic!("no URL: {line:?}"))
            .to_owned();
        Self { child, address }
    }

    /// Sends a request as it stands; returns the response.
    pub(crate) fn send(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // It may answer before it has read everything.
        let _ = stream.write_all(request);
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        String::from_utf8(response).unwrap()
    }

    pub(crate) fn get(&self, path: &str, host: &str, more: &str) -> String {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n").as_bytes())
    }

    /// Posts a file as if it was dropped on the page.
    pub(crate) fn examine(&self, name: &str, content: &[u8]) -> String {
        let length = content.len();
        let head = format!(
            "POST /examine?name={name} HTTP/1.1\r\nHost: {}\r\nContent-Length: {length}\r\n\r\n",
            self.address
        );
        self.send(&[head.as_bytes(), content].concat())
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
