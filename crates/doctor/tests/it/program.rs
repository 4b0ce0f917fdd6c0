//! The programs that the doctor looks at: this test binary, run once more with a variable set.

use std::io::{BufRead, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockFilter, Socket, Type};

/// What to be, as words.
pub const VARIABLE: &str = "CLEARWAY_DOCTOR_TEST_PROGRAM";

#[test]
fn program() {
    let Ok(text) = std::env::var(VARIABLE) else {
        return;
    };
    let words: Vec<&str> = text.split(' ').collect();
    match words.as_slice() {
        ["sink", address, buffer, work] => sink(address, buffer.parse().unwrap(), work, None),
        ["threads", address, work] => threads(address, work),
        ["refuse", address] => {
            let all = SockFilter::new(6, 0, 0, 0);
            sink(address, 0, "none", Some(all));
        }
        ["send", to, rate, size, burst] => {
            let shape = (
                rate.parse().unwrap(),
                size.parse().unwrap(),
                burst.parse().unwrap(),
            );
            send(to, shape);
        }
        ["crowd", to] => crowd(to),
        ["trains", to, rate] => trains(to, rate.parse().unwrap()),
        ["gro", address, work] => gro(address, work),
        ["damaged", to, kind] => damaged(to, kind),
        ["flows", to] => flows(to),
        ["window", to] => window(to),
        ["acknowledge", address] => acknowledge(address),
        ["proxy", listen, upstream, work] => proxy(listen, upstream, work),
        _ => panic!("unknown program {text:?}"),
    }
}

/// Counts, and tells the test when it asks.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Says that the program is ready.
    fn ready() -> Self {
        let counter = Self::default();
        let shared = counter.clone();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                if line.is_err() {
                    break;
                }
                say(&format!("count {}", shared.0.load(Ordering::Relaxed)));
            }
            // The test is gone.
            std::process::exit(0);
        });
        say("ready");
        counter
    }

    fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }
}

fn say(text: &str) {
    // In one write, on a line of its own, whatever the harness of tests prints.
    let line = format!("\ndoctor: {text}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    std::io::stdout().flush().unwrap();
}

/// What a program does with a datagram: `none`, `sleep:MICROS`, `spin:MICROS`.
fn work(kind: &str) {
    match kind.split_once(':') {
        Some(("sleep", micros)) => {
            std::thread::sleep(Duration::from_micros(micros.parse().unwrap()));
        }
        Some(("spin", micros)) => {
            let end = Instant::now() + Duration::from_micros(micros.parse().unwrap());
            while Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        _ => {}
    }
}

fn bound(address: &str, buffer: usize) -> Socket {
    let address: SocketAddr = address.parse().unwrap();
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )
    .unwrap();
    if buffer > 0 {
        // Beyond net.core.rmem_max, which differs from host to host.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, buffer).unwrap();
    }
    socket.bind(&address.into()).unwrap();
    socket
}

fn sink(address: &str, buffer: usize, kind: &str, filter: Option<SockFilter>) {
    let socket = bound(address, buffer);
    if let Some(filter) = filter {
        socket.attach_filter(&[filter]).unwrap();
    }
    receive(&socket.into(), kind);
}

fn receive(socket: &UdpSocket, kind: &str) {
    let counter = Counter::ready();
    let mut buffer = vec![0; 65_536];
    loop {
        socket.recv(&mut buffer).unwrap();
        counter.add(1);
        work(kind);
    }
}

/// One thread that works, among some that do not.
fn threads(address: &str, kind: &str) {
    for _ in 0..12 {
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
    }
    let socket: UdpSocket = bound(address, 0).into();
    let kind = kind.to_owned();
    let hot = std::thread::Builder::new().name("hot-receiver".into());
    hot.spawn(move || receive(&socket, &kind))
        .unwrap()
        .join()
        .unwrap();
}

/// Sends `rate` datagrams a second, in bursts of `burst`. What it could not send in time it leaves out.
fn send(to: &str, (rate, size, burst): (u32, usize, u32)) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(to).unwrap();
    let counter = Counter::ready();
    let payload = vec![b'x'; size];
    let gap = Duration::from_secs(1) * burst / rate;
    let mut next = Instant::now();
    loop {
        for _ in 0..burst {
            // A refused one (ICMP) was sent all the same, by the next call.
            if socket.send(&payload).is_ok() {
                counter.add(1);
            }
        }
        next += gap;
        let now = Instant::now();
        if now > next + Duration::from_millis(20) {
            next = now;
        } else if next > now + Duration::from_micros(500) {
            std::thread::sleep(next - now);
        }
    }
}

