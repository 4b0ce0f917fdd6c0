//! What `get` remembers of servers while it runs.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use clearway::http::{Incoming, Server};
use clearway::{Connection, DevelopmentIdentity, ServerConfig};
use http::{Request, Response};
use http_body_util::Full;
use tokio::runtime::Runtime;

use crate::get::command::expect;

/// A server that remembers its connections.
#[derive(Clone)]
struct Recorder {
    server: Server,
    connections: Arc<Mutex<Vec<Connection>>>,
    /// Its connections are closed before a request is answered.
    closes: Option<Box<Self>>,
}

impl Recorder {
    /// Serves at a port of its own, as long as the runtime lives.
    fn serve(runtime: &Runtime, closes: Option<Self>) -> Self {
        let identity = DevelopmentIdentity::generate(["localhost"]).unwrap();
        let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem());
        let _entered = runtime.enter();
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), config.unwrap()).unwrap();
        let recorder = Self {
            server: server.clone(),
            connections: Arc::default(),
            closes: closes.map(Box::new),
        };
        let service = recorder.clone();
        runtime.spawn(async move { server.serve(service).await });
        recorder
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/", self.server.local_addr().port())
    }

    /// Whether each of its connections resumed a session, in their order.
    fn resumed(&self) -> Vec<bool> {
        let connections = self.connections.lock().unwrap();
        connections.iter().map(Connection::resumed).collect()
    }

    /// Closes its connections, and returns when the client must have noticed.
    async fn close_connections(self) {
        for connection in self.connections.lock().unwrap().iter() {
            connection.close(0x100, b"");
        }
        self.server.endpoint().wait_idle().await;
    }
}

impl tower_service::Service<Request<Incoming>> for Recorder {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let connection = request.extensions().get::<Connection>().unwrap();
        self.connections.lock().unwrap().push(connection.clone());
        let closes = self.closes.clone();
        Box::pin(async move {
            if let Some(other) = closes {
                other.close_connections().await;
            }
            Ok(Response::new(Full::from("text")))
        })
    }
}

/// The second server closes the client's connection to the first before it answers, so that the
/// third request needs a new one.
#[test]
fn tickets_of_two_ports_of_a_host_do_not_replace_each_other() {
    let runtime = Runtime::new().unwrap();
    let first = Recorder::serve(&runtime, None);
    let second = Recorder::serve(&runtime, Some(first.clone()));
    let [a, b] = [first.url(), second.url()];
    expect(0, &["-k", "-s", "-Z", "1", &a, &b, &a]);
    assert_eq!(first.resumed(), [false, true]);
    assert_eq!(second.resumed(), [false]);
}
