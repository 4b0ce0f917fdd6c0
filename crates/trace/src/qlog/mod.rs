//! Writing and reading qlog.
//!
//! Written: draft-ietf-quic-qlog-main-schema-14 and draft-ietf-quic-qlog-quic-events-13 as JSON
//! text sequences, or on request the names of qlog 0.3 that qvis and older tools know
//! ([`Dialect::Qvis`]). Read: both, and the variants that other stacks write.

mod dir;
mod encode;
mod json;
mod reader;
mod spool;
mod writer;

pub use self::dir::{Qlog, QlogDir, QlogFailure};
pub(crate) use self::reader::Splitter;
pub use self::reader::{Header, Problems, ReadError, Reader};
pub use self::spool::{Spool, SpoolOutput};
pub use self::writer::{Description, Writer, WriterStats};

/// The draft of the QUIC events that is written.
pub const QUIC_EVENTS_DRAFT: u32 = 13;
/// The draft of the main schema that is written.
pub const MAIN_SCHEMA_DRAFT: u32 = 14;

/// The names that a writer uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Those of the newest drafts.
    #[default]
    Newest,
    /// qlog 0.3 as qvis reads it: `transport:packet_sent`,
    /// `recovery:metrics_updated` and so on.
    Qvis,
}

impl core::str::FromStr for Dialect {
    type Err = String;

    /// Accepts `draft` and `qvis`.
    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "draft" => Ok(Self::Newest),
            "qvis" => Ok(Self::Qvis),
            other => Err(format!(
                "unknown qlog dialect {other:?}; expected \"draft\" or \"qvis\""
            )),
        }
    }
}
