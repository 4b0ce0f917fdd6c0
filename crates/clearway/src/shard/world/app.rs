//! The application of one connection: its handles and its waiting tasks.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::stream::{RecvStream, SendStream};
use crate::{Connection, ReadError};

/// Whether a task was woken.
pub(super) struct Flag(AtomicBool);

impl Flag {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(false)))
    }

    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A task that waits.
struct WaitingTask {
    name: &'static str,
    task: Task,
    flag: Arc<Flag>,
}

/// What tasks store when they are done.
#[derive(Default)]
struct Done {
    streams: Option<(SendStream, RecvStream)>,
    out: Option<SendStream>,
    /// How many bytes were read, and how often a call returned why the connection ended.
    read: usize,
    reasons: usize,
}

pub(super) struct App {
    pub(super) connection: Option<Connection>,
    done: Rc<RefCell<Done>>,
    tasks: Vec<WaitingTask>,
}

impl App {
    /// Begins to wait for the end of the connection and for its first stream.
    pub(super) fn new(connection: Connection) -> Self {
        let mut app = Self {
            connection: Some(connection.clone()),
            done: Rc::default(),
            tasks: Vec::new(),
        };
        let (closed, done) = (connection.clone(), app.done.clone());
        app.begin("waiting for the end", async move {
            closed.closed().await;
            done.borrow_mut().reasons += 1;
        });
        let done = app.done.clone();
        app.begin("accepting a stream", async move {
            match connection.accept_bi().await {
                Ok(streams) => done.borrow_mut().streams = Some(streams),
                Err(_) => done.borrow_mut().reasons += 1,
            }
        });
        app
    }

    fn begin(&mut self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        let flag = Flag::new();
        // The first poll needs no wakeup.
        flag.0.store(true, Ordering::Release);
        self.tasks.push(WaitingTask {
            name,
            task: Box::pin(task),
            flag,
        });
    }

    fn is_doing(&self, name: &str) -> bool {
        self.tasks.iter().any(|waiting| waiting.name == name)
    }

    /// Runs the tasks that were woken. Returns whether there were any.
    ///
    /// # Errors
    /// If a task that was not woken could have gone on.
    pub(super) fn poll(&mut self) -> Result<bool, String> {
        let mut progress = false;
        let mut lost = None;
        self.tasks.retain_mut(|waiting| {
            let woken = waiting.flag.take();
            progress |= woken;
            let waker = Waker::from(waiting.flag.clone());
            let mut context = Context::from_waker(&waker);
            let ready = waiting.task.as_mut().poll(&mut context) == Poll::Ready(());
            if ready && !woken {
                lost = Some(format!("nobody woke a task: {}", waiting.name));
            }
            !ready
        });
        lost.map_or(Ok(progress), Err)
    }

    /// Writes more than the first flight holds, on a new stream.
    pub(super) fn write(&mut self) {
        let Some(connection) = self.connection.clone() else {
            return;
        };
        if self.is_doing("writing") {
            return;
        }
        let done = self.done.clone();
        self.begin("writing", async move {
            let out = done.borrow_mut().out.take();
            let out = match out {
                Some(out) => Ok(out),
                None => connection.open_uni().await,
            };
            match out {
                Ok(mut out) => {
                    let written = out.write_all(&[7; 20_000]).await;
                    let mut done = done.borrow_mut();
                    done.reasons += usize::from(written.is_err());
                    done.out = Some(out);
                }
                Err(_) => done.borrow_mut().reasons += 1,
            }
        });
    }

    /// Reads from the stream that its client opened, once it has.
    pub(super) fn read(&mut self) {
        let Some((send, mut recv)) = self.done.borrow_mut().streams.take() else {
            return;
        };
        let done = self.done.clone();
        self.begin("reading", async move {
            let read = recv.read(&mut [0; 100]).await;
            let mut done = done.borrow_mut();
            match read {
                Ok(len) => done.read += len.unwrap_or(0),
                Err(ReadError::ConnectionLost(_)) => done.reasons += 1,
                Err(_) => {}
            }
            done.streams = Some((send, recv));
        });
    }

    /// Finishes the stream that was written, unless it is being written.
    pub(super) fn finish(&mut self) {
        if let Some(out) = &mut self.done.borrow_mut().out {
            // This fails if it was finished before, or the connection has ended.
            let _ = out.finish();
        }
    }

    pub(super) fn drop_all(&mut self) {
        self.tasks.clear();
        *self.done.borrow_mut() = Done::default();
        self.connection = None;
    }

    /// Checks that after the connection's end every call returns the reason, and none waits.
    ///
    /// # Errors
    /// Which call does not.
    pub(super) fn check_end(&self) -> Result<(), String> {
        let Some(connection) = &self.connection else {
            return Ok(());
        };
        let Some(reason) = connection.close_reason() else {
            return Ok(());
        };
        if let Some(waiting) = self.tasks.first() {
            return Err(format!("{} still waits after: {reason}", waiting.name));
        }
        let mut context = Context::from_waker(Waker::noop());
        let mut ends = |name: &str, mut call: Task| match call.is_ready_at_once(&mut context) {
            true => Ok(()),
            false => Err(format!("{name} waits after: {reason}")),
        };
        let each = connection.clone();
        ends(
            "open",
            Box::pin(async move { assert!(each.open_bi().await.is_err()) }),
        )?;
        let each = connection.clone();
        ends("closed", Box::pin(async move { drop(each.closed().await) }))?;
        let each = connection.clone();
        ends(
            "datagrams",
            Box::pin(async move { assert!(each.read_datagram().await.is_err()) }),
        )?;
        let each = connection.clone();
        ends(
            "handshake_complete",
            Box::pin(async move { assert!(each.handshake_complete().await.is_err()) }),
        )?;
        assert!(connection.send_datagram(bytes::Bytes::new()).is_err());
        Ok(())
    }

    /// Returns the state that its next events depend on.
    pub(super) fn summary(
        &self,
    ) -> (
        bool,
        Option<String>,
        Vec<&'static str>,
        [usize; 2],
        [bool; 2],
    ) {
        let done = self.done.borrow();
        let reason = self.connection.as_ref().and_then(Connection::close_reason);
        (
            self.connection.is_some(),
            reason.map(|reason| reason.to_string()),
            self.tasks.iter().map(|waiting| waiting.name).collect(),
            [done.read, done.reasons],
            [done.streams.is_some(), done.out.is_some()],
        )
    }
}

/// Polls a task once.
trait PollOnce {
    fn is_ready_at_once(&mut self, context: &mut Context<'_>) -> bool;
}

impl PollOnce for Task {
    fn is_ready_at_once(&mut self, context: &mut Context<'_>) -> bool {
        self.as_mut().poll(context) == Poll::Ready(())
    }
}
