//! Spans of connections and requests, as a subscriber sees them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use clearway::http::{Client, Server};
use clearway::{ClientConfig, ServerConfig};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common::{IDENTITY, LOOPBACK};

/// A span that was begun.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
    ended: bool,
}

/// Collects the spans of Clearway, by their identifiers from 1 on.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Seen>>>,
    entered: Arc<Mutex<Vec<u64>>>,
    events: Arc<Mutex<Vec<Option<u64>>>>,
    references: Arc<Mutex<BTreeMap<u64, u64>>>,
}

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "clearway::span" || metadata.target() == "handler"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut seen = Seen {
            name: span.metadata().name(),
            parent: span.parent().map(Id::into_u64),
            ..Seen::default()
        };
        span.record(&mut Fields(&mut seen.fields));
        let mut spans = self.spans.lock().unwrap();
        spans.push(seen);
        let id = spans.len() as u64;
        self.references.lock().unwrap().insert(id, 1);
        Id::from_u64(id)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut spans = self.spans.lock().unwrap();
        let seen = &mut spans[span.into_u64() as usize - 1];
        values.record(&mut Fields(&mut seen.fields));
    }
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn event(&self, _event: &Event<'_>) {
        let current = self.entered.lock().unwrap().last().copied();
        self.events.lock().unwrap().push(current);
    }
    fn enter(&self, span: &Id) {
        self.entered.lock().unwrap().push(span.into_u64());
    }
    fn exit(&self, _span: &Id) {
        self.entered.lock().unwrap().pop();
    }
    fn clone_span(&self, id: &Id) -> Id {
        *self
            .references
            .lock()
            .unwrap()
            .entry(id.into_u64())
            .or_default() += 1;
        id.clone()
    }
    fn try_close(&self, id: Id) -> bool {
        let mut references = self.references.lock().unwrap();
        let left = references.entry(id.into_u64()).or_default();
        *left -= 1;
        if *left == 0 {
            self.spans.lock().unwrap()[id.into_u64() as usize - 1].ended = true;
        }
        *left == 0
    }
}

/// The runtime has one thread, on which both endpoints run, so that the subscriber is theirs too.
#[tokio::test]
async fn connection_and_request_have_spans_with_outcome_and_parent() {
    let collector = Collector::default();
    let _guard = tracing::subscriber::set_default(collector.clone());
    let router = Router::new().route(
        "/hello",
        get(async || {
            tracing::info!(target: "handler", "called");
            "hello"
        }),
    );
    let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
    let server = Server::builder(LOOPBACK, config.unwrap())
        .endpoint(|endpoint| endpoint.on_caller_runtime().shards(1))
        .handlers_on_caller_runtime()
        .build()
        .unwrap();
    let url = format!("https://localhost:{}", server.local_addr().port());
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(router).await });
    let client =
        Client::new(ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap()).unwrap();
    for path in ["/hello?secret", "/else"] {
        let mut response = client.get(&format!("{url}{path}")).await.unwrap();
        response.body_mut().text(100).await.unwrap();
    }
    client.close().await;
    // The task of a request may end after its client has the response.
    let answered = || {
        let spans = collector.spans.lock().unwrap();
        spans
            .iter()
            .filter(|span| span.name == "http request")
            .all(|span| span.ended)
    };
    for _ in 0..1_000 {
        if answered() {
            break;
        }
        tokio::task::yield_now().await;
    }

    let spans = collector.spans.lock().unwrap().clone();
    let find = |name: &str, kind: &str| -> Vec<(u64, Seen)> {
        (1..)
            .zip(spans.clone())
            .filter(|(_, span)| span.name == name && span.fields["otel.kind"] == kind)
            .collect()
    };
    let connections = find("quic connection", "server");
    assert_eq!(connections.len(), 1, "{spans:?}");
    let (connection, seen) = &connections[0];
    assert_eq!(seen.fields["network.peer.address"], "127.0.0.1");
    let requests = find("http request", "server");
    let expected = [("/hello", "200"), ("/else", "404")];
    assert_eq!(requests.len(), expected.len(), "{spans:?}");
    for ((_, request), (path, status)) in requests.iter().zip(expected) {
        assert_eq!(request.parent, Some(*connection));
        assert_eq!(request.fields["http.request.method"], "GET");
        assert_eq!(request.fields["url.path"], path, "no query");
        assert_eq!(request.fields["http.response.status_code"], status);
        assert!(request.ended);
    }
    let sent = find("http request", "client");
    let status = |(_, span): &(u64, Seen)| span.fields["http.response.status_code"].clone();
    assert_eq!(sent.iter().map(status).collect::<Vec<_>>(), ["200", "404"]);
    // What the handler logs belongs to its request.
    assert_eq!(*collector.events.lock().unwrap(), [Some(requests[0].0)]);
}
