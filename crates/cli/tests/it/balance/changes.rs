//! Clients that move, and everything behind them that changes, while they download.

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use super::everything::{download, migrate};
use super::fleet::{Balance, Relay, Rotation, balancer_file, quic_lb, write};
use super::*;

/// Ports of clients that a server has answered requests of.
fn ports(site: &Site, requests: usize) -> Vec<u64> {
    let remote = |line: Value| {
        let remote = line["remote"].as_str().unwrap().to_owned();
        remote.rsplit(':').next().unwrap().parse().unwrap()
    };
    let mut ports: Vec<u64> = (0..requests).map(|_| remote(site.logged())).collect();
    ports.dedup();
    ports
}

#[tokio::test]
async fn active_migration_is_followed_by_connection_id() {
    let (dir, content) = (TempDir::new(), content());
    let (_sites, balance) = fleet(&dir, &content, 3);
    let url = balance.url();
    let clients: Vec<Client> = (0..6).map(|_| client()).collect();
    for client in &clients {
        get_small(client, &url).await;
        for _ in 0..2 {
            let large = format!("{url}/large");
            let (download, moving) = (get(client, &large, &[]), async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                migrate(client);
            });
            let ((status, _, body), ()) = tokio::join!(download, moving);
            assert_eq!(status, 200);
            assert!(body == pattern(LARGE), "{} bytes", body.len());
            get_small(client, &url).await;
        }
    }
    let ended = balance.stop();
    assert_eq!(assigned(&ended).iter().sum::<u64>(), 6, "{ended:#}");
    assert_eq!(ended["flows"], 6 * 3, "{ended:#}");
}

