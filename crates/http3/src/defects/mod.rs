//! Connections with one defect, for those who test what finds defects (feature `defects`): see
//! `clearway_quic::defects`. Without the feature nothing is left of them.

#[cfg(feature = "defects")]
mod reported;
#[cfg(not(feature = "defects"))]
mod sound;

#[cfg(feature = "defects")]
pub use self::reported::Defects;
#[cfg(feature = "defects")]
pub(crate) use self::reported::{WRONG, harmless_request, harmless_section};
#[cfg(not(feature = "defects"))]
pub(crate) use self::sound::{harmless_request, harmless_section};

/// Something that a correct connection does, and one with this defect does not.
#[cfg_attr(
    not(feature = "defects"),
    allow(dead_code, reason = "nothing has a defect without the feature")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// Settings that nobody knows are an error.
    RefusesUnknownSettings,
    /// Frames that nobody knows are an error.
    RefusesUnknownFrames,
    /// Streams that nobody knows are an error.
    RefusesUnknownStreams,
    /// The field `te` makes a request malformed.
    RefusesTe,
    /// A Stream Cancellation is an error.
    RefusesCancellations,
    /// Field sections of any size are accepted.
    IgnoresSectionLimit,
}
