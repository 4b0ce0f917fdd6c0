//! Packets that anyone can forge who sees a client's first ones: the keys of Initials and of Retry
//! are public, and Version Negotiation has no keys (RFC 9001 §5.2, §5.8).
//!
//! An attacker sits between client and server and is always faster.

use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use clearway_quic::Role;
use clearway_quic::cid::ConnectionId;
use clearway_quic::testing::{TAG_LEN, initial_keys, retry_tag};
use clearway_quic::wire::PartialHeader;
use clearway_quic::wire::Version;
use clearway_quic::wire::header::HeaderKind;

use crate::get::command::{get, said};
use crate::get::terminal::assert_printable;
use crate::web::{Site, TempDir};

/// The connection ID that forged packets come from.
const FORGER: [u8; 8] = [7; 8];

/// Connection IDs of a client's Initial.
struct Ids {
    /// What the client calls the server.
    dcid: ConnectionId,
    /// What the client calls itself.
    scid: ConnectionId,
}

impl Ids {
    fn of(datagram: &[u8]) -> Option<Self> {
        let header = PartialHeader::parse(datagram, FORGER.len()).ok()?;
        if !matches!(header.kind, HeaderKind::Initial { .. }) {
            return None;
        }
        Some(Self {
            dcid: header.dcid.cid(datagram)?,
            scid: header.scid.cid(datagram)?,
        })
    }
}

/// A packet made for a client's Initial.
type Forgery = Box<dyn Fn(&Ids) -> Vec<u8> + Send>;

/// Answers each Initial of a client with a forged packet, and then passes everything on
/// in both directions.
struct Attacker {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<usize>>>,
}

impl Attacker {
    fn before(server: SocketAddr, forgery: Forgery) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = front.local_addr().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let thread = std::thread::spawn(move || attack(&front, server, &forgery, &end));
        Self {
            address,
            ended,
            thread: Some(thread),
        }
    }

    /// How many packets it forged.
    fn end(mut self) -> usize {
        self.ended.store(true, Relaxed);
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
    }
}

fn attack(
    front: &UdpSocket,
    server: SocketAddr,
    forgery: &Forgery,
    ended: &AtomicBool,
) -> io::Result<usize> {
    let mut buffer = vec![0; 1 << 16];
    let mut clients: Vec<(SocketAddr, UdpSocket)> = Vec::new();
    let mut forged = 0;
    front.set_read_timeout(Some(Duration::from_millis(1)))?;
    while !ended.load(Relaxed) {
        if let Ok((length, from)) = front.recv_from(&mut buffer) {
            let datagram = &buffer[..length];
            if let Some(ids) = Ids::of(datagram) {
                front.send_to(&forgery(&ids), from)?;
                forged += 1;
            }
            if !clients.iter().any(|(client, _)| *client == from) {
                let back = UdpSocket::bind("127.0.0.1:0")?;
                back.connect(server)?;
                back.set_nonblocking(true)?;
                clients.push((from, back));
            }
            let back = clients.iter().find(|(client, _)| *client == from);
            back.unwrap().1.send(datagram)?;
        }
        for (client, back) in &clients {
            while let Ok(length) = back.recv(&mut buffer) {
                // The client may have gone.
                let _ = front.send_to(&buffer[..length], client);
            }
        }
    }
    Ok(forged)
}

/// The beginning of a packet to the client (RFC 9000 §17.2).
fn long_header(first: u8, version: u32, to: &[u8], from: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    packet.extend_from_slice(&version.to_be_bytes());
    for cid in [to, from] {
        packet.push(cid.len() as u8);
        packet.extend_from_slice(cid);
    }
    packet
}

