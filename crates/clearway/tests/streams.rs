//! Streams over loopback.

mod common;

use clearway::{ReadError, WriteError};
use common::{Pair, pattern};

#[tokio::test]
async fn echo() {
    let pair = Pair::new().await;
    assert_eq!(pair.near.alpn().as_deref(), Some(&b"test"[..]));
    assert_eq!(pair.far.alpn().as_deref(), Some(&b"test"[..]));
    assert_eq!(pair.far.server_name().as_deref(), Some("localhost"));
    assert_eq!(pair.far.remote_address(), pair.client.local_addr());
    let far = pair.far.clone();
    let echo = tokio::spawn(async move {
        let (mut send, mut recv) = far.accept_bi().await.unwrap();
        let copied = tokio::io::copy(&mut recv, &mut send).await.unwrap();
        send.finish().unwrap();
        send.finished().await.unwrap();
        copied
    });
    let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
    send.write_all(b"hello").await.unwrap();
    send.finish().unwrap();
    assert_eq!(recv.read_to_end(100).await.unwrap(), b"hello");
    assert_eq!(
        recv.read(&mut [0; 9]).await,
        Ok(None),
        "the end stays the end"
    );
    assert_eq!(echo.await.unwrap(), 5);
}
