//! What an ordinary client of the prober does, so that anything else can be told from it.

use clearway_quic::wire::Frames;
use clearway_quic::wire::frame::Frame;

use crate::raw::Kept;
use crate::wire::packet::Level;
use crate::wire::parameters::Parameters;

/// Most packets of an ordinary client.
const MAX_PACKETS: usize = 60;

/// What one client has done.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    packets: usize,
    largest: [Option<u64>; 3],
    crypto: [u64; 3],
    closed: bool,
}

impl Conduct {
    /// Returns whether a packet is one that an ordinary client may send at this point. `sent`
    /// is the number of the next packet that the server sends.
    pub(super) fn allows(&mut self, packet: &Kept, sent: u64) -> bool {
        let reserved = match packet.level {
            Level::OneRtt => 0x18,
            Level::Initial | Level::ZeroRtt | Level::Handshake => 0x0c,
        };
        let space = packet.level.space();
        let gap = self.largest[space].is_some_and(|largest| packet.number > largest + 40);
        self.largest[space] = self.largest[space].max(Some(packet.number));
        self.packets += 1;
        let header = packet.first & reserved == 0 && packet.first & 0x40 != 0 && !packet.updated;
        if !header || gap || self.closed || self.packets > MAX_PACKETS || packet.payload.is_empty()
        {
            return false;
        }
        for frame in Frames::new(&packet.payload) {
            if !frame.is_ok_and(|frame| self.allows_frame(packet.level, &frame, sent)) {
                return false;
            }
        }
        true
    }

    fn allows_frame(&mut self, level: Level, frame: &Frame<'_>, sent: u64) -> bool {
        match frame {
            Frame::Padding { .. } => true,
            Frame::Ping => level == Level::OneRtt,
            Frame::Ack(ack) => ack.ecn.is_none() && ack.largest < sent,
            Frame::Crypto { offset, data } => {
                // Nothing of TLS comes in 1-RTT packets of a client.
                let expected = &mut self.crypto[level.space()];
                let in_order = *offset <= *expected;
                *expected = (*expected).max(offset + data.len() as u64);
                in_order && level != Level::OneRtt
            }
            Frame::Stream {
                id,
                offset: 0,
                fin,
                data,
            } => match id.as_u64() {
                2 => *data == [0x00, 0x04, 0x02, 0x33, 0x01] && !fin,
                6 => *data == [0x02] && !fin,
                10 => *data == [0x03] && !fin,
                id => id & 3 == 0 && *fin && is_ordinary_get(data),
            },
            Frame::ApplicationClose { code: 0x100, .. } => {
                self.closed = true;
                true
            }
            Frame::Stream { .. }
            | Frame::ApplicationClose { .. }
            | Frame::ResetStream { .. }
            | Frame::ResetStreamAt { .. }
            | Frame::StopSending { .. }
            | Frame::NewToken(_)
            | Frame::MaxData(_)
            | Frame::MaxStreamData { .. }
            | Frame::MaxStreams { .. }
            | Frame::DataBlocked { .. }
            | Frame::StreamDataBlocked { .. }
            | Frame::StreamsBlocked { .. }
            | Frame::NewConnectionId { .. }
            | Frame::RetireConnectionId { .. }
            | Frame::PathChallenge(_)
            | Frame::PathResponse(_)
            | Frame::ConnectionClose { .. }
            | Frame::HandshakeDone
            | Frame::Datagram(_)
            | Frame::AckFrequency { .. }
            | Frame::ImmediateAck => false,
        }
    }
}

/// Returns whether this is one HEADERS frame with the four fields of a GET.
fn is_ordinary_get(data: &[u8]) -> bool {
    let frames = crate::wire::http::frames(data);
    let [frame] = frames.as_slice() else {
        return false;
    };
    let names: [&[u8]; 4] = [b":method", b":scheme", b":authority", b":path"];
    let mut rest = frame.payload.get(2..).unwrap_or_default();
    for name in names {
        // A literal name of up to some ten bytes, then a short value (RFC 9204 §4.5.6).
        let Some(at) = rest.windows(name.len()).position(|window| window == name) else {
            return false;
        };
        let value_at = at + name.len();
        if at > 2 {
            return false;
        }
        let Some(len) = rest.get(value_at) else {
            return false;
        };
        let Some(behind) = rest.get(value_at + 1 + usize::from(*len)..) else {
            return false;
        };
        if *len == 0 {
            return false;
        }
        rest = behind;
    }
    frame.kind == crate::wire::http::kind::HEADERS && rest.is_empty()
}

/// Returns whether these are the transport parameters of an ordinary client, whose packets have
/// this source connection ID.
pub(super) fn are_ordinary_parameters(bytes: &[u8], cid: &[u8]) -> bool {
    let ordinary = Parameters::ordinary(cid);
    // rustls returns the extension's content as it came.
    bytes == ordinary.encode()
}