/// An Initial with these frames, sealed as the server would, of 1,200 bytes or more.
fn initial(ids: &Ids, frames: &[u8]) -> Vec<u8> {
    const NUMBER: usize = 4;
    let mut packet = long_header(0xc3, 1, &ids.scid, &FORGER);
    // No token.
    packet.push(0);
    let padded = frames.len().max(1_100);
    let length = NUMBER + padded + TAG_LEN;
    packet.extend_from_slice(&(0x4000 | length as u16).to_be_bytes());
    // A packet number that the server will not come to.
    packet.extend_from_slice(&1_000_u32.to_be_bytes());
    let header = packet.len();
    packet.extend_from_slice(frames);
    packet.resize(header + padded + TAG_LEN, 0);
    let keys = initial_keys(Version::V1, &ids.dcid, Role::Server);
    keys.local.seal(1_000, &mut packet, header, NUMBER).unwrap();
    packet
}

/// CONNECTION_CLOSE of the transport (RFC 9000 §19.19).
fn close(code: u8, reason: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x1c, code, 0];
    frame.extend_from_slice(&(0x4000 | reason.len() as u16).to_be_bytes());
    frame.extend_from_slice(reason);
    frame
}

/// A Retry with a token of so many bytes and a genuine integrity tag.
fn retry(ids: &Ids, token: usize) -> Vec<u8> {
    let mut packet = long_header(0xf0, 1, &ids.scid, &FORGER);
    packet.resize(packet.len() + token, 0x1b);
    let tag = retry_tag(&ids.dcid, &packet);
    packet.extend_from_slice(&tag);
    packet
}

/// Version Negotiation with these versions (RFC 9000 §17.2.1).
fn negotiation(to: &[u8], from: &[u8], versions: &[u32]) -> Vec<u8> {
    let mut packet = long_header(0x80, 0, to, from);
    versions
        .iter()
        .for_each(|version| packet.extend(version.to_be_bytes()));
    packet
}

const RESERVED: u32 = 0x0a0a_0a0a;
const VERSION_2: u32 = 0x6b33_43cf;
/// The version of RFC 9369's drafts, which is not supported.
const DRAFT_VERSION_2: u32 = 0x709a_50c4;

