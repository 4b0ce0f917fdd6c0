use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use clearway_balancer::config::{DiscoveredServer, Discovery, DiscoverySource};

fn slice(name: &str, endpoints: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"addressType":"IPv4","endpoints":[{endpoints}],
            "ports":[{{"name":"http","port":80,"protocol":"TCP"}},{{"name":"quic","port":443,"protocol":"UDP"}}]}}"#
    )
    .replace('\n', " ")
}

fn endpoint(address: &str, conditions: &str) -> String {
    format!(r#"{{"addresses":["{address}"],"conditions":{{{conditions}}}}}"#)
}

const READY: &str = r#""ready":true,"serving":true,"terminating":false"#;
const TERMINATING: &str = r#""ready":false,"serving":true,"terminating":true"#;
const STARTING: &str = r#""ready":false,"serving":false,"terminating":false"#;

fn listed(slices: &[String]) -> Slices {
    let items = slices.join(",");
    let text = format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{items}]}}"#);
    Slices::listed(text.as_bytes()).unwrap().0
}

fn states(servers: &[DiscoveredServer]) -> Vec<String> {
    let state = |server: &DiscoveredServer| match server.draining {
        true => format!("{} draining", server.address),
        false => server.address.to_string(),
    };
    servers.iter().map(state).collect()
}

#[test]
fn conditions_decide_about_new_connections() {
    let endpoints = [
        endpoint("10.0.0.1", READY),
        endpoint("10.0.0.2", TERMINATING),
        endpoint("10.0.0.3", STARTING),
        r#"{"addresses":["10.0.0.4"]}"#.to_owned(),
        endpoint("not-an-address", READY),
    ];
    let slices = [
        slice("a", &endpoints.join(",")),
        // The same endpoint may be in two slices for a moment.
        slice("b", &endpoint("10.0.0.2", READY)),
        r#"{"metadata":{"name":"c"},"endpoints":null,"ports":null}"#.to_owned(),
    ];
    let found = listed(&slices).servers("quic");
    assert_eq!(
        states(&found),
        ["10.0.0.1:443", "10.0.0.2:443", "10.0.0.4:443"]
    );
    let found = listed(&slices[..1]).servers("quic");
    assert_eq!(
        states(&found),
        ["10.0.0.1:443", "10.0.0.2:443 draining", "10.0.0.4:443"]
    );
    assert_eq!(listed(&slices).servers("other"), []);
}