/// Sends bursts without waiting for room in its small send buffer, and counts what the kernel refused.
fn crowd(to: &str) {
    let socket = bound("0.0.0.0:0", 0);
    socket.set_send_buffer_size(8_192).unwrap();
    socket.set_nonblocking(true).unwrap();
    let to: SocketAddr = to.parse().unwrap();
    let counter = Counter::ready();
    loop {
        for _ in 0..50 {
            if socket.send_to(&[b'x'; 1_200], &to.into()).is_err() {
                counter.add(1);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends trains of 20 datagrams in one call (GSO), so that receivers may take them whole.
fn trains(to: &str, rate: u32) {
    let options = clearway_udp::Options::default();
    let socket = clearway_udp::Socket::bind("0.0.0.0:0".parse().unwrap(), &options).unwrap();
    let counter = Counter::ready();
    let payload = vec![b'x'; 20 * 1_000];
    let to: SocketAddr = to.parse().unwrap();
    loop {
        let mut transmit = clearway_udp::Transmit::new(to, &payload);
        transmit.segment_size = Some(1_000);
        if socket.send(&mut transmit).is_ok() {
            counter.add(1);
        }
        std::thread::sleep(Duration::from_secs(1) / rate);
    }
}

/// Receives whole trains (`UDP_GRO`) and counts them as the kernel does.
fn gro(address: &str, kind: &str) {
    let options = clearway_udp::Options {
        recv_buffer: 212_992,
        ..clearway_udp::Options::default()
    };
    let socket = clearway_udp::Socket::bind(address.parse().unwrap(), &options).unwrap();
    let counter = Counter::ready();
    let mut batch = clearway_udp::RecvBatch::new(1, 65_536);
    loop {
        batch.clear();
        match socket.recv(&mut batch) {
            Ok(number) if number > 0 => {
                counter.add(1);
                work(kind);
            }
            // Nothing there; the socket does not block.
            _ => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}

/// Sends datagrams with a wrong checksum, or shorter than their header says.
fn damaged(to: &str, kind: &str) {
    let to: SocketAddr = to.parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap();
    let counter = Counter::ready();
    let mut datagram = vec![b'x'; 8 + 100];
    datagram[..2].copy_from_slice(&7_777_u16.to_be_bytes());
    datagram[2..4].copy_from_slice(&to.port().to_be_bytes());
    let length: u16 = if kind == "short" { 900 } else { 108 };
    datagram[4..6].copy_from_slice(&length.to_be_bytes());
    // No checksum for the short ones; a wrong one for the others.
    let checksum: u16 = if kind == "short" { 0 } else { 0x1234 };
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    loop {
        if socket.send_to(&datagram, &to.into()).is_ok() {
            counter.add(1);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends each datagram from another port: a new connection for a firewall.
fn flows(to: &str) {
    let to: SocketAddr = to.parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap();
    let counter = Counter::ready();
    let mut port: u16 = 1_024;
    loop {
        let mut datagram = [0; 9];
        datagram[..2].copy_from_slice(&port.to_be_bytes());
        datagram[2..4].copy_from_slice(&to.port().to_be_bytes());
        datagram[4..6].copy_from_slice(&9_u16.to_be_bytes());
        if socket.send_to(&datagram, &to.into()).is_ok() {
            counter.add(1);
        }
        port = port.wrapping_add(1).max(1_024);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends as fast as the receiver acknowledges: full load, without a loss.
fn window(to: &str) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(to).unwrap();
    let counter = Counter::ready();
    let payload = [b'x'; 1_200];
    let mut answer = [0; 16];
    loop {
        for _ in 0..32 {
            socket.send(&payload).unwrap();
        }
        counter.add(32);
        socket.recv(&mut answer).unwrap();
    }
}

fn acknowledge(address: &str) {
    let socket: UdpSocket = bound(address, 0).into();
    let counter = Counter::ready();
    let mut buffer = [0; 2_000];
    for number in 1_u64.. {
        let (_, from) = socket.recv_from(&mut buffer).unwrap();
        counter.add(1);
        if number.is_multiple_of(32) {
            socket.send_to(b"more", from).unwrap();
        }
    }
}

/// The naive proxy: one thread receives, works, forwards, and repeats.
fn proxy(listen: &str, upstream: &str, kind: &str) {
    let socket: UdpSocket = bound(listen, 0).into();
    let forward = UdpSocket::bind("0.0.0.0:0").unwrap();
    let counter = Counter::ready();
    let mut buffer = [0; 2_000];
    loop {
        let (length, _) = socket.recv_from(&mut buffer).unwrap();
        counter.add(1);
        work(kind);
        let _ = forward.send_to(&buffer[..length], upstream);
    }
}
