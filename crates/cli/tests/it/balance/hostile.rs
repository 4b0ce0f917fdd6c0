//! Datagrams that nobody should send, at the service address and at upstream ports.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

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

/// Clients that download while the balancer is attacked.
const CLIENTS: usize = 4;

/// Ends the attacks, also if the test fails.
struct End(Arc<AtomicBool>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A server that answers probes, and everything else with nonsense. It also sends some from a port that
/// is no server's.
fn answer_with_nonsense(server: &UdpSocket, over: &AtomicBool) {
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let wait = Duration::from_millis(100);
    server.set_read_timeout(Some(wait)).unwrap();
    let noise = hostile();
    let mut next = noise.iter().cycle();
    let mut buffer = [0; 2_000];
    while !over.load(Relaxed) {
        let Ok((len, from)) = server.recv_from(&mut buffer) else {
            continue;
        };
        let received = &buffer[..len];
        if let Some(negotiation) = negotiation(received) {
            let _ = server.send_to(&negotiation, from);
            continue;
        }
        // A full buffer or an ICMP error is as good as a lost datagram.
        let _ = server.send_to(received, from);
        let _ = stranger.send_to(received, from);
        for nonsense in next.by_ref().take(3) {
            let _ = server.send_to(nonsense, from);
        }
    }
}

/// The answer to a packet of a version that nobody speaks (RFC 8999 §6).
fn negotiation(packet: &[u8]) -> Option<Vec<u8>> {
    let is_probe = packet.first()? & 0x80 != 0 && packet.get(1..5)? != [0, 0, 0, 1];
    let len = usize::from(*packet.get(5).filter(|_| is_probe)?);
    let dcid = packet.get(6..6 + len)?;
    let rest = packet.get(6 + len..)?;
    let scid = rest.get(1..=usize::from(*rest.first()?))?;
    let id = |id: &[u8]| [&[id.len() as u8], id].concat();
    Some([&[0xc0, 0, 0, 0, 0][..], &id(scid), &id(dcid), &[0, 0, 0, 1]].concat())
}

/// Sends hostile datagrams and packets of new connections, from another address and port each time.
fn flood(service: SocketAddr, sent: &AtomicU64, over: &AtomicBool) {
    let noise = hostile();
    let mut next = noise.iter().cycle();
    let addresses = (1..=250_u8).cycle();
    for (number, last) in (0_u64..).zip(addresses) {
        if over.load(Relaxed) {
            return;
        }
        let address = Ipv4Addr::new(127, 66, (number % 7) as u8, last);
        let socket = UdpSocket::bind((address, 0)).unwrap();
        let mut initial = vec![0xc0, 0, 0, 0, 1, 8];
        initial.extend(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        initial.resize(1_200, 0);
        let send = |datagram: &[u8]| {
            if socket.send_to(datagram, service).is_ok() {
                sent.fetch_add(1, Relaxed);
            }
        };
        for datagram in next.by_ref().take(8) {
            send(datagram);
        }
        send(&initial);
        // There is work for the others too on this machine.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The most memory that a process has had, in KiB.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let digits = line.unwrap().trim().trim_end_matches(" kB");
    digits.parse().unwrap()
}

/// Malformed datagrams, floods of addresses, a server that answers nonsense, strangers at the upstream
/// ports, all at once: open connections download, and new ones are made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downloads_go_on_during_an_attack() {
    let (dir, content) = (TempDir::new(), content());
    write(&dir, "serve.toml", &quic_lb(Rotation::Announced));
    let sites: Vec<Site> = (1..=2).map(|n| site(&dir, content.path(), n)).collect();
    let limits = "[limits]\ntable_entries = 1000\n";
    let text = balancer_file(&sites, Rotation::Announced) + limits;
    write(&dir, "balance.toml", &text);
    let file = dir.text("balance.toml");
    let balance = Balance::start(&dir, "127.0.0.1:0", &["--config", &file]);
    let url = balance.url();
    let clients: Vec<Client> = (0..CLIENTS).map(|_| client()).collect();
    for client in &clients {
        get_small(client, &url).await;
    }

    let nonsense = UdpSocket::bind("127.0.0.1:0").unwrap();
    let third = format!(
        "[[backend]]\nname = \"s3\"\naddress = \"{}\"\nserver_ids = [\"03\"]\n",
        nonsense.local_addr().unwrap()
    );
    write(&dir, "balance.toml", &(third + &text));
    balance.wait_for(|status| status["backends"].as_array().unwrap().len() == 3);
    let (over, sent) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let end = End(over.clone());
    let service = balance.address.parse().unwrap();
    let attacks = {
        let (sent, also_over) = (sent.clone(), over.clone());
        [
            tokio::task::spawn_blocking(move || flood(service, &sent, &over)),
            tokio::task::spawn_blocking(move || answer_with_nonsense(&nonsense, &also_over)),
        ]
    };
    // All upstream ports have been used.
    let flows = |status: &Value| status["flows"].as_u64().unwrap();
    balance.wait_for(|status| flows(status) >= 900);
    wait_for_log(
        &dir,
        " % of the upstream ports are in use; more --source addresses",
    );
    for client in &clients {
        let before = sent.load(Relaxed);
        let (status, _, body) = get(client, &format!("{url}/large"), &[]).await;
        assert_eq!(status, 200);
        assert!(body == pattern(LARGE), "{} bytes", body.len());
        assert!(sent.load(Relaxed) > before, "nobody attacks");
    }
    // New connections are with the servers that can answer.
    balance.drain("s3").unwrap();
    balance.wait_for(|status| status["backends"][0]["state"] == "draining");
    for _ in 0..CLIENTS {
        let before = sent.load(Relaxed);
        get_small(&client(), &url).await;
        assert!(sent.load(Relaxed) > before, "nobody attacks");
    }
    assert!(peak_memory(balance.pid()) < 256 << 10);
    drop(end);
    for attack in attacks {
        attack.await.unwrap();
    }
    for client in &clients {
        get_small(client, &url).await;
    }
    assert_attack_is_counted(&balance.stop());
}

fn assert_attack_is_counted(ended: &Value) {
    let reasons = |direction: &str| -> BTreeSet<String> {
        let dropped = ended[direction]["dropped"].as_object().unwrap();
        dropped.keys().cloned().collect()
    };
    for reason in [
        "empty",
        "malformed",
        "small-initial",
        "unexpected-negotiation",
    ] {
        assert!(reasons("up").contains(reason), "{reason}: {ended:#}");
    }
    assert!(reasons("down").contains("unknown-sender"), "{ended:#}");
    assert!(ended["flows"].as_u64().unwrap() <= 3 * 512, "{ended:#}");
    assert!(
        ended["table_entries"].as_u64().unwrap() <= 3_000,
        "{ended:#}"
    );
}
