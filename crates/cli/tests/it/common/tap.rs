//! A relay that looks at every datagram.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    Server,
    Client,
}

/// Passes datagrams on between clients and a server, as long as it lives.
pub struct Tap {
    pub address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Tap {
    /// `seen` is called with each datagram before it is passed on.
    pub fn before(server: SocketAddr, seen: impl FnMut(Towards, &[u8]) + Send + 'static) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = front.local_addr().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let thread = std::thread::spawn(move || pass_on(&front, server, seen, &end));
        Self {
            address,
            ended,
            thread: Some(thread),
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        let outcome = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            outcome.unwrap().unwrap().unwrap();
        }
    }
}

fn pass_on(
    front: &UdpSocket,
    server: SocketAddr,
    mut seen: impl FnMut(Towards, &[u8]),
    ended: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut clients: Vec<(SocketAddr, UdpSocket)> = Vec::new();
    front.set_read_timeout(Some(Duration::from_millis(1)))?;
    while !ended.load(Relaxed) {
        if let Ok((length, from)) = front.recv_from(&mut buffer) {
            if !clients.iter().any(|(client, _)| *client == from) {
                let back = UdpSocket::bind("127.0.0.1:0")?;
                back.connect(server)?;
                back.set_nonblocking(true)?;
                clients.push((from, back));
            }
            seen(Towards::Server, &buffer[..length]);
            let back = clients.iter().find(|(client, _)| *client == from);
            // The server may have gone.
            let _ = back.unwrap().1.send(&buffer[..length]);
        }
        for (client, back) in &clients {
            while let Ok(length) = back.recv(&mut buffer) {
                seen(Towards::Client, &buffer[..length]);
                // The client may have gone.
                let _ = front.send_to(&buffer[..length], client);
            }
        }
    }
    Ok(())
}
