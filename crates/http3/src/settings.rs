//! SETTINGS: the configuration of an endpoint (RFC 9114 §7.2.4).

use clearway_quic::wire::Reader;
use clearway_quic::wire::cursor::varint_len;

use crate::error::{Code, ConnectionError};
use crate::frame::{FrameHeader, FrameKind, put_varint};
use crate::stream_kind::reserved;
use crate::webtransport::SessionLimits;

const QPACK_MAX_TABLE_CAPACITY: u64 = 0x01;
const MAX_FIELD_SECTION_SIZE: u64 = 0x06;
const QPACK_BLOCKED_STREAMS: u64 = 0x07;
/// RFC 9220 §5.
const ENABLE_CONNECT_PROTOCOL: u64 = 0x08;
/// RFC 9297 §5.1.
const H3_DATAGRAM: u64 = 0x33;
/// SETTINGS_H3_DATAGRAM of draft-ietf-masque-h3-datagram-04, which WebTransport clients of that
/// time look for.
const H3_DATAGRAM_DRAFT_04: u64 = 0xff_d277;
/// SETTINGS_ENABLE_WEBTRANSPORT of draft-ietf-webtrans-http3-02 to -06: Chromium.
const WEBTRANSPORT_DRAFT_02: u64 = 0x2b60_3742;
/// SETTINGS_WEBTRANSPORT_MAX_SESSIONS of draft-ietf-webtrans-http3-07 to -12.
const WEBTRANSPORT_DRAFT_07: u64 = 0xc671_706a;
/// SETTINGS_WT_MAX_SESSIONS of draft-ietf-webtrans-http3-13 and -14: Safari. A value above 1 means
/// that there is flow control by session (§5.1).
const WEBTRANSPORT_DRAFT_13: u64 = 0x14e9_cd29;
/// SETTINGS_WT_ENABLED of draft-ietf-webtrans-http3-15.
const WEBTRANSPORT_DRAFT_15: u64 = 0x2c7c_f000;

/// SETTINGS_WT_INITIAL_MAX_DATA, _STREAMS_UNI and _STREAMS_BIDI (draft-ietf-webtrans-http3-16
/// §9.2).
const WEBTRANSPORT_MAX_DATA: u64 = 0x2b61;
const WEBTRANSPORT_MAX_STREAMS_UNI: u64 = 0x2b64;
const WEBTRANSPORT_MAX_STREAMS_BIDI: u64 = 0x2b65;

/// The known settings; the default is their initial values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The largest field section that the endpoint accepts, in bytes as RFC 9114 §4.2.2 counts
    /// them; `None` means unlimited.
    pub max_field_section_size: Option<u64>,
    /// The largest QPACK dynamic table, in bytes (RFC 9204 §5).
    pub qpack_max_table_capacity: u64,
    /// The maximum number of streams that may be blocked on the dynamic table (RFC 9204 §5).
    pub qpack_blocked_streams: u64,
    /// Whether extended CONNECT is supported (RFC 9220 §3); sent by servers only.
    pub enable_connect_protocol: bool,
    /// Whether HTTP datagrams are supported (RFC 9297 §2.1.1).
    pub h3_datagram: bool,
    /// How many WebTransport sessions may be open at once, in any of the drafts; 0 if WebTransport
    /// is not supported (draft-ietf-webtrans-http3 §3.1). Most drafts announce only 0 or 1; 65,535
    /// stands for more, too.
    pub webtransport_sessions: u16,
    /// Limits of each WebTransport session on the peer; 0 in all if there is no flow control by
    /// session (draft-ietf-webtrans-http3-16 §5.5).
    pub session_limits: SessionLimits,
}

impl Settings {
    /// Appends a SETTINGS frame, without the settings that have their initial value. With `grease`,
    /// it has a reserved setting too (RFC 9114 §7.2.4.1).
    pub fn encode(&self, grease: Option<u64>, out: &mut Vec<u8>) {
        let grease = grease.map(|n| (reserved(n % GREASE_SPACE), n >> 8 & 0xffff));
        let pairs = self.pairs().into_iter().flatten().chain(grease);
        let len = pairs
            .clone()
            .map(|(id, value)| varint_len(id).saturating_add(varint_len(value)) as u64)
            .sum();
        let kind = FrameKind::Settings;
        FrameHeader { kind, len }.encode(out);
        put_pairs(pairs, out);
    }