/// What becomes of a download.
enum Expected {
    /// The genuine server's content.
    Content,
    /// An error with these words.
    Error(&'static str),
}

/// Downloads past an attacker.
fn check(what: &str, forgery: Forgery, expected: &Expected) {
    let dir = TempDir::new();
    dir.old_file("small", b"genuine");
    let site = Site::start(dir.path(), &[]);
    let port = site.url.rsplit(':').next().unwrap();
    let server = format!("127.0.0.1:{port}").parse().unwrap();
    let attacker = Attacker::before(server, forgery);
    let out = TempDir::new();
    let file = out.text("file");
    let url = format!("https://{}/small", attacker.address);
    let output = get(&["-k", "--connect-timeout", "3s", "-o", &file, &url]);
    assert!(attacker.end() > 0, "{what}");
    let text = said(&output);
    assert_printable(&text);
    let code = output.status.code();
    match expected {
        Expected::Content => {
            assert_eq!(code, Some(0), "{what}: {text}");
            assert_eq!(fs::read(&file).unwrap(), b"genuine", "{what}");
        }
        Expected::Error(words) => {
            assert_eq!(code, Some(4), "{what}: {text}");
            assert!(text.contains(words), "{what}: {text}");
            assert!(text.lines().count() == 1 && text.len() < 1_500, "{text}");
            assert!(out.names().is_empty(), "{what}: {:?}", out.names());
        }
    }
}

#[test]
fn forged_initial_is_discarded_or_ends_the_download_with_a_printable_error() {
    use Expected::{Content, Error};
    let sealed = |frames: Vec<u8>| -> Forgery { Box::new(move |ids| initial(ids, &frames)) };
    let reason = b"\x1b]0;owned\x07\x1b[2J\nerror: forged\r\xc2\x9b31m\xe2\x80\xae\xff";
    for (what, forgery, expected) in [
        (
            "a close with control bytes",
            sealed(close(0x02, reason)),
            Error("closed by the peer: CONNECTION_REFUSED: \\u{1b}]0;owned\\u{7}"),
        ),
        (
            "a close with a long reason",
            sealed(close(0x0a, &[b'x'; 1_050])),
            Error("PROTOCOL_VIOLATION: xxx"),
        ),
        (
            "an application's close, which only 1-RTT packets may have",
            sealed(vec![0x1d, 0, 1, 0x1b]),
            Error("closed by us: PROTOCOL_VIOLATION: frame not allowed in this packet type"),
        ),
        (
            "an unknown frame",
            sealed(vec![0x21]),
            Error("closed by us: FRAME_ENCODING_ERROR: unknown frame type"),
        ),
        (
            "an ACK of what was never sent",
            sealed(vec![0x02, 0x7f, 0xff, 0, 0, 0]),
            Error("closed by us: PROTOCOL_VIOLATION: ACK of packet 16383, which was not sent yet"),
        ),
        (
            "CRYPTO data that is no TLS",
            sealed([&[0x06, 0, 0x08][..], &[0x1b; 8]].concat()),
            Error("closed by us: CRYPTO_ERROR (TLS alert 50: decode_error)"),
        ),
        (
            "CRYPTO data far ahead",
            sealed(vec![0x06, 0x80, 0x10, 0, 0, 1, 0x1b]),
            Error("closed by us: CRYPTO_BUFFER_EXCEEDED"),
        ),
        (
            "nothing but a PING",
            sealed(vec![0x01]),
            Error("cannot connect: no answer within 3s"),
        ),
        (
            "an Initial with the keys of another connection ID",
            Box::new(|ids| {
                let other = ConnectionId::new(&[1; 8]).unwrap();
                let scid = ids.scid;
                initial(&Ids { dcid: other, scid }, &close(0x02, b"forged"))
            }),
            Content,
        ),
        (
            "an Initial to another connection ID",
            Box::new(|ids| {
                let (dcid, scid) = (ids.dcid, ConnectionId::new(&[1; 8]).unwrap());
                initial(&Ids { dcid, scid }, &close(0x02, b"forged"))
            }),
            Content,
        ),
    ] {
        check(what, forgery, &expected);
    }
}

#[test]
fn forged_retry_is_discarded_or_ends_the_download_with_a_printable_error() {
    use Expected::{Content, Error};
    for (what, token, expected) in [
        ("an empty token", 0, Content),
        (
            "a short token",
            16,
            Error("original_destination_connection_id does not match the first Initial"),
        ),
        (
            "the longest token that is taken",
            800,
            Error("original_destination_connection_id does not match the first Initial"),
        ),
        ("a token longer than is taken", 801, Content),
        ("a token that leaves no room", 1_170, Content),
        ("a token larger than a packet", 30_000, Content),
    ] {
        check(what, Box::new(move |ids| retry(ids, token)), &expected);
    }
    let untrue = |ids: &Ids| {
        let mut packet = retry(ids, 16);
        *packet.last_mut().unwrap() ^= 1;
        packet
    };
    check("a wrong integrity tag", Box::new(untrue), &Content);
}

#[test]
fn forged_version_negotiation_is_discarded_or_ends_the_download_with_an_error() {
    use Expected::{Content, Error};
    let all: Vec<u32> = (0..350).map(|n| RESERVED ^ (n << 4)).collect();
    for (what, versions, expected) in [
        (
            "other versions",
            vec![RESERVED, DRAFT_VERSION_2],
            Error("no common QUIC version"),
        ),
        ("hundreds of versions", all, Error("no common QUIC version")),
        (
            "a version that the client also speaks",
            vec![RESERVED, VERSION_2],
            Error("closed by us: VERSION_NEGOTIATION_ERROR"),
        ),
        ("no versions", vec![], Content),
        ("the client's own version", vec![RESERVED, 1], Content),
    ] {
        let forgery = move |ids: &Ids| negotiation(&ids.scid, &ids.dcid, &versions);
        check(what, Box::new(forgery), &expected);
    }
    let unseen = |ids: &Ids| negotiation(&ids.scid, &FORGER, &[VERSION_2]);
    check("not the client's connection ID", Box::new(unseen), &Content);
}
