//! What the recording of a test has to show.

use std::collections::{BTreeMap, BTreeSet};

use clearway_links::Ecn;
use clearway_quic::wire::{Frame, Version};
use clearway_trace::event::PacketType;

use super::{
    capture::{Capture, Sender},
    decrypted::{Decrypted, NetworkPath},
};

/// TLS_CHACHA20_POLY1305_SHA256 (RFC 8446 §B.4).
const CHACHA20: u16 = 0x1303;

/// TLS_EMPTY_RENEGOTIATION_INFO_SCSV, a signal in the list that is not a cipher suite (RFC 5746 §3.3).
const RENEGOTIATION_SIGNAL: u16 = 0x00ff;

/// Most streams that a server may permit at once in `multiplexing`.
const MAX_STREAMS: u64 = 1000;

/// Most bytes that a client may send in 1-RTT packets in `zerortt`.
const MAX_LATE_BYTES: usize = 5000;

/// What was recorded.
pub(crate) struct Recording {
    pub(crate) headers: Capture,
    pub(crate) decrypted: Decrypted,
}

/// A check of a recording; the error says what was expected and what was found.
pub(crate) type Check = fn(&Recording) -> Result<(), String>;

fn expect(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

fn handshakes(recording: &Recording, expected: usize) -> Result<(), String> {
    let found = recording.headers.handshakes();
    expect(found == expected, || {
        format!("expected {expected} handshakes, found {found}")
    })
}

pub(crate) fn one_handshake(recording: &Recording) -> Result<(), String> {
    handshakes(recording, 1)
}

pub(crate) fn two_handshakes(recording: &Recording) -> Result<(), String> {
    handshakes(recording, 2)
}

pub(crate) fn fifty_handshakes(recording: &Recording) -> Result<(), String> {
    handshakes(recording, 50)
}

pub(crate) fn version_1(recording: &Recording) -> Result<(), String> {
    for sender in [Sender::Client, Sender::Server] {
        let found = recording.headers.versions(sender);
        expect(found == [Version::V1], || {
            format!("expected version 1 only from the {sender:?}, found {found:?}")
        })?;
    }
    Ok(())
}

/// Compatible version negotiation: version 1 first, and then version 2.
pub(crate) fn version_2(recording: &Recording) -> Result<(), String> {
    let versions = recording.headers.versions(Sender::Client);
    let first = versions.first().copied();
    expect(first == Some(Version::V1), || {
        format!("expected a first flight of version 1, found {first:?}")
    })?;
    for sender in [Sender::Client, Sender::Server] {
        let found = recording.headers.handshake_versions(sender);
        expect(found == [Version::V2], || {
            format!("expected Handshake packets of version 2 from the {sender:?}, found {found:?}")
        })?;
    }
    Ok(())
}

pub(crate) fn no_retry(recording: &Recording) -> Result<(), String> {
    let found = recording.headers.retry_tokens().len();
    expect(found == 0, || format!("expected no Retry, found {found}"))
}

/// The client repeats the token, and does not begin its packet numbers anew (RFC 9000 §17.2.5.3).
pub(crate) fn retry(recording: &Recording) -> Result<(), String> {
    let headers = &recording.headers;
    let tokens = headers.retry_tokens();
    expect(!tokens.is_empty(), || {
        "expected a Retry, found none".to_owned()
    })?;
    let repeated = tokens.iter().any(|token| headers.repeats_token(token));
    expect(repeated, || {
        "no Initial packet of the client has the Retry's token".to_owned()
    })?;
    increasing_numbers(recording)
}

fn increasing_numbers(recording: &Recording) -> Result<(), String> {
    let initials = recording
        .decrypted
        .sent(Sender::Client, PacketType::Initial);
    let numbers: Vec<_> = initials.map(|sent| sent.packet.number).collect();
    expect(
        numbers.len() > 1 && numbers.is_sorted_by(|a, b| a < b),
        || format!("expected increasing packet numbers across the Retry, found {numbers:?}"),
    )
}

/// The round trip is longer than the first probe timeout: the client begins its ClientHello again. It
/// may take several packets, of which the first counts.
pub(crate) fn repeated_hello(recording: &Recording) -> Result<(), String> {
    let initials = recording
        .decrypted
        .sent(Sender::Client, PacketType::Initial);
    let begins = |frame: Frame<'_>| matches!(frame, Frame::Crypto { offset: 0, .. });
    let found = initials.filter(|sent| sent.frames().any(begins)).count();
    expect(found >= 2, || {
        format!("expected two packets with the beginning of a ClientHello, found {found}")
    })
}

/// The requests travel as early data, and not again afterwards.
pub(crate) fn early_data(recording: &Recording) -> Result<(), String> {
    let headers = &recording.headers;
    let (early, all) = (headers.early_bytes(), headers.client_bytes());
    expect(early > 0, || {
        format!("expected 0-RTT packets, found none in {all} bytes of the client")
    })?;
    let one_rtt = recording.decrypted.sent(Sender::Client, PacketType::OneRtt);
    let late: usize = one_rtt.map(|sent| sent.packet.payload.len()).sum();
    expect(late <= MAX_LATE_BYTES, || {
        format!("expected at most {MAX_LATE_BYTES} bytes of 1-RTT payload, found {late}")
    })
}

pub(crate) fn stream_limit(recording: &Recording) -> Result<(), String> {
    let parameters = &recording.decrypted.server_parameters;
    expect(!parameters.is_empty(), || {
        "the server's transport parameters could not be decrypted".to_owned()
    })?;
    let permitted = parameters.iter().map(|it| it.initial_max_streams_bidi);
    let most = permitted.max().unwrap_or_default();
    expect(most <= MAX_STREAMS, || {
        format!("expected initial_max_streams_bidi of at most {MAX_STREAMS}, found {most}")
    })
}

/// Both ends send packets of the second generation of keys (RFC 9001 §6).
pub(crate) fn key_update(recording: &Recording) -> Result<(), String> {
    for sender in [Sender::Client, Sender::Server] {
        let packets = recording.decrypted.sent(sender, PacketType::OneRtt);
        let updates = packets.map(|sent| sent.packet.key_updates).max();
        expect(updates > Some(0), || match updates {
            Some(_) => format!("expected a key update of the {sender:?}, found none"),
            None => format!("no 1-RTT packet of the {sender:?} could be decrypted"),
        })?;
    }
    Ok(())
}

pub(crate) fn only_chacha20(recording: &Recording) -> Result<(), String> {
    let offered = recording.decrypted.offered_cipher_suites();
    expect(!offered.is_empty(), || {
        "no ClientHello could be decrypted".to_owned()
    })?;
    let is_chacha20 = |suites: &Vec<u16>| {
        let mut suites = suites.iter().filter(|it| **it != RENEGOTIATION_SIGNAL);
        suites.next() == Some(&CHACHA20) && suites.next().is_none()
    };
    let only = offered.iter().all(is_chacha20);
    expect(only, || {
        format!("expected only cipher suite {CHACHA20:#06x}, found {offered:x?}")
    })
}

/// A resumed handshake has no certificate (RFC 8446 §2.2).
pub(crate) fn certificate_once(recording: &Recording) -> Result<(), String> {
    let found = recording.decrypted.connections_with_certificate();
    expect(found == [0], || {
        format!("expected a certificate in the first connection only, found them in {found:?}")
    })
}

pub(crate) fn amplification(recording: &Recording) -> Result<(), String> {
    match recording.headers.amplified() {
        None => Ok(()),
        Some((received, sent)) => Err(format!(
            "expected at most three times {received} bytes to an address that is not validated, \
             found {sent}"
        )),
    }
}

/// Both ends mark their packets, report what they received, and see no congestion
/// (RFC 9000 §13.4).
pub(crate) fn ecn(recording: &Recording) -> Result<(), String> {
    for sender in [Sender::Client, Sender::Server] {
        let packets = || recording.decrypted.sent(sender, PacketType::OneRtt);
        let marked = packets().filter(|sent| sent.ecn.is_capable()).count();
        expect(marked > 0, || {
            format!("expected ECT in packets of the {sender:?}, found none")
        })?;
        let congestion = packets().filter(|sent| sent.ecn == Ecn::Ce).count();
        expect(congestion == 0, || {
            format!("expected no CE in packets of the {sender:?}, found {congestion}")
        })?;
        let counts: Vec<_> = packets()
            .flat_map(|sent| {
                let counts = sent.frames().filter_map(|frame| match frame {
                    Frame::Ack(ack) => ack.ecn,
                    _ => None,
                });
                counts.collect::<Vec<_>>()
            })
            .collect();
        expect(!counts.is_empty(), || {
            format!("expected ACK frames with ECN counts from the {sender:?}, found none")
        })?;
        let reported = counts.iter().any(|counts| counts.ect0 + counts.ect1 > 0);
        expect(reported, || {
            format!("expected the {sender:?} to report marked packets, found counts of 0")
        })?;
        let congestion = counts.iter().map(|counts| counts.ce).max();
        expect(congestion == Some(0), || {
            format!("expected no CE reported by the {sender:?}, found {congestion:?}")
        })?;
    }
    Ok(())
}

/// Data of a PATH_CHALLENGE or PATH_RESPONSE, and who sent it.
type Challenge = (Sender, [u8; 8]);

/// Paths in the order in which they were first used.
type Paths = Vec<(NetworkPath, PathRecord)>;

/// What happened on a path.
#[derive(Default)]
struct PathRecord {
    /// Whether the first packet of each end on it has a PATH_CHALLENGE: client, server.
    begins_with_challenge: BTreeMap<Sender, bool>,
    /// PATH_CHALLENGEs by their sender.
    challenges: BTreeSet<Challenge>,
    /// Destination connection IDs of the client's packets.
    client_dcids: BTreeSet<Vec<u8>>,
    /// Whether the client closed the connection on it.
    closed: bool,
}

/// The paths of the first connection, in the order in which they were first used, and all
/// PATH_RESPONSEs by their sender.
fn paths(decrypted: &Decrypted) -> (Paths, BTreeSet<Challenge>) {
    let mut paths = Paths::new();
    let mut responses = BTreeSet::new();
    for sent in decrypted.packets.iter().filter(|it| it.connection == 0) {
        let at = paths.iter().position(|(path, _)| *path == sent.path);
        let at = at.unwrap_or_else(|| {
            paths.push((sent.path, PathRecord::default()));
            paths.len() - 1
        });
        let Some((_, path)) = paths.get_mut(at) else {
            continue;
        };
        let mut challenged = false;
        for frame in sent.frames() {
            match frame {
                Frame::PathChallenge(data) => {
                    challenged = true;
                    path.challenges.insert((sent.sender, data));
                }
                Frame::PathResponse(data) => {
                    responses.insert((sent.sender, data));
                }
                Frame::ConnectionClose { .. } | Frame::ApplicationClose { .. } => {
                    path.closed |= sent.sender == Sender::Client;
                }
                _ => {}
            }
        }
        let begins = &mut path.begins_with_challenge;
        begins.entry(sent.sender).or_insert(challenged);
        if sent.sender == Sender::Client {
            path.client_dcids.insert(sent.packet.dcid.clone());
        }
    }
    (paths, responses)
}

/// The server begins on each new path with PATH_CHALLENGE, and the client answers
/// (RFC 9000 §9.3, §8.2). Some challenges may be lost on the way: one on each path has an answer,
/// unless the connection ends there first.
pub(crate) fn challenged_by_server(recording: &Recording) -> Result<(), String> {
    let (paths, responses) = paths(&recording.decrypted);
    let new = paths.get(1..).unwrap_or_default();
    expect(!new.is_empty(), || {
        "expected packets on a new path, found none".to_owned()
    })?;
    for ((client, _), path) in new {
        let first = path.begins_with_challenge.get(&Sender::Server);
        // A path that ends as soon as it has begun.
        let Some(first) = first else { continue };
        expect(*first, || {
            format!("expected PATH_CHALLENGE in the server's first packet to {client}")
        })?;
        let challenges = path.challenges.iter();
        let ours = challenges.filter(|(sender, _)| *sender == Sender::Server);
        let answered = ours
            .clone()
            .any(|(_, data)| responses.contains(&(Sender::Client, *data)));
        // The client closed when it was done, before the server asked again.
        let over = path.closed && ours.count() == 1;
        expect(answered || over, || {
            format!("expected an answer to a PATH_CHALLENGE to {client}, found none")
        })?;
    }
    Ok(())
}

/// The client moves to the server's preferred address with a new connection ID, and validates
/// the path (RFC 9000 §9.6).
pub(crate) fn moved_by_client(recording: &Recording) -> Result<(), String> {
    let (paths, responses) = paths(&recording.decrypted);
    let Some((((_, from), before), others)) = paths.split_first() else {
        return Err("nothing could be decrypted".to_owned());
    };
    let Some(((_, to), after)) = others.iter().find(|((_, to), _)| to != from) else {
        return Err(format!(
            "expected packets of the client to another address than {from}, found none"
        ));
    };
    let mut reused = after.client_dcids.intersection(&before.client_dcids);
    let reused = reused.next();
    expect(reused.is_none(), || {
        format!("expected a new connection ID on the path to {to}, found {reused:02x?} again")
    })?;
    let answered = after.challenges.iter().any(|(sender, data)| {
        *sender == Sender::Client && responses.contains(&(Sender::Server, *data))
    });
    expect(answered, || {
        format!("expected an answer to a PATH_CHALLENGE to {to}, found none")
    })?;
    let one_rtt = recording.decrypted.sent(Sender::Server, PacketType::OneRtt);
    let data = one_rtt.filter(|sent| sent.path.1 == *to).any(|sent| {
        sent.frames()
            .any(|frame| matches!(frame, Frame::Stream { .. }))
    });
    expect(data, || {
        format!("expected the download to go on from {to}, found no data from there")
    })
}

pub(crate) fn only_ipv6(recording: &Recording) -> Result<(), String> {
    let mut datagrams = recording.headers.datagrams.iter();
    let other = datagrams.find(|it| it.client.is_ipv4() || it.server.is_ipv4());
    expect(other.is_none(), || {
        "expected only IPv6, found IPv4".to_owned()
    })
}

#[cfg(test)]
mod tests;