#[test]
fn number_of_slices_is_bounded() {
    let mut slices = listed(&[]);
    let mut add = |number: usize| {
        let object = slice(&number.to_string(), "");
        slices.apply(format!(r#"{{"type":"ADDED","object":{object}}}"#).as_bytes())
    };
    for number in 0..4_096 {
        add(number).unwrap();
    }
    add(7).unwrap();
    let error = add(4_096).unwrap_err();
    assert_eq!(error, "the API named more than 4096 slices");
}

#[test]
fn lines_are_the_same_wherever_pieces_end() {
    let text = b"one\n\nthree\nfour";
    for size in 1..=text.len() {
        let mut lines = Lines::new(5);
        let mut taken = Vec::new();
        for piece in text.chunks(size) {
            lines.push(piece).unwrap();
            taken.extend(core::iter::from_fn(|| lines.take()));
        }
        let expected: [&[u8]; 3] = [b"one\n", b"\n", b"three\n"];
        assert_eq!(taken, expected, "{size}");
    }
}

#[test]
fn line_that_is_too_long_is_an_error() {
    let mut lines = Lines::new(5);
    lines.push(b"123456").unwrap();
    assert_eq!(lines.take(), None);
    assert!(lines.push(b"7").is_err());
}

/// Answers each request with the next of these, and sends its path.
async fn answer(listener: TcpListener, mut answers: UnboundedReceiver<Vec<String>>) -> Vec<String> {
    let mut paths = Vec::new();
    while let Some(parts) = answers.recv().await {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        paths.push(line.split(' ').nth(1).unwrap().to_owned());
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).await.unwrap();
        }
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        for part in parts {
            let chunk = format!("{:x}\r\n{part}\r\n", part.len());
            stream.write_all(chunk.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        }
        stream.write_all(b"0\r\n\r\n").await.unwrap();
    }
    paths
}

async fn until(discovered: &Discovered, expected: &[&str]) {
    for _ in 0..2_000 {
        if states(&discovered.servers()) == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!(
        "{:?} instead of {expected:?}",
        states(&discovered.servers())
    );
}

#[tokio::test]
async fn slices_are_listed_and_watched_and_listed_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = format!("http://{}", listener.local_addr().unwrap());
    let (answers, waiting) = unbounded_channel();
    let api_server = tokio::spawn(answer(listener, waiting));
    let discovered = Discovered::start(Discovery {
        source: DiscoverySource::EndpointSlices {
            service: "servers".to_owned(),
            namespace: "clearway".to_owned(),
            port: "quic".to_owned(),
            api: Some(api),
        },
        keep: Duration::from_secs(60),
    })
    .unwrap();
    let list = |version: u32, slices: &[String]| {
        let items = slices.join(",");
        vec![format!(
            r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[{items}]}}"#
        )]
    };
    let ready = slice("a", &endpoint("10.0.0.1", READY));
    answers.send(list(7, &[ready])).unwrap();
    until(&discovered, &["10.0.0.1:443"]).await;
    let ending = slice("a", &endpoint("10.0.0.1", TERMINATING));
    let added = slice("b", &endpoint("10.0.0.2", READY));
    let event =
        |kind: &str, object: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#) + "\n";
    let events = event("MODIFIED", &ending) + &event("ADDED", &added);
    // However the lines are cut.
    let (first, second) = events.split_at(events.len() / 3);
    answers
        .send(vec![first.to_owned(), second.to_owned()])
        .unwrap();
    until(&discovered, &["10.0.0.1:443 draining", "10.0.0.2:443"]).await;
    // The watch ended, so it lists again; then the version is too old.
    answers.send(list(9, &[added])).unwrap();
    let gone = r#"{"code":410,"reason":"Expired"}"#;
    answers.send(vec![event("ERROR", gone)]).unwrap();
    let other = slice("c", &endpoint("10.0.0.3", READY));
    answers.send(list(11, &[other])).unwrap();
    until(
        &discovered,
        &[
            "10.0.0.1:443 draining",
            "10.0.0.2:443 draining",
            "10.0.0.3:443",
        ],
    )
    .await;
    drop(answers);
    let paths = api_server.await.unwrap();
    let path = "/apis/discovery.k8s.io/v1/namespaces/clearway/endpointslices?labelSelector=\
                kubernetes.io%2Fservice-name%3Dservers";
    let watch =
        |version: u32| format!("{path}&watch=1&resourceVersion={version}&timeoutSeconds=300");
    assert_eq!(
        paths,
        [
            path.to_owned(),
            watch(7),
            path.to_owned(),
            watch(9),
            path.to_owned()
        ]
    );
}

#[tokio::test]
async fn invalid_source_is_named() {
    let start = |service: &str, api: &str| {
        let source = DiscoverySource::EndpointSlices {
            service: service.to_owned(),
            namespace: "clearway".to_owned(),
            port: "quic".to_owned(),
            api: Some(api.to_owned()),
        };
        let keep = Duration::from_secs(1);
        Discovered::start(Discovery { source, keep })
            .unwrap_err()
            .to_string()
    };
    let error = start("a&b", "http://127.0.0.1:1");
    assert!(
        error.contains("\"a&b\" is not a name in Kubernetes"),
        "{error}"
    );
    let error = start("a", "https://127.0.0.1");
    assert!(
        error.contains("expected a URL such as http://127.0.0.1:8001"),
        "{error}"
    );
}
