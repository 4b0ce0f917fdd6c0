//! Packet captures as files: pcapng (draft-ietf-opsawg-pcapng) and the older pcap
//! (draft-ietf-opsawg-pcap).

use std::io::{self, Read};

use super::input::Input;

/// Maximum size of a block or packet in bytes; Wireshark's own limit is 16 MiB too.
const MAX_BLOCK: u32 = 16 << 20;
/// Maximum number of interfaces of a section that are remembered.
const MAX_INTERFACES: usize = 1024;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const SECRETS: u32 = 10;
/// A Decryption Secrets Block with a TLS key log (§4.7).
const TLS_KEY_LOG: u32 = 0x544c_534b;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

const OPT_END: u16 = 0;
const OPT_TIME_RESOLUTION: u16 = 9;
const OPT_TIME_OFFSET: u16 = 14;

/// Why a capture cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Reading the input failed.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
    /// The file does not begin like a capture.
    #[error(
        "not a packet capture: expected the magic number of pcapng or pcap at offset 0, found \
         {found:#010x}"
    )]
    NotCapture {
        /// The first four bytes.
        found: u32,
    },
    /// The file ends within a block or a packet.
    #[error(
        "the capture is truncated: the {what} at offset {offset} has {expected} bytes, and only \
         {found} are there"
    )]
    Truncated {
        /// What is cut off.
        what: &'static str,
        /// Where it begins.
        offset: u64,
        /// Its length in bytes.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// A length or a number is impossible.
    #[error("the capture is corrupt at offset {offset}: expected {expected}, found {found}")]
    Corrupt {
        /// Where.
        offset: u64,
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: u64,
    },
    /// A netlog does not say which number the events of QUIC have.
    #[error(
        "the netlog cannot be read: expected the number of QUIC_SESSION_PACKET_SENT in \
         constants.logEventTypes at offset {offset}, found {}",
        event_types(*found)
    )]
    Netlog {
        /// Where the constants begin.
        offset: u64,
        /// Number of event types there; `None` if there is no such object.
        found: Option<usize>,
    },
}

fn event_types(found: Option<usize>) -> String {
    match found {
        Some(count) => format!("{count} other event types"),
        None => "no such object".to_owned(),
    }
}

/// The format of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Pcapng,
    Pcap { big_endian: bool, nanos: bool },
}

impl Format {
    /// What the first four bytes say.
    pub(super) fn of(begin: &[u8]) -> Option<Self> {
        let magic: [u8; 4] = begin.get(..4)?.try_into().ok()?;
        let pcap = |big_endian, nanos| Some(Self::Pcap { big_endian, nanos });
        match u32::from_be_bytes(magic) {
            SECTION => Some(Self::Pcapng),
            0xa1b2_c3d4 => pcap(true, false),
            0xd4c3_b2a1 => pcap(false, false),
            0xa1b2_3c4d => pcap(true, true),
            0x4d3c_b2a1 => pcap(false, true),
            _ => None,
        }
    }
}

/// What a file contains.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A packet as it was captured.
    Frame(CapturedFrame),
    /// A TLS key log.
    Secrets(Vec<u8>),
}

/// A packet as it was captured.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CapturedFrame {
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    pub(super) link_type: u16,
    pub(super) data: Vec<u8>,
    /// Whether the capture kept only its beginning.
    pub(super) cut: bool,
}

/// An interface of a section.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    snap_len: u32,
    /// Units in a second.
    units: u64,
    /// Seconds added to all times.
    offset: i64,
}

/// Reads a capture, one record at a time.
#[derive(Debug)]
pub(super) struct CaptureFile<R> {
    input: Input<R>,
    format: Format,
    big_endian: bool,
    interfaces: Vec<Interface>,
    body: Vec<u8>,
    last_time: u64,
    /// The section header's type has been read already.
    begun: bool,
}

impl<R: Read> CaptureFile<R> {
    /// Reads the file's header.
    ///
    /// # Errors
    /// If it is not a capture.
    pub(super) fn new(inner: R) -> Result<Self, FileError> {
        let mut input = Input::new(inner);
        let mut body = Vec::new();
        input.read(4, &mut body)?;
        let found = word(&body, 0, true).unwrap_or(0);
        let format = Format::of(&body).ok_or(FileError::NotCapture { found })?;
        let mut file = Self {
            input,
            format,
            big_endian: false,
            interfaces: Vec::new(),
            body,
            last_time: 0,
            begun: true,
        };
        if let Format::Pcap { big_endian, nanos } = format {
            file.big_endian = big_endian;
            file.fill(20, 4, 0, "file header")?;
            file.interfaces.push(Interface {
                link_type: word(&file.body, 16, big_endian).unwrap_or(0) as u16,
                snap_len: u32::MAX,
                units: if nanos { 1_000_000_000 } else { 1_000_000 },
                offset: 0,
            });
        }
        Ok(file)
    }

