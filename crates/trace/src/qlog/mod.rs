//! qlog, written and read.
//!
//! Written: draft-ietf-quic-qlog-main-schema-14 and
//! draft-ietf-quic-qlog-quic-events-13 as JSON text sequences, or on request the
//! names of 0.3 that qvis and older tools know ([`Dialect::Qvis`]). Read: both,
//! and what other stacks make of them.

mod dir;
mod encode;
mod json;
mod reader;
mod spool;
mod writer;

pub use self::dir::{Qlog, QlogDir};
pub use self::reader::{Header, Problems, ReadError, Reader};
pub use self::spool::{Spool, Spooled};
pub use self::writer::{Description, Writer, WriterStats};

/// The draft of the QUIC events that is written.
pub const QUIC_EVENTS_DRAFT: u32 = 13;
/// The draft of the main schema that is written.
pub const MAIN_SCHEMA_DRAFT: u32 = 14;

/// Which names a writer uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The newest drafts.
    #[default]
    Newest,
    /// qlog 0.3 as qvis reads it: `transport:packet_sent`,
    /// `recovery:metrics_updated` and so on.
    Qvis,
}
