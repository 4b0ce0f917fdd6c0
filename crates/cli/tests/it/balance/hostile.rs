//! Datagrams that nobody should send, at the service address and at upstream ports.

use std::net::UdpSocket;

use super::*;

/// Headers of every kind, cut off at every length, with connection IDs of every length.
fn hostile() -> Vec<Vec<u8>> {
    let noise = pattern(600);
    let mut datagrams = vec![Vec::new()];
    for version in [0_u32, 1, 0x6b33_43cf, 0x0a1a_2a3a, 0xffff_ffff] {
        for first in [0x80_u8, 0xc0, 0xd0, 0xe0, 0xff] {
            for length in [0_usize, 1, 8, 20, 21, 160, 255] {
                let mut long = vec![first];
                long.extend(version.to_be_bytes());
                long.push(length as u8);
                long.extend(&noise[..length]);
                long.push(length as u8);
                long.extend(&noise[..length]);
                datagrams.push(long[..long.len() - 1].to_vec());
                datagrams.push(long);
            }
        }
    }
    // Short headers; 0x40 to 0x7f are those that QUIC has.
    for first in [0x00_u8, 0x40, 0x5f, 0x7f] {
        for length in [0, 1, 7, 8, 17, 18, 20, 40, 500] {
            datagrams.push([&[first], &noise[..length]].concat());
        }
    }
    datagrams
}

#[tokio::test]
async fn hostile_datagrams_are_counted_and_do_not_disturb_downloads() {
    let (dir, content) = (TempDir::new(), content());
    let (_sites, balance) = fleet(&dir, &content, 2);
    let (service, url) = (balance.address.clone(), balance.url());
    let first = client();
    get_small(&first, &url).await;
    let sending = tokio::task::spawn_blocking(move || {
        let datagrams = hostile();
        for _ in 0..20 {
            // Another port each time, as spoofed addresses would be.
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            for datagram in &datagrams {
                // A full buffer or an ICMP error is as good as a lost datagram.
                let _ = socket.send_to(datagram, &service);
            }
        }
        20 * datagrams.len() as u64
    });
    for _ in 0..5 {
        let (status, _, body) = get(&first, &format!("{url}/large"), &[]).await;
        assert_eq!(status, 200);
        assert!(body == pattern(LARGE), "{} bytes", body.len());
    }
    let sent = sending.await.unwrap();
    get_small(&client(), &url).await;
    let ended = balance.stop();
    let dropped = ended["up"]["dropped"].as_object().unwrap();
    for reason in [
        "empty",
        "malformed",
        "small-initial",
        "unexpected-negotiation",
    ] {
        assert!(dropped.contains_key(reason), "{reason}: {ended:#}");
    }
    // Nothing waits in the socket's buffer when a download through it has succeeded.
    assert!(ended["up"]["received"].as_u64().unwrap() > sent / 2);
    assert!(ended["table_entries"].as_u64().unwrap() < sent, "{ended:#}");
}

/// Replies are forwarded only if a server sent them, and to clients it was sent datagrams of.
#[tokio::test]
async fn datagrams_of_strangers_at_upstream_ports_are_dropped() {
    let dir = TempDir::new();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap().to_string();
    let file = format!("[health]\nenabled = false\n[[backend]]\naddress = \"{to}\"\n");
    write(&dir, "plain.toml", &file);
    let options = ["--config", &dir.text("plain.toml")];
    let balance = Balance::start(&dir, "127.0.0.1:0", &options);

    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let mut initial = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
    initial.resize(1_200, 0);
    client.send_to(&initial, &balance.address).unwrap();
    let mut buffer = [0; 2_000];
    let (length, upstream) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], &initial[..]);

    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        stranger.send_to(b"a reply?", upstream).unwrap();
    }
    // Nonsense of the server is its client's business.
    for reply in [&b"\xff"[..], b"\xc0\0\0\0\x01\xff", &[0xc0; 1_300]] {
        server.send_to(reply, upstream).unwrap();
        let (length, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], reply);
        assert_eq!(from.to_string(), balance.address);
    }
    let ended = balance.stop();
    assert_eq!(ended["down"]["received"], 6, "{ended:#}");
    assert_eq!(ended["down"]["dropped"]["unknown-sender"], 3, "{ended:#}");
}