    /// Bytes read so far.
    pub(super) const fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// If reading fails, or the rest of the file cannot be understood.
    pub(super) fn next(&mut self) -> Result<Option<Record>, FileError> {
        match self.format {
            Format::Pcap { .. } => self.next_pcap(),
            Format::Pcapng => loop {
                match self.next_block()? {
                    None => return Ok(None),
                    Some(None) => {}
                    Some(Some(record)) => return Ok(Some(record)),
                }
            },
        }
    }

    /// Reads exactly `len` bytes into the body. `before` of the `what` at `offset` have been read.
    fn fill(
        &mut self,
        len: u32,
        before: u64,
        offset: u64,
        what: &'static str,
    ) -> Result<(), FileError> {
        let wanted = usize::try_from(len).unwrap_or(usize::MAX);
        self.input.read(wanted, &mut self.body)?;
        if self.body.len() == wanted {
            return Ok(());
        }
        Err(FileError::Truncated {
            what,
            offset,
            expected: u64::from(len).saturating_add(before),
            found: (self.body.len() as u64).saturating_add(before),
        })
    }

    fn next_pcap(&mut self) -> Result<Option<Record>, FileError> {
        let start = self.input.offset();
        self.input.read(16, &mut self.body)?;
        if self.body.is_empty() {
            return Ok(None);
        }
        if self.body.len() < 16 {
            return Err(FileError::Truncated {
                what: "packet header",
                offset: start,
                expected: 16,
                found: self.body.len() as u64,
            });
        }
        let field = |at| word(&self.body, at, self.big_endian).unwrap_or(0);
        let (seconds, fraction, captured, original) = (field(0), field(4), field(8), field(12));
        check_len(captured, start.saturating_add(8), "the length of a packet")?;
        self.fill(captured, 16, start, "packet")?;
        let units = self.interfaces.first().map_or(1, |it| it.units);
        let time = u64::from(seconds)
            .saturating_mul(1_000_000_000)
            .saturating_add(scale(u64::from(fraction), units));
        self.last_time = time;
        Ok(Some(Record::Frame(CapturedFrame {
            time,
            link_type: self.interfaces.first().map_or(0, |it| it.link_type),
            data: core::mem::take(&mut self.body),
            cut: captured < original,
        })))
    }

    /// Reads a block of pcapng: `None` at the end, `Some(None)` for one that says nothing.
    fn next_block(&mut self) -> Result<Option<Option<Record>>, FileError> {
        let start = if self.begun { 0 } else { self.input.offset() };
        if !self.begun {
            self.input.read(4, &mut self.body)?;
            if self.body.is_empty() {
                return Ok(None);
            }
        }
        self.begun = false;
        let kind = word(&self.body, 0, self.big_endian);
        let Some(kind) = kind else {
            return Err(FileError::Truncated {
                what: "block",
                offset: start,
                expected: 12,
                found: self.body.len() as u64,
            });
        };
        self.fill(4, 4, start, "block header")?;
        let mut length = core::mem::take(&mut self.body);
        if kind == SECTION {
            self.begin_section(start)?;
            length.extend_from_slice(&self.body);
        }
        let before = (length.len() as u64).saturating_add(4);
        let length = word(&length, 0, self.big_endian).unwrap_or(0);
        let at = start.saturating_add(4);
        check_len(length, at, "the length of a block")?;
        if !length.is_multiple_of(4) || u64::from(length) < before.saturating_add(4) {
            return Err(FileError::Corrupt {
                offset: at,
                expected: "the length of a block, a multiple of 4 of at least 12",
                found: length.into(),
            });
        }
        let rest = length.saturating_sub(u32::try_from(before).unwrap_or(0));
        self.fill(rest, before, start, "block")?;
        let end = self.body.len().saturating_sub(4);
        let again = word(&self.body, end, self.big_endian);
        if again != Some(length) {
            return Err(FileError::Corrupt {
                offset: start.saturating_add(u64::from(length)).saturating_sub(4),
                expected: "the block's length again",
                found: again.unwrap_or(0).into(),
            });
        }
        self.body.truncate(end);
        Ok(Some(self.block(kind)))
    }

    /// A section has a byte order of its own, and no interfaces yet.
    fn begin_section(&mut self, start: u64) -> Result<(), FileError> {
        self.fill(4, 8, start, "section header")?;
        let magic = word(&self.body, 0, true);
        self.big_endian = match magic {
            Some(BYTE_ORDER) => true,
            Some(other) if other.swap_bytes() == BYTE_ORDER => false,
            other => {
                return Err(FileError::Corrupt {
                    offset: start.saturating_add(8),
                    expected: "the byte-order magic 0x1a2b3c4d",
                    found: other.unwrap_or(0).into(),
                });
            }
        };
        self.interfaces.clear();
        Ok(())
    }

