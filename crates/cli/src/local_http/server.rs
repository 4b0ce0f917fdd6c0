//! A server with a thread for each connection.

use core::time::Duration;
use std::io::BufReader;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::access::Access;
use super::message::{RequestHead, Response, read_head};

/// Maximum number of connections at a time: each has a thread.
const MAX_CONNECTIONS: usize = 32;
/// How long a client may let the server wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// What answers requests.
pub(crate) trait Answer: Send + Sync + 'static {
    /// Answers a request whose name and token have been checked, and of which `body` is what
    /// follows the head; `None` if it has written the answer itself.
    fn answer(
        &self,
        head: &RequestHead,
        body: BufReader<TcpStream>,
        output: &TcpStream,
    ) -> Option<Response>;
}

/// Serves until the listener fails for ever.
pub(crate) fn serve(listener: &TcpListener, access: &Access, answers: &Arc<impl Answer>) {
    let open = Arc::<AtomicUsize>::default();
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors, most likely.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (access, answers, counted) = (access.clone(), answers.clone(), open.clone());
        let serving = std::thread::Builder::new().spawn(move || {
            connection(&stream, &access, &*answers);
            counted.fetch_sub(1, Ordering::Relaxed);
        });
        if serving.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Answers one request.
fn connection(output: &TcpStream, access: &Access, answers: &impl Answer) {
    // Sockets refuse no time limit but zero.
    let _ = output.set_read_timeout(Some(PATIENCE));
    let _ = output.set_write_timeout(Some(PATIENCE));
    let Ok(input) = output.try_clone() else {
        return;
    };
    let mut input = BufReader::new(input);
    let head = read_head(&mut input).and_then(|head| access.check(&head).map(|()| head));
    let response = match head {
        Ok(head) => answers.answer(&head, input, output),
        Err(response) => Some(response),
    };
    // A client that has gone away needs no answer.
    if let Some(response) = response {
        let _ = response.write(output);
    }
    let _ = output.shutdown(Shutdown::Write);
}