    /// Returns the payload of the SETTINGS frame, which [`decode`](Self::decode) reads: to be
    /// stored with a session ticket (RFC 9114 §7.2.4.2).
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_pairs(self.pairs().into_iter().flatten(), &mut out);
        out
    }

    fn pairs(&self) -> [Option<(u64, u64)>; 13] {
        let nonzero = |id, value: u64| (value != 0).then_some((id, value));
        let webtransport = |id| nonzero(id, self.webtransport_sessions.min(1).into());
        [
            nonzero(QPACK_MAX_TABLE_CAPACITY, self.qpack_max_table_capacity),
            self.max_field_section_size
                .map(|size| (MAX_FIELD_SECTION_SIZE, size)),
            nonzero(QPACK_BLOCKED_STREAMS, self.qpack_blocked_streams),
            nonzero(
                ENABLE_CONNECT_PROTOCOL,
                u64::from(self.enable_connect_protocol),
            ),
            nonzero(H3_DATAGRAM, u64::from(self.h3_datagram)),
            webtransport(H3_DATAGRAM_DRAFT_04),
            webtransport(WEBTRANSPORT_DRAFT_02),
            nonzero(WEBTRANSPORT_DRAFT_07, self.webtransport_sessions.into()),
            webtransport(WEBTRANSPORT_DRAFT_13),
            webtransport(WEBTRANSPORT_DRAFT_15),
            nonzero(WEBTRANSPORT_MAX_DATA, self.session_limits.data),
            nonzero(
                WEBTRANSPORT_MAX_STREAMS_UNI,
                self.session_limits.uni_streams,
            ),
            nonzero(
                WEBTRANSPORT_MAX_STREAMS_BIDI,
                self.session_limits.bidi_streams,
            ),
        ]
    }

    /// Decodes the payload of a SETTINGS frame.
    ///
    /// # Errors
    /// `H3_FRAME_ERROR` if the payload is truncated; `H3_SETTINGS_ERROR` for a setting that appears
    /// twice, is reserved because HTTP/2 used it, or has an invalid value.
    pub fn decode(payload: &[u8]) -> Result<Self, ConnectionError> {
        let mut settings = Self::default();
        let mut seen = Vec::new();
        let mut r = Reader::new(payload);
        while !r.is_empty() {
            let (Some(id), Some(value)) = (r.varint(), r.varint()) else {
                let reason = "SETTINGS payload ends within a setting";
                return Err(ConnectionError::new(Code::FRAME_ERROR, reason));
            };
            settings.set(id, value)?;
            seen.push(id);
        }
        seen.sort_unstable();
        let mut pairs = seen.iter().zip(seen.iter().skip(1));
        match pairs.find(|(id, next)| id == next) {
            Some((id, _)) => Err(wrong(format!("setting {id:#x} appears twice"))),
            None => Ok(settings),
        }
    }

    /// Returns whether a payload has settings that this endpoint does not know.
    pub(crate) fn has_unknown(payload: &[u8]) -> bool {
        let known = |id| {
            matches!(
                id,
                QPACK_MAX_TABLE_CAPACITY
                    | MAX_FIELD_SECTION_SIZE
                    | QPACK_BLOCKED_STREAMS
                    | ENABLE_CONNECT_PROTOCOL
                    | H3_DATAGRAM
            )
        };
        let mut r = Reader::new(payload);
        core::iter::from_fn(|| Some((r.varint()?, r.varint()?))).any(|(id, _)| !known(id))
    }

    fn set(&mut self, id: u64, value: u64) -> Result<(), ConnectionError> {
        match id {
            QPACK_MAX_TABLE_CAPACITY => self.qpack_max_table_capacity = value,
            MAX_FIELD_SECTION_SIZE => self.max_field_section_size = Some(value),
            QPACK_BLOCKED_STREAMS => self.qpack_blocked_streams = value,
            ENABLE_CONNECT_PROTOCOL => self.enable_connect_protocol = flag(id, value)?,
            H3_DATAGRAM => self.h3_datagram = flag(id, value)?,
            WEBTRANSPORT_DRAFT_02
            | WEBTRANSPORT_DRAFT_07
            | WEBTRANSPORT_DRAFT_13
            | WEBTRANSPORT_DRAFT_15 => {
                let sessions = u16::try_from(value).unwrap_or(u16::MAX);
                self.webtransport_sessions = self.webtransport_sessions.max(sessions);
            }
            WEBTRANSPORT_MAX_DATA => self.session_limits.data = value,
            WEBTRANSPORT_MAX_STREAMS_UNI => self.session_limits.uni_streams = value,
            WEBTRANSPORT_MAX_STREAMS_BIDI => self.session_limits.bidi_streams = value,
            // RFC 9114 §7.2.4.1, §11.2.2: reserved, because HTTP/2 used them.
            0x00 | 0x02..=0x05 => {
                let reason = format!("setting {id:#x} is an HTTP/2 setting, reserved in HTTP/3");
                return Err(wrong(reason));
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that whatever a client sent under the remembered settings `earlier` is allowed under
    /// these: a server may accept 0-RTT only if that holds, and a client may insist on it once
    /// 0-RTT was accepted (RFC 9114 §7.2.4.2, RFC 9204 §3.2.3, RFC 9220 §3, RFC 9297 §2.1.1).
    ///
    /// # Errors
    /// The code to close with, and the setting that was reduced.
    pub fn check_compatible(&self, earlier: &Self) -> Result<(), ConnectionError> {
        let size = |s: &Self| s.max_field_section_size.unwrap_or(u64::MAX);
        let omitted = earlier
            .max_field_section_size
            .is_some_and(|size| size < u64::MAX)
            && self.max_field_section_size.is_none();
        if omitted || size(self) < size(earlier) {
            return Err(reduced("SETTINGS_MAX_FIELD_SECTION_SIZE"));
        }
        if self.qpack_blocked_streams < earlier.qpack_blocked_streams {
            return Err(reduced("SETTINGS_QPACK_BLOCKED_STREAMS"));
        }
        if earlier.enable_connect_protocol && !self.enable_connect_protocol {
            return Err(reduced("SETTINGS_ENABLE_CONNECT_PROTOCOL"));
        }
        if earlier.h3_datagram && !self.h3_datagram {
            return Err(reduced("SETTINGS_H3_DATAGRAM"));
        }
        if self.webtransport_sessions < earlier.webtransport_sessions {
            return Err(reduced("SETTINGS_WT_ENABLED"));
        }
        if !self.session_limits.covers(earlier.session_limits) {
            return Err(reduced("SETTINGS_WT_INITIAL_MAX_*"));
        }
        let capacity = earlier.qpack_max_table_capacity;
        if capacity != 0 && self.qpack_max_table_capacity == 0 {
            return Err(reduced("SETTINGS_QPACK_MAX_TABLE_CAPACITY"));
        }
        if capacity != 0 && self.qpack_max_table_capacity != capacity {
            return Err(ConnectionError::new(
                Code::QPACK_DECODER_STREAM_ERROR,
                "SETTINGS_QPACK_MAX_TABLE_CAPACITY differs from the value remembered for 0-RTT",
            ));
        }
        Ok(())
    }
}

/// How many reserved identifiers we choose from; all of them fit two bytes.
const GREASE_SPACE: u64 = 500;

fn put_pairs(pairs: impl Iterator<Item = (u64, u64)>, out: &mut Vec<u8>) {
    for (id, value) in pairs {
        put_varint(out, id);
        put_varint(out, value);
    }
}

fn flag(id: u64, value: u64) -> Result<bool, ConnectionError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(wrong(format!(
            "setting {id:#x} must be 0 or 1, found {value}"
        ))),
    }
}

