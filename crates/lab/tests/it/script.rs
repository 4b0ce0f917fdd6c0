//! Applications written as async functions.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on has failed"
)]

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use clearway_lab::app::{Script, ScriptConn};
use clearway_lab::stack::{ClearwayFactory, Protocol};
use clearway_lab::world::{Network, NodeId, RunEnd, World};

const LIMIT: Duration = Duration::from_secs(30);

fn world(stack: &ClearwayFactory) -> (World, NodeId) {
    let network = Network::symmetric("rate=10M delay=15ms queue=25 loss=2%").unwrap();
    let mut world = World::new(&network, 7);
    let server = world.server(stack, || Script::new(echo));
    (world, server)
}

/// Echoes every stream until the client closes the connection.
async fn echo(conn: ScriptConn) -> Result<(), String> {
    while let Ok(stream) = conn.accept().await {
        let text = conn.read_all(stream).await?;
        conn.say(stream, text).await?;
    }
    Ok(())
}

async fn ask(conn: &ScriptConn, text: &str) -> Result<(), String> {
    let stream = conn.open().await?;
    conn.say(stream, text.to_owned()).await?;
    assert_eq!(conn.read_all(stream).await?, text.as_bytes());
    Ok(())
}

#[test]
fn transfer_beyond_the_window_completes_over_quic_and_http3() {
    let text = "0123456789".repeat(300_000);
    for protocol in [Protocol::Raw, Protocol::Http3] {
        let mut stack = ClearwayFactory::default();
        stack.tls.protocol = protocol;
        let (mut world, server) = world(&stack);
        let text = text.clone();
        let client = async move |conn: ScriptConn| ask(&conn, &text).await;
        world.client(&stack, server, Script::new(client));
        assert_eq!(world.run(LIMIT).unwrap(), RunEnd::Done, "{protocol:?}");
    }
}

#[test]
fn sleep_uses_virtual_time_exactly() {
    let stack = ClearwayFactory::default();
    let (mut world, server) = world(&stack);
    let slept = Rc::new(Cell::new(None));
    let told = slept.clone();
    world.client(
        &stack,
        server,
        Script::new(async move |conn: ScriptConn| {
            conn.connected().await?;
            let began = conn.now();
            conn.sleep(Duration::from_secs(5)).await;
            told.set(Some(conn.now() - began));
            ask(&conn, "still there?").await
        }),
    );
    assert_eq!(world.run(LIMIT).unwrap(), RunEnd::Done);
    assert_eq!(slept.get(), Some(Duration::from_secs(5)));
}

#[test]
fn cancelled_read_loses_no_data() {
    let stack = ClearwayFactory::default();
    let (mut world, server) = world(&stack);
    world.client(
        &stack,
        server,
        Script::new(async |conn: ScriptConn| {
            let stream = conn.open().await?;
            {
                // Started and dropped before anything can have arrived.
                let mut early = pin!(conn.read(stream));
                std::future::poll_fn(|context| {
                    assert!(early.as_mut().poll(context).is_pending());
                    Poll::Ready(())
                })
                .await;
            }
            conn.say(stream, "hello").await?;
            assert_eq!(conn.read_all(stream).await?, b"hello");
            Ok(())
        }),
    );
    assert_eq!(world.run(LIMIT).unwrap(), RunEnd::Done);
}

#[test]
fn pending_call_fails_when_the_connection_ends() {
    let stack = ClearwayFactory::default();
    let (mut world, server) = world(&stack);
    let words = Rc::new(Cell::new(String::new()));
    let told = words.clone();
    world.client(
        &stack,
        server,
        Script::new(async move |conn: ScriptConn| {
            conn.connected().await?;
            conn.close().await;
            told.set(conn.accept().await.unwrap_err());
            Ok(())
        }),
    );
    assert_eq!(world.run(LIMIT).unwrap(), RunEnd::Done);
    assert!(words.take().contains("closed"));
}

#[test]
#[should_panic(expected = "the script failed at")]
fn script_error_panics_the_run() {
    let stack = ClearwayFactory::default();
    let (mut world, server) = world(&stack);
    let client = async |_: ScriptConn| Err("on purpose".to_owned());
    world.client(&stack, server, Script::new(client));
    let _ = world.run(LIMIT);
}
