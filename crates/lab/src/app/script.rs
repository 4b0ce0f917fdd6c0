//! Applications written as sequential async functions.
//!
//! The function is polled whenever something happened on its host. Its pending operations are kept
//! in a list, which the script executes with the connection of the poll: no borrow outlives the
//! poll, and nothing runs except by the world's clock.

use core::cell::RefCell;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use clearway_links::Time;

use super::{Application, Conn, Next};
use crate::stack::{ConnectionState, Read, Stream};

/// An async function as an [`Application`].
///
/// # Panics
/// Panics during the world's run if the function returns an error: a script is part of a test,
/// which then fails.
pub struct Script {
    waiting: Rc<RefCell<Waiting>>,
    /// `None` once it has ended.
    function: Option<Pin<Box<Function>>>,
}

type Function = dyn Future<Output = Result<(), String>>;

/// A connection as a [`Script`] sees it. Each call waits until it is done, or fails with the reason
/// why the connection ended.
#[derive(Clone)]
pub struct ScriptConn {
    waiting: Rc<RefCell<Waiting>>,
}

/// An operation that a script waits for.
#[derive(Default)]
struct Waiting {
    now: Time,
    calls: Vec<Call>,
    alarms: BTreeSet<Time>,
}

/// Tries the operation once; returns true when it is complete.
type Call = Box<dyn FnMut(&mut Conn<'_>) -> bool>;

impl Script {
    /// Creates an application that runs `function` on one connection.
    pub fn new<F>(function: impl FnOnce(ScriptConn) -> F) -> Self
    where
        F: Future<Output = Result<(), String>> + 'static,
    {
        let waiting = Rc::<RefCell<Waiting>>::default();
        let conn = ScriptConn {
            waiting: waiting.clone(),
        };
        Self {
            waiting,
            function: Some(Box::pin(function(conn))),
        }
    }

    /// Whether it has ended.
    fn advance(&mut self) -> bool {
        let Some(function) = &mut self.function else {
            return true;
        };
        let mut context = Context::from_waker(Waker::noop());
        match function.as_mut().poll(&mut context) {
            Poll::Ready(Ok(())) => {
                self.function = None;
                true
            }
            Poll::Ready(Err(why)) => {
                let now = self.waiting.borrow().now;
                panic!("the script failed at {now}: {why}")
            }
            Poll::Pending => false,
        }
    }
}

impl Application for Script {
    fn poll(&mut self, conn: &mut Conn<'_>, now: Time) -> Next {
        self.waiting.borrow_mut().begin(now);
        loop {
            if self.advance() {
                return Next::Done;
            }
            let mut waiting = self.waiting.borrow_mut();
            let before = waiting.calls.len();
            waiting.calls.retain_mut(|call| !call(conn));
            if waiting.calls.len() == before {
                let alarm = waiting.alarms.first();
                return alarm.map_or(Next::Wait, |&at| Next::At(at));
            }
        }
    }
}

impl Waiting {
    fn begin(&mut self, now: Time) {
        self.now = now;
        while self.alarms.first().is_some_and(|&at| at <= now) {
            self.alarms.pop_first();
        }
    }
}

impl ScriptConn {
    /// Waits until the handshake is complete. Calling it before other operations is optional.
    ///
    /// # Errors
    /// If the connection ends first.
    pub async fn connected(&self) -> Result<(), String> {
        self.call(|conn| Ok(conn.is_connected().then_some(())))
            .await
    }

    /// Opens a bidirectional stream as soon as the peer allows one.
    ///
    /// # Errors
    /// If the connection ends first.
    pub async fn open(&self) -> Result<Stream, String> {
        self.call(|conn| Ok(conn.open())).await
    }

    /// Waits for the next stream that the peer opens.
    ///
    /// # Errors
    /// If the connection ends first.
    pub async fn accept(&self) -> Result<Stream, String> {
        self.call(|conn| Ok(conn.accept())).await
    }

    /// Writes all of `data`, as fast as the stream accepts it.
    ///
    /// # Errors
    /// If the stream cannot be written to.
    pub async fn write(&self, stream: Stream, data: impl Into<Bytes>) -> Result<(), String> {
        let mut data = data.into();
        self.call(move |conn| {
            conn.write(stream, &mut data)?;
            Ok(data.is_empty().then_some(()))
        })
        .await
    }

    /// Writes all of `data` and ends the stream.
    ///
    /// # Errors
    /// If the stream cannot be written to.
    pub async fn say(&self, stream: Stream, data: impl Into<Bytes>) -> Result<(), String> {
        self.write(stream, data).await?;
        self.call(move |conn| conn.finish(stream).map(Some)).await
    }

    /// Reads what arrives next; `None` at the end of the stream.
    ///
    /// # Errors
    /// If the stream was reset or does not exist.
    pub async fn read(&self, stream: Stream) -> Result<Option<Bytes>, String> {
        self.call(move |conn| match conn.read(stream)? {
            Read::Data(data) => Ok(Some(Some(data))),
            Read::End => Ok(Some(None)),
            Read::Blocked => Ok(None),
        })
        .await
    }

    /// Reads everything up to the end of the stream.
    ///
    /// # Errors
    /// Like [`ScriptConn::read`].
    pub async fn read_all(&self, stream: Stream) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        while let Some(data) = self.read(stream).await? {
            all.extend_from_slice(&data);
        }
        Ok(all)
    }

    /// Sleeps in virtual time.
    pub async fn sleep(&self, span: Duration) {
        let until = self.now() + span;
        self.waiting.borrow_mut().alarms.insert(until);
        poll_fn(|_| match self.now() {
            now if now >= until => Poll::Ready(()),
            _ => Poll::Pending,
        })
        .await;
    }

    /// Closes the connection.
    pub async fn close(&self) {
        let closed = self.call(|conn| {
            conn.close();
            Ok(Some(()))
        });
        // Closing cannot fail.
        let _ = closed.await;
    }

    /// The current virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.waiting.borrow().now
    }

    /// Adds `attempt` to the list and waits until it is complete. If the future is dropped, it is
    /// removed again.
    async fn call<T: 'static>(
        &self,
        mut attempt: impl FnMut(&mut Conn<'_>) -> Result<Option<T>, String> + 'static,
    ) -> Result<T, String> {
        let answer = Rc::new(RefCell::new(None));
        let place = Rc::downgrade(&answer);
        let call = move |conn: &mut Conn<'_>| {
            let Some(place) = place.upgrade() else {
                return true;
            };
            let tried = match (attempt(conn), conn.life()) {
                (Ok(Some(done)), _) => Ok(done),
                (Err(why), _) | (Ok(None), ConnectionState::Closed(why)) => Err(why),
                (Ok(None), ConnectionState::Handshaking | ConnectionState::Connected) => {
                    return false;
                }
            };
            *place.borrow_mut() = Some(tried);
            true
        };
        self.waiting.borrow_mut().calls.push(Box::new(call));
        poll_fn(|_| {
            answer
                .borrow_mut()
                .take()
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("ended", &self.function.is_none())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ScriptConn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptConn")
    }
}