fn wrong(reason: String) -> ConnectionError {
    ConnectionError::new(Code::SETTINGS_ERROR, reason)
}

fn reduced(name: &str) -> ConnectionError {
    wrong(format!(
        "{name} is lower than the value remembered for 0-RTT"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_quic::wire::cursor::VARINT_MAX;
    use proptest::prelude::*;

    const FULL: Settings = Settings {
        max_field_section_size: Some(16_384),
        qpack_max_table_capacity: 4096,
        qpack_blocked_streams: 16,
        enable_connect_protocol: true,
        h3_datagram: true,
        webtransport_sessions: 16,
        session_limits: SessionLimits {
            data: 1 << 20,
            bidi_streams: 100,
            uni_streams: 50,
        },
    };

    fn payload(settings: &Settings, grease: Option<u64>) -> Vec<u8> {
        let mut out = Vec::new();
        settings.encode(grease, &mut out);
        let (header, size) = FrameHeader::parse(&out).unwrap();
        assert_eq!(header.kind, FrameKind::Settings);
        assert_eq!(out.len() - size, header.len as usize);
        out.split_off(size)
    }

    fn code(pairs: &[(u64, u64)]) -> Option<Code> {
        let mut out = Vec::new();
        for &(id, value) in pairs {
            put_varint(&mut out, id);
            put_varint(&mut out, value);
        }
        Settings::decode(&out).err().map(|e| e.code)
    }

    #[test]
    fn limit_above_62_bits_is_announced_as_the_largest() {
        let settings = Settings {
            max_field_section_size: Some(1 << 62),
            ..Settings::default()
        };
        let read = Settings::decode(&payload(&settings, None)).unwrap();
        assert_eq!(read.max_field_section_size, Some(VARINT_MAX));
    }

    #[test]
    fn settings_round_trip_with_and_without_grease() {
        for settings in [Settings::default(), FULL] {
            for grease in [None, Some(0), Some(u64::MAX >> 2)] {
                let payload = payload(&settings, grease);
                assert_eq!(Settings::decode(&payload), Ok(settings));
            }
        }
        assert_eq!(FULL.payload(), payload(&FULL, None));
        assert!(payload(&Settings::default(), None).is_empty());
        assert!(!payload(&Settings::default(), Some(7)).is_empty());
    }

    #[test]
    fn invalid_settings_are_rejected_with_their_codes() {
        let wrong = Some(Code::SETTINGS_ERROR);
        for id in [0, 2, 3, 4, 5] {
            assert_eq!(code(&[(id, 1)]), wrong, "HTTP/2's {id}");
        }
        assert_eq!(code(&[(6, 1), (6, 1)]), wrong);
        assert_eq!(
            code(&[(0x21, 1), (7, 0), (0x21, 2)]),
            wrong,
            "unknown twice"
        );
        assert_eq!(code(&[(8, 2)]), wrong);
        assert_eq!(code(&[(0x33, 2)]), wrong);
        assert_eq!(code(&[(0x21, 1), (0x40, 1), (1 << 61, 9)]), None);
        let cut = Settings::decode(&[6]).unwrap_err();
        assert_eq!(cut.code, Code::FRAME_ERROR);
        let cut = Settings::decode(&[6, 0x40]).unwrap_err();
        assert_eq!(cut.code, Code::FRAME_ERROR);
    }

    #[test]
    fn settings_below_the_remembered_ones_are_incompatible() {
        let ok = |now: Settings| now.check_compatible(&FULL).err().map(|e| e.code);
        assert_eq!(ok(FULL), None);
        let wrong = Some(Code::SETTINGS_ERROR);
        let with = |change: fn(&mut Settings)| {
            let mut settings = FULL;
            change(&mut settings);
            ok(settings)
        };
        assert_eq!(with(|s| s.max_field_section_size = Some(16_383)), wrong);
        assert_eq!(with(|s| s.max_field_section_size = Some(99_999)), None);
        assert_eq!(with(|s| s.max_field_section_size = None), wrong);
        assert_eq!(with(|s| s.qpack_blocked_streams = 15), wrong);
        assert_eq!(with(|s| s.enable_connect_protocol = false), wrong);
        assert_eq!(with(|s| s.session_limits.data -= 1), wrong);
        assert_eq!(with(|s| s.session_limits.uni_streams -= 1), wrong);
        assert_eq!(with(|s| s.session_limits.bidi_streams -= 1), wrong);
        assert_eq!(with(|s| s.h3_datagram = false), wrong);
        assert_eq!(with(|s| s.qpack_max_table_capacity = 0), wrong);
        let changed = Some(Code::QPACK_DECODER_STREAM_ERROR);
        assert_eq!(with(|s| s.qpack_max_table_capacity = 8192), changed);
        let first_limit = FULL.check_compatible(&Settings::default());
        assert_eq!(first_limit.unwrap_err().code, Code::SETTINGS_ERROR);
        let unlimited = Settings {
            max_field_section_size: None,
            ..FULL
        };
        assert_eq!(unlimited.check_compatible(&Settings::default()), Ok(()));
    }

    proptest! {
        #[test]
        fn any_payload_is_decoded_or_rejected(payload in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(settings) = Settings::decode(&payload) {
                let mut out = Vec::new();
                settings.encode(None, &mut out);
                let (_, size) = FrameHeader::parse(&out).unwrap();
                prop_assert_eq!(Settings::decode(&out[size..]), Ok(settings));
            }
        }
    }
}