/// A client whose connection IDs change stays on its upstream port, so that its server sees no
/// migration. Once the old key is gone, only the new connection IDs can tell its server.
#[tokio::test]
async fn rotated_connection_ids_keep_their_port_and_are_followed_to_another_address() {
    let (dir, content) = (TempDir::new(), content());
    let (sites, balance) = fleet(&dir, &content, 2);
    let relay = Relay::start(&balance.address, &[]);
    let (first, url, at) = (client(), relay.url.clone(), relay.address.clone());
    get_small(&first, &url).await;
    let serving = serving(&balance);
    write(&dir, "serve.toml", &quic_lb(Rotation::Active));
    for site in &sites {
        site.signal(Signal::HUP);
    }
    // Connection IDs are replaced when the server has handled the signal and a packet arrives.
    for _ in 0..10 {
        get_small(&first, &url).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    write(
        &dir,
        "balance.toml",
        &balancer_file(&sites, Rotation::Complete),
    );
    wait_for_log(&dir, "configuration reloaded");
    get_small(&first, &url).await;
    assert_eq!(ports(&sites[serving], 12).len(), 1, "no migration");
    assert_eq!(balance.status()["flows"], 1);

    drop(relay);
    let _relay = Relay::start_at(&at, &balance.address, &[]);
    get_small(&first, &url).await;
    assert_eq!(ports(&sites[serving], 1).len(), 1);
    let ended = balance.stop();
    assert_eq!(assigned(&ended).iter().sum::<u64>(), 1, "{ended:#}");
    assert_eq!(ended["flows"], 2, "{ended:#}");
}

/// Sends a datagram again and again until it arrives: full queues may drop it.
fn repeat_until_received(from: &UdpSocket, message: &[u8], to: SocketAddr, at: &UdpSocket) {
    let mut buffer = [0; 100];
    at.set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    for _ in 0..100 {
        from.send_to(message, to).unwrap();
        while let Ok(len) = at.recv(&mut buffer) {
            if buffer.get(..len) == Some(message) {
                at.set_read_timeout(Some(PATIENCE)).unwrap();
                return;
            }
        }
    }
    panic!("{message:?} did not arrive");
}

/// The sockets are the same before and after, so that nothing is lost in between: each datagram
/// is counted by one process or the other.
#[test]
fn replaced_balancer_passes_its_sockets_on_and_loses_nothing() {
    let dir = TempDir::new();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let to = server.local_addr().unwrap().to_string();
    let text = format!(
        "[health]\nenabled = false\n[limits]\nidle_seconds = 5\n[[backend]]\naddress = \"{to}\"\n"
    );
    write(&dir, "plain.toml", &text);
    let file = dir.text("plain.toml");
    for mode in ["batched", "decoupled"] {
        let options = ["--config", &file, "--mode", mode];
        let shards = ["--shards", "2"];
        let first = Balance::start(&dir, "127.0.0.1:0", &[&options[..], &shards].concat());
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.connect(&first.address).unwrap();
        let mut sent = 0;
        let mut send = |count: usize| {
            for _ in 0..count {
                client.send(&[0x40; 40]).unwrap();
                sent += 1;
            }
        };
        send(10);
        let mut buffer = [0; 100];
        let (_, upstream) = server.recv_from(&mut buffer).unwrap();
        // Flows without an answer end soon.
        repeat_until_received(&server, b"\x40 reply", upstream, &client);
        let second = std::thread::scope(|scope| {
            let starting = scope.spawn(|| Balance::take_over(&dir, &options));
            while !starting.is_finished() {
                send(10);
                std::thread::sleep(Duration::from_millis(1));
            }
            starting.join().unwrap()
        });
        assert_eq!(second.address, first.address);
        // What the server still sends to the first one's port arrives, from the same address.
        repeat_until_received(&server, b"\x40 late reply", upstream, &client);
        // On a slow machine so many were sent that the server's receive buffer is full.
        server.set_nonblocking(true).unwrap();
        while server.recv_from(&mut buffer).is_ok() {}
        server.set_nonblocking(false).unwrap();
        send(10);
        // The second one's port is another one.
        let mut port = upstream;
        while port == upstream {
            port = server.recv_from(&mut buffer).unwrap().1;
        }
        repeat_until_received(&server, b"\x40 reply", port, &client);
        let first = first.ended();
        let received = |ended: &Value| ended["up"]["received"].as_u64().unwrap();
        let rest = sent - received(&first);
        second.wait_for(|status| received(status) == rest);
        let second = second.stop();
        assert_eq!(received(&first) + received(&second), sent);
        server.set_nonblocking(true).unwrap();
        while server.recv_from(&mut buffer).is_ok() {}
        server.set_nonblocking(false).unwrap();
    }
}

/// Clients in the middle of a download have nothing to send, and so nothing that another server
/// could answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_clients_of_killed_server_are_reset() {
    let (dir, content) = (TempDir::new(), content());
    let (mut sites, balance) = fleet(&dir, &content, 2);
    let relay = Relay::start(&balance.address, &["--rate", "2M"]);
    let downloads: Vec<_> = (0..16)
        .map(|_| {
            let url = format!("{}/large", relay.url);
            tokio::spawn(async move {
                let done = download(&url, &pattern(LARGE)).await;
                (done, Instant::now())
            })
        })
        .collect();
    balance.wait_for(|status| {
        let enough = |backend: &Value| backend["datagrams_received"].as_u64().unwrap() > 300;
        status["backends"].as_array().unwrap().iter().all(enough)
    });
    sites[0].child.kill().unwrap();
    let status = balance.wait_for(|status| status["backends"][0]["state"] == "down");
    let marked_down = Instant::now();
    let (mut failures, mut longest) = (Vec::new(), Duration::ZERO);
    for download in downloads {
        let (done, at) = download.await.unwrap();
        if let Err(failure) = done {
            failures.push(failure);
            longest = longest.max(at.saturating_duration_since(marked_down));
        }
    }
    println!(
        "{} clients were told, the last {longest:?} after their server was marked down",
        failures.len()
    );
    assert_eq!(failures.len() as u64, assigned(&status)[0], "{failures:#?}");
    let reset = |failure: &String| failure.contains("StatelessReset");
    assert!(failures.iter().all(reset), "{failures:#?}");
    let ended = balance.stop();
    assert!(ended["reset_requests"].as_u64().unwrap() > 0, "{ended:#}");
}
