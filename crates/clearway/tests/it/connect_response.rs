//! The answer to CONNECT as it is sent. Our own client removes a length that should not be there.

use clearway::http::Code;
use clearway::{ClientConfig, Endpoint};
use http::Response;

use crate::common::{IDENTITY, LOOPBACK};
use crate::tunnel::{Answer, serve, whole};

/// A HEADERS frame with `:status: 200` alone: no base, and entry 25 of the static table (RFC 9204
/// §4.5.1, appendix A).
const STATUS_200: [u8; 5] = [0x01, 3, 0, 0, 0xc0 | 25];

/// A HEADERS frame of a CONNECT request: entry 15 of the static table, and a value for the name of
/// entry 0, `:authority` (RFC 9204 §4.5.4).
fn connect_frame(authority: &str) -> Vec<u8> {
    let section = [
        &[0, 0, 0xc0 | 15, 0x50, authority.len() as u8][..],
        authority.as_bytes(),
    ]
    .concat();
    [&[0x01, section.len() as u8][..], &section].concat()
}

#[tokio::test]
async fn successful_connect_response_is_sent_without_a_length() {
    let without: fn(_) -> Answer = |_| Response::new(whole(""));
    let with: fn(_) -> Answer = |_| {
        let response = Response::builder().header("content-length", "0");
        response.body(whole("")).expect("a response")
    };
    for respond in [without, with] {
        let (server, authority) = serve(respond);
        let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).expect("settings");
        let client = Endpoint::client(LOOPBACK, config.alpn(["h3"])).expect("a client");
        let connection = client.connect(server.local_addr(), "localhost").await;
        let connection = connection.expect("a connection");
        let mut control = connection.open_uni().await.expect("a stream");
        // The type, and empty SETTINGS.
        control.write_all(&[0, 4, 0]).await.expect("writes");
        let (mut send, mut recv) = connection.open_bi().await.expect("a stream");
        send.write_all(&connect_frame(&authority))
            .await
            .expect("writes");
        // The service sends nothing through its half of the tunnel.
        let sent = recv.read_to_end(1_000).await.expect("a response");
        assert_eq!(sent, STATUS_200);
        connection.close(Code::NO_ERROR.0, b"");
    }
}