    fn block(&mut self, kind: u32) -> Option<Record> {
        let field = |at| word(&self.body, at, self.big_endian);
        match kind {
            INTERFACE => {
                let interface = self.interface()?;
                if self.interfaces.len() < MAX_INTERFACES {
                    self.interfaces.push(interface);
                }
                None
            }
            ENHANCED_PACKET => {
                let interface = usize::try_from(field(0)?).ok()?;
                self.frame(
                    interface,
                    (field(4)?, field(8)?),
                    20,
                    field(12)?,
                    field(16)?,
                )
            }
            OLD_PACKET => {
                let both = field(0)?;
                // Two bytes of interface, two of drops.
                let interface = if self.big_endian {
                    both >> 16
                } else {
                    both & 0xffff
                };
                let interface = usize::try_from(interface).ok()?;
                self.frame(
                    interface,
                    (field(4)?, field(8)?),
                    20,
                    field(12)?,
                    field(16)?,
                )
            }
            SIMPLE_PACKET => {
                let interface = *self.interfaces.first()?;
                let original = field(0)?;
                let captured = original.min(interface.snap_len);
                let data = take(&self.body, 4, captured);
                Some(Record::Frame(CapturedFrame {
                    time: self.last_time,
                    link_type: interface.link_type,
                    data,
                    cut: captured < original,
                }))
            }
            SECRETS if field(0)? == TLS_KEY_LOG => {
                Some(Record::Secrets(take(&self.body, 8, field(4)?)))
            }
            _ => None,
        }
    }

    fn frame(
        &mut self,
        interface: usize,
        (high, low): (u32, u32),
        at: usize,
        captured: u32,
        original: u32,
    ) -> Option<Record> {
        let interface = *self.interfaces.get(interface)?;
        let units = u64::from(high) << 32 | u64::from(low);
        let nanos = interface.offset.saturating_mul(1_000_000_000);
        let time = scale(units, interface.units).saturating_add_signed(nanos);
        self.last_time = time;
        let data = take(&self.body, at, captured);
        Some(Record::Frame(CapturedFrame {
            time,
            link_type: interface.link_type,
            cut: (data.len() as u64) < u64::from(original),
            data,
        }))
    }

    /// An Interface Description Block (§4.2).
    fn interface(&self) -> Option<Interface> {
        let half = |at: usize| {
            let bytes: [u8; 2] = self.body.get(at..)?.get(..2)?.try_into().ok()?;
            Some(if self.big_endian {
                u16::from_be_bytes(bytes)
            } else {
                u16::from_le_bytes(bytes)
            })
        };
        let snap_len = word(&self.body, 4, self.big_endian)?;
        let mut interface = Interface {
            link_type: half(0)?,
            snap_len: if snap_len == 0 { u32::MAX } else { snap_len },
            units: 1_000_000,
            offset: 0,
        };
        let mut at = 8_usize;
        while let (Some(code), Some(len)) = (half(at), half(at.saturating_add(2))) {
            let value_at = at.saturating_add(4);
            match code {
                OPT_END => break,
                OPT_TIME_RESOLUTION => {
                    let exponent = self.body.get(value_at).copied().unwrap_or(6);
                    interface.units = resolution(exponent);
                }
                OPT_TIME_OFFSET => {
                    let bytes = self.body.get(value_at..).and_then(|rest| rest.get(..8));
                    let bytes: Option<[u8; 8]> = bytes.and_then(|it| it.try_into().ok());
                    interface.offset = bytes.map_or(0, |bytes| {
                        if self.big_endian {
                            i64::from_be_bytes(bytes)
                        } else {
                            i64::from_le_bytes(bytes)
                        }
                    });
                }
                _ => {}
            }
            at = value_at.saturating_add(usize::from(len).next_multiple_of(4));
        }
        Some(interface)
    }
}

/// Units in a second, by the option `if_tsresol`: a power of ten or, with the highest bit, of two.
fn resolution(exponent: u8) -> u64 {
    let power = u32::from(exponent & 0x7f);
    let base: u64 = if exponent & 0x80 == 0 { 10 } else { 2 };
    base.checked_pow(power).unwrap_or(u64::MAX)
}

/// Nanoseconds of a time in `units` of a second.
fn scale(time: u64, units: u64) -> u64 {
    let nanos = u128::from(time)
        .saturating_mul(1_000_000_000)
        .checked_div(u128::from(units));
    u64::try_from(nanos.unwrap_or(0)).unwrap_or(u64::MAX)
}

fn check_len(len: u32, offset: u64, expected: &'static str) -> Result<(), FileError> {
    if len <= MAX_BLOCK {
        return Ok(());
    }
    Err(FileError::Corrupt {
        offset,
        expected,
        found: len.into(),
    })
}

/// Up to `len` bytes from `at`.
fn take(body: &[u8], at: usize, len: u32) -> Vec<u8> {
    let rest = body.get(at..).unwrap_or_default();
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(rest.len());
    rest.get(..len).unwrap_or_default().to_vec()
}

fn word(bytes: &[u8], at: usize, big_endian: bool) -> Option<u32> {
    let bytes: [u8; 4] = bytes.get(at..)?.get(..4)?.try_into().ok()?;
    Some(if big_endian {
        u32::from_be_bytes(bytes)
    } else {
        u32::from_le_bytes(bytes)
    })
}
