//! qlog files of connections.

use std::path::Path;
use std::time::Duration;

use crate::common::{LOOPBACK, Pair, client_config, server_config};
use clearway::{Endpoint, QlogDir};
use clearway_trace::detect::{Detector, Profile, examine};
use clearway_trace::event::{Event, EventData, Role};
use clearway_trace::qlog::Reader;

/// The one trace in a directory, once its connection has ended.
async fn trace(dir: &Path) -> (Option<Role>, Vec<Event>) {
    for _ in 0..1_000 {
        let file = std::fs::read_dir(dir).expect("there").next();
        if let Some(file) = file {
            let text = std::fs::read(file.expect("an entry").path()).expect("readable");
            if let Ok(mut reader) = Reader::new(&text[..]) {
                let events: Vec<Event> =
                    (&mut reader).map(|event| event.expect("memory")).collect();
                let closed = |event: &Event| matches!(event.data, EventData::ConnectionClosed(_));
                if events.iter().any(closed) && reader.problems().bad_records == 0 {
                    return (reader.header().role, events);
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no trace of an end in {}", dir.display());
}

#[tokio::test(flavor = "multi_thread")]
async fn both_endpoints_write_a_qlog_file() {
    let base = std::env::temp_dir().join(format!("clearway-qlog-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&base);
    let (near, far) = (base.join("client"), base.join("server"));
    let server = Endpoint::builder(LOOPBACK)
        .server(server_config())
        .qlog(QlogDir::new(&far).unwrap())
        .build()
        .unwrap();
    let client = Endpoint::builder(LOOPBACK)
        .client(client_config())
        .qlog_dir(&near)
        .unwrap()
        .build()
        .unwrap();
    let pair = Pair::of(server, client).await;
    let mut send = pair.near.open_uni().await.unwrap();
    let reading = tokio::spawn({
        let far = pair.far.clone();
        async move { far.accept_uni().await.unwrap().read_to_end(1 << 20).await }
    });
    send.write_all(&[7; 200_000]).await.unwrap();
    send.finish().unwrap();
    assert_eq!(reading.await.unwrap().unwrap().len(), 200_000);
    pair.near.close(3, b"done");
    pair.far.closed().await;
    drop(pair);
    for (dir, role) in [(&near, Role::Client), (&far, Role::Server)] {
        let (named, events) = trace(dir).await;
        assert_eq!(named, Some(role));
        assert!(matches!(events[0].data, EventData::ConnectionStarted(_)));
        let count = |wanted: fn(&EventData) -> bool| {
            events.iter().filter(|event| wanted(&event.data)).count()
        };
        assert!(count(|data| matches!(data, EventData::PacketSent(_))) > 5);
        assert!(count(|data| matches!(data, EventData::PacketReceived(_))) > 5);
        assert_eq!(count(|data| matches!(data, EventData::ParametersSet(_))), 2);
        let mut findings = examine(&Profile::default(), &events);
        // A busy machine runs the event loop late, which is such a stall.
        findings.retain(|finding| finding.detector != Detector::PacingStall);
        assert!(findings.is_empty(), "{findings:#?}");
    }
    let _ = std::fs::remove_dir_all(&base);
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_can_begin_on_an_open_connection() {
    let base = std::env::temp_dir().join(format!("clearway-qlog-late-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&base);
    let dir = QlogDir::new(&base).unwrap().one_in(2);
    let pair = Pair::new().await;
    assert!(pair.near.start_qlog(dir.clone()));
    // The second of two is not sampled.
    assert!(!pair.far.start_qlog(dir.clone()));
    pair.near.close(3, b"done");
    pair.far.closed().await;
    drop(pair);
    let (role, events) = trace(&base).await;
    assert_eq!(role, Some(Role::Client));
    assert!(matches!(events[0].data, EventData::ConnectionStarted(_)));
    assert_eq!(dir.failures(), 0);
    let _ = std::fs::remove_dir_all(&base);
}
