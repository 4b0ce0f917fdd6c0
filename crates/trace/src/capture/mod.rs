//! Packet captures, and Chrome's netlog, as traces.
//!
//! ```text
//! file         pcapng and pcap: packets with their times, and the secrets in them
//! datagram     link, IP and UDP headers
//! key_log      TLS secrets in the format of SSLKEYLOGFILE
//! keys         packet protection of an observer (RFC 9001 §5)
//! hello        what the TLS messages say: client random, cipher suite, parameters
//! packets      a packet capture as the events of both ends
//! connection   the packets of one connection, decrypted
//! demultiplex  which connection a datagram belongs to
//! end/         what one end did, derived from the packets that it sent and received
//! wire         a recording's packets themselves, for checks of what was sent
//! netlog       the log of Chrome's network stack
//! ```
//!
//! A capture records packets, and no reasons. [`Reader`] therefore derives the rest for each of
//! the two ends, as far as packets show it:
//!
//! | derived | from |
//! |---|---|
//! | RTT | an acknowledgement and the packet it acknowledges (RFC 9002 §5) |
//! | lost packets | packets acknowledged after them, by the thresholds of RFC 9002 §6.1 |
//! | probe timeouts | repeated or extra data after a silence of a probe timeout |
//! | flow control | offsets sent, and the limits in parameters and MAX_* frames |
//! | the limit of sending | what made the sender continue: an ACK (the window was full), time (pacing or the application), or credit |
//! | the congestion window | the bytes in flight while that limit was the window |
//!
//! What a controller decided and why is not on the wire: findings of the controller's states,
//! and causes within it, need a qlog.
//!
//! If a capture was taken away from an end, its times are moved by half of the round trip
//! between both, which the handshake and acknowledgements show.

mod connection;
mod crypto_stream;
mod datagram;
mod delay;
mod demultiplex;
mod end;
mod file;
mod hello;
mod input;
mod key_log;
mod keys;
mod netlog;
mod packets;
mod reader;
mod wire;

pub use self::file::FileError;
pub use self::key_log::{KeyLog, KeyLogError};
pub use self::reader::{CapturedEvent, CapturedTrace, MAX_CONNECTIONS, Problems, Reader};
pub use self::wire::{DecryptedPacket, RecordedDatagram, Wire, WireData, WireEvent};

/// Number of bytes by which a capture is recognised.
pub const MAGIC_LEN: usize = 32;

/// Whether a file that begins with these bytes is a packet capture (pcapng or pcap) or a netlog.
#[must_use]
pub fn is_capture(begin: &[u8]) -> bool {
    file::Format::of(begin).is_some() || is_netlog(begin)
}

fn is_netlog(begin: &[u8]) -> bool {
    begin.trim_ascii_start().starts_with(b"{\"constants\"")
}

#[cfg(test)]
mod tests;
