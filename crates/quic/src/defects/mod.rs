//! Connections with one defect, for those who test what finds defects (feature `defects`).
//!
//! Whatever a peer does wrong ends in an error with a code and a reason. The errors pass a few
//! places, and there `Config::forgive` can ignore one of them, or give it another code: then exactly
//! one check is off. A [`Quirk`] is a defect of another kind.
//! Without the feature nothing is left of either.

#[cfg(feature = "defects")]
mod harmless;
#[cfg(feature = "defects")]
mod ledger;

#[cfg(feature = "defects")]
pub(crate) use self::harmless::{harmless_parameters, with_version};
#[cfg(feature = "defects")]
pub(crate) use self::ledger::Account;
#[cfg(feature = "defects")]
pub use self::ledger::{Check, Defect, Defects, Reported};

/// Something that a correct connection or endpoint does, and one with this defect does not.
#[cfg_attr(
    not(feature = "defects"),
    allow(dead_code, reason = "nothing has a defect without the feature")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// A repeated NEW_CONNECTION_ID is an error.
    RefusesRepeatedConnectionIds,
    /// MAX_STREAMS below an earlier limit is an error.
    RefusesLowerMaxStreams,
    /// MAX_DATA below an earlier limit is an error.
    RefusesLowerMaxData,
    /// DATA_BLOCKED and STREAMS_BLOCKED are errors.
    RefusesBlocked,
    /// STREAM without data and end is an error.
    RefusesEmptyStream,
    /// STREAM with data that came before is an error.
    RefusesRepeatedData,
    /// PATH_RESPONSE is an error, with the wrong code.
    RefusesPathResponse,
    /// Packet numbers that are left out are an error.
    RefusesSkippedNumbers,
    /// A fixed bit that is not set is an error.
    RefusesUnsetFixedBit,
    /// A packet that is not authentic is an error.
    RefusesForgedPackets,
    /// Packets with the next keys are dropped.
    IgnoresKeyUpdates,
    /// A key update of the peer is an error.
    RefusesKeyUpdates,
    /// An unknown transport parameter is an error.
    RefusesUnknownParameters,
    /// ECN counts above what was sent are an error.
    RefusesLargeEcnCounts,
    /// ECN counts that decrease are an error.
    RefusesLowerEcnCounts,
    /// A token that this server did not make is an error.
    RefusesUnknownTokens,
    /// PATH_CHALLENGE is not answered.
    IgnoresPathChallenges,
    /// A client that has moved is neither followed nor validated.
    IgnoresMoves,
    /// Packets of a client that has moved are dropped.
    DropsMovedClients,
    /// ECN marks are not counted.
    IgnoresEcnMarks,
    /// CONNECTION_CLOSE is ignored: the connection goes on.
    IgnoresClose,
    /// Packets of unknown versions are not answered.
    IgnoresUnknownVersions,
    /// Packets of unknown versions are answered only if they have connection IDs.
    IgnoresVersionsWithoutIds,
    /// Packets of unknown versions are answered only if version 1 could have their connection
    /// IDs.
    IgnoresVersionsWithLongIds,
    /// Small datagrams of unknown versions are answered, too.
    NegotiatesSmallDatagrams,
    /// A Version Negotiation packet is answered with another.
    AnswersVersionNegotiation,
    /// A connection may begin with a small datagram.
    AcceptsSmallInitials,
    /// A stateless reset is larger than the packet that it answers.
    SendsLargeResets,
    /// Every address counts as validated.
    Amplifies,
    /// A few hundred PATH_CHALLENGE end the service for everybody.
    SuccumbsToPathChallenges,
    /// A few dozen RESET_STREAM end the service for everybody.
    SuccumbsToResets,
    /// A thousand PING end the service for everybody.
    SuccumbsToPings,
}
