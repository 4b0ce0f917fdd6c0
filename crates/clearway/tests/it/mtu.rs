//! MTU discovery, which needs a socket that forbids fragmentation.

use clearway::EndpointBuilder;
use clearway::udp::Options;

use crate::common::{LOOPBACK, Pair, client, pattern, server_config};

const SIZE: usize = 2 << 20;

/// Returns the MTU that a server finds while it sends.
async fn mtu_of_server(options: Options) -> u16 {
    let server = EndpointBuilder::bind(LOOPBACK)
        .socket_options(options)
        .server(server_config())
        .build()
        .expect("a server");
    let pair = Pair::of(server, client()).await;
    let (far, content) = (pair.far.clone(), pattern(5, SIZE));
    let sending = tokio::spawn(async move {
        let mut send = far.open_uni().await.expect("opens");
        send.write_all(&content).await.expect("writes");
        send.finish().expect("finishes");
        send.finished().await.expect("arrives");
    });
    let mut recv = pair.near.accept_uni().await.expect("a stream");
    assert_eq!(recv.read_to_end(SIZE).await.expect("reads").len(), SIZE);
    sending.await.expect("sends");
    pair.far.stats().mtu
}

#[tokio::test]
async fn mtu_stays_at_minimum_without_dont_fragment() {
    let mut options = Options::default();
    if cfg!(target_os = "linux") {
        assert!(mtu_of_server(options.clone()).await > 1200);
    }
    options.dont_fragment = false;
    assert_eq!(mtu_of_server(options).await, 1200);
}
