//! The server of the lab: carries out what the header of each stream requests.

use clearway_links::Time;

use super::client::{Log, Upload, up_key};
use super::{Application, Conn, Next, pattern};
use crate::stack::{ConnectionState, Read, Stream};

/// The header at the start of each stream.
pub(super) mod header {
    use core::time::Duration;

    use bytes::{BufMut as _, Bytes, BytesMut};

    use crate::app::job::{Job, Pace};

    /// Its encoding: job, bytes up, bytes down, chunk, interval in µs.
    pub(in crate::app) const LEN: usize = 8 + 8 + 8 + 4 + 4;

    /// The request that the header contains.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in crate::app) struct Header {
        pub(in crate::app) index: u64,
        pub(in crate::app) up: u64,
        pub(in crate::app) down: u64,
        pub(in crate::app) pace: Pace,
    }

    pub(in crate::app) fn encode(index: u64, job: &Job) -> Bytes {
        let (chunk, interval) = match job.pace {
            Pace::Greedy => (0, Duration::ZERO),
            Pace::Every { chunk, interval } => (chunk, interval),
        };
        let mut out = BytesMut::with_capacity(LEN);
        out.put_u64(index);
        out.put_u64(job.up);
        out.put_u64(job.down);
        out.put_u32(chunk);
        out.put_u32(u32::try_from(interval.as_micros()).unwrap_or(u32::MAX));
        out.freeze()
    }

    pub(in crate::app) fn decode(bytes: &[u8; LEN]) -> Header {
        let word = |at: usize| {
            bytes[at..at + 8]
                .iter()
                .fold(0, |word, &byte| word << 8 | u64::from(byte))
        };
        let pace = word(24);
        let (chunk, micros) = ((pace >> 32) as u32, pace & u64::from(u32::MAX));
        Header {
            index: word(0),
            up: word(8),
            down: word(16),
            pace: if chunk == 0 {
                Pace::Greedy
            } else {
                Pace::Every {
                    chunk,
                    interval: Duration::from_micros(micros),
                }
            },
        }
    }
}

/// The server of one flow.
#[derive(Debug)]
pub struct Server {
    log: Log,
    streams: Vec<Serving>,
}

#[derive(Debug)]
struct Serving {
    stream: Stream,
    head: Vec<u8>,
    asked: Option<header::Header>,
    answer: Option<Upload>,
    read: u64,
    read_ended: bool,
}

impl Server {
    /// Creates a server that records what it reads into `log`.
    #[must_use]
    pub fn new(log: Log) -> Self {
        Self {
            log,
            streams: Vec::new(),
        }
    }
}

impl Serving {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            head: Vec::new(),
            asked: None,
            answer: None,
            read: 0,
            read_ended: false,
        }
    }

    fn serve(&mut self, conn: &mut Conn<'_>, log: &Log, now: Time) -> Result<(), String> {
        self.read_all(conn, log, now)?;
        if let Some(answer) = &mut self.answer {
            answer.write(conn, self.stream, now)?;
        }
        Ok(())
    }

    fn read_all(&mut self, conn: &mut Conn<'_>, log: &Log, now: Time) -> Result<(), String> {
        while !self.read_ended {
            match conn.read(self.stream)? {
                Read::Data(data) => self.take(&data, log, now),
                Read::Blocked => return Ok(()),
                Read::End => {
                    self.read_ended = true;
                    let whole = self.asked.is_some_and(|asked| asked.up == self.read);
                    if !whole {
                        let message = format!("upload ended early at offset {}", self.read);
                        log.borrow_mut().violations.push(message);
                    }
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, mut data: &[u8], log: &Log, now: Time) {
        if self.asked.is_none() {
            let missing = header::LEN - self.head.len();
            let (head, rest) = data.split_at(missing.min(data.len()));
            self.head.extend_from_slice(head);
            data = rest;
            if let Ok(bytes) = self.head.as_slice().try_into() {
                let asked = header::decode(bytes);
                self.asked = Some(asked);
                // An upload is acknowledged once all of it has arrived.
                if asked.up <= asked.down {
                    self.answer = Some(Upload::answer(asked.index, asked.down, asked.pace, now));
                }
            }
        }
        let Some(asked) = self.asked else { return };
        let mut log = log.borrow_mut();
        if !pattern::matches(up_key(asked.index), self.read, data) {
            let message = format!(
                "upload {}: wrong bytes at offset {}",
                asked.index, self.read
            );
            log.violations.push(message);
        }
        self.read += data.len() as u64;
        log.up += data.len() as u64;
        if self.read == asked.up && self.answer.is_none() {
            let pace = crate::app::job::Pace::Greedy;
            self.answer = Some(Upload::answer(asked.index, asked.down, pace, now));
        }
    }

    fn is_done(&self) -> bool {
        self.read_ended && self.answer.as_ref().is_some_and(Upload::is_finished)
    }
}

impl Application for Server {
    fn poll(&mut self, conn: &mut Conn<'_>, now: Time) -> Next {
        match conn.life() {
            ConnectionState::Handshaking => return Next::Wait,
            ConnectionState::Closed(_) => return Next::Done,
            ConnectionState::Connected => {}
        }
        while let Some(stream) = conn.accept() {
            self.streams.push(Serving::new(stream));
        }
        for serving in &mut self.streams {
            if let Err(error) = serving.serve(conn, &self.log, now) {
                self.log.borrow_mut().failure = Some(format!("server: {error}"));
                return Next::Done;
            }
        }
        self.streams.retain(|serving| !serving.is_done());
        let wakes = self
            .streams
            .iter()
            .filter_map(|serving| serving.answer.as_ref()?.wakes(now));
        match wakes.min() {
            Some(at) => Next::At(at),
            None => Next::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::header;
    use crate::app::job::{Job, Pace, Start, UNBOUNDED};

    #[test]
    fn job_headers_round_trip() {
        let pace = Pace::Every {
            chunk: 511,
            interval: Duration::from_micros(800),
        };
        for (down, pace) in [(UNBOUNDED, Pace::Greedy), (7, pace)] {
            let job = Job {
                start: Start::At(Duration::ZERO),
                up: 9,
                down,
                pace,
            };
            let bytes = header::encode(5, &job);
            let read = header::decode(bytes[..].try_into().unwrap());
            assert_eq!((read.index, read.up, read.down), (5, 9, down));
            assert_eq!(read.pace, pace);
        }
    }
}
