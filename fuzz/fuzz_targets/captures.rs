//! The readers of pcapng and pcap: arbitrary files, and files whose packets can be opened, with
//! arbitrary payloads at arbitrary times. They terminate, and what they derive is consistent.
#![no_main]

use std::collections::BTreeSet;

use arbitrary::{Arbitrary, Unstructured};
use clearway_trace::capture::{KeyLog, Reader, is_capture};
use clearway_trace::{Examiner, Sink as _};
use libfuzzer_sys::fuzz_target;
use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{DirectionalKeys, Keys, Version};

const DCID: [u8; 8] = [7; 8];
/// Number of bytes of the packet number.
const NUMBER_LEN: usize = 4;
const SAMPLE_LEN: usize = 16;

#[derive(Arbitrary, Debug)]
enum Input {
    /// The secrets for a file, and the file.
    File(Vec<u8>, Vec<u8>),
    /// Packets, all of them Initial ones, whose keys need no secrets. Frames are read alike at all
    /// levels.
    Packets(Vec<Sent>),
}

#[derive(Arbitrary, Debug)]
struct Sent {
    by_client: bool,
    /// Microseconds after the one before.
    after: u16,
    number: u16,
    payload: Vec<u8>,
    /// Cut off after so many bytes.
    cut: Option<u8>,
}

fuzz_target!(|data: &[u8]| {
    if is_capture(data) {
        examine(data, KeyLog::default());
        return;
    }
    match Input::arbitrary(&mut Unstructured::new(data)) {
        Ok(Input::File(secrets, file)) => {
            let secrets = KeyLog::parse(&secrets).unwrap_or_default();
            examine(&file, secrets);
        }
        Ok(Input::Packets(packets)) => open(packets),
        Err(_) => {}
    }
});

/// Reads packets that can be opened.
fn open(packets: Vec<Sent>) {
    let mut file = header();
    let (mut now, mut numbers, mut whole) = (0, BTreeSet::new(), 0);
    // A connection begins with the client.
    let first = Sent {
        by_client: true,
        after: 0,
        number: 0,
        payload: vec![1],
        cut: None,
    };
    for sent in core::iter::once(first).chain(packets.into_iter().take(60)) {
        now += u64::from(sent.after) * 100;
        record(&mut file, now, &sent);
        // A packet that was cut off leaves no trace, so its number is new again afterwards.
        let opened = sent.cut.is_none() && numbers.insert((sent.by_client, sent.number));
        whole += u64::from(opened);
    }
    let problems = examine(&file, KeyLog::default());
    assert_eq!(
        problems.opened, whole,
        "every packet that is there can be opened"
    );
}

/// Reads a file to its end and examines what is in it.
fn examine(file: &[u8], secrets: KeyLog) -> clearway_trace::capture::Problems {
    let Ok(mut reader) = Reader::new(file, secrets) else {
        return Default::default();
    };
    let mut ends: Vec<(Examiner, u64)> = Vec::new();
    while let Some(next) = reader.next() {
        let Ok(captured) = next else { continue };
        while ends.len() < reader.traces().len() {
            ends.push((Examiner::new(Some(reader.traces()[ends.len()].role)), 0));
        }
        let (examiner, last) = &mut ends[captured.trace];
        *last = captured.event.time.max(*last);
        examiner.event(&captured.event);
    }
    assert!(reader.offset() <= file.len() as u64);
    for (examiner, last) in ends {
        let examined = examiner.finish();
        assert!(
            examined
                .findings
                .iter()
                .all(|it| it.t0 <= it.t1 && it.t1 <= last)
        );
        let spent: u64 = examined
            .breakdown
            .shares()
            .iter()
            .map(|(_, spent)| spent)
            .sum();
        assert_eq!(spent, examined.breakdown.life());
    }
    reader.problems()
}

/// The header of a pcap file of IP packets.
fn header() -> Vec<u8> {
    let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.extend(65_535_u32.to_le_bytes());
    file.extend(101_u32.to_le_bytes());
    file
}

fn record(file: &mut Vec<u8>, micros: u64, sent: &Sent) {
    let packet = seal(sent);
    let kept = sent
        .cut
        .map_or(packet.len(), |cut| usize::from(cut).min(packet.len() - 1));
    let len = (packet.len() + 28) as u16;
    let mut ip = vec![0x45, 0];
    ip.extend(len.to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let ends = if sent.by_client {
        [client, server]
    } else {
        [server, client]
    };
    ip.extend(ends.concat());
    let ports = if sent.by_client {
        [5_000_u16, 443]
    } else {
        [443, 5_000]
    };
    ip.extend(ports.map(u16::to_be_bytes).concat());
    ip.extend((len - 20).to_be_bytes());
    ip.extend([0, 0]);
    ip.extend(&packet[..kept]);
    for word in [
        micros / 1_000_000,
        micros % 1_000_000,
        ip.len() as u64,
        u64::from(len),
    ] {
        file.extend((word as u32).to_le_bytes());
    }
    file.extend(ip);
}

/// The Initial packet.
fn seal(sent: &Sent) -> Vec<u8> {
    let side = if sent.by_client {
        Side::Client
    } else {
        Side::Server
    };
    let Keys {
        local: DirectionalKeys { header, packet },
        ..
    } = TLS13_AES_128_GCM_SHA256
        .tls13()
        .and_then(|suite| suite.quic_suite())
        .expect("a suite for QUIC")
        .keys(&DCID, side, Version::V1);
    let mut payload = sent.payload.clone();
    payload.truncate(1_200);
    // At least PING, and as long as the sample needs.
    payload.resize(payload.len().max(4), 1);
    let mut out = vec![0xc3, 0, 0, 0, 1, 8];
    out.extend(DCID);
    out.extend([0, 0]);
    let len = (payload.len() + NUMBER_LEN + packet.tag_len()) as u16;
    out.extend((len | 0x4000).to_be_bytes());
    let at = out.len();
    out.extend(u32::from(sent.number).to_be_bytes());
    let tag = packet
        .encrypt_in_place(sent.number.into(), &out, &mut payload)
        .expect("seals");
    out.extend(payload);
    out.extend(tag.as_ref());
    let (begin, rest) = out.split_at_mut(at);
    let (number, sample) = rest.split_at_mut(NUMBER_LEN);
    header
        .encrypt_in_place(&sample[..SAMPLE_LEN], &mut begin[0], number)
        .expect("protects");
    out
}
