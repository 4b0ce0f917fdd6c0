//! The parts that a connection is made of, for tests and fuzzers that drive one alone. Nothing else may depend on
//! them: they change without notice.

pub use crate::cid::local::{LocalCids, MAX_ISSUED, RoutingChange};
pub use crate::cid::remote::RemoteCids;
pub use crate::crypto::client_sessions::MAX_TOKEN_LEN as MAX_STORED_TOKEN_LEN;
pub use crate::crypto::initial::initial_keys;
pub use crate::crypto::keys::{Direction, Keys, TAG_LEN, Unprotected};
pub use crate::crypto::retry::{retry_is_genuine, retry_tag};
pub use crate::crypto::update::{KeyUpdateError, OneRttKeys, OpenedPacket};
pub use crate::path::amplification::Amplification;
pub use crate::path::paths::path::{Addresses, Path, PathDefaults};
pub use crate::path::paths::{
    Effect, Effects, MAX_PATHS, MoveError, PathRole, Paths, RemovalReason,
};
pub use crate::path::validation::{
    ChallengeData, PathValidation, Proof, ValidationFailure, ValidationState,
};
pub use crate::stream::config::PeerLimits;
pub use crate::stream::content::StreamContent;
pub use crate::stream::inspection::ProductiveWork;
pub use crate::stream::state::{
    IllegalTransition, RecvState, RecvTransition, SendState, SendTransition,
};
pub use crate::stream::streams::{Counts, Sendability, Streams};
pub use crate::wire::header::encode::{HeaderPositions, LongHeader, LongKind, ShortHeader};
pub use crate::wire::header::unprotected::UnprotectedHeader;
pub use crate::wire::number::TruncatedNumber;
pub use crate::wire::ranges::RangeSet;
pub use crate::wire::retry::{MAX_TOKEN_LEN, Retry};

/// Version Negotiation packets.
pub mod negotiation {
    pub use crate::wire::negotiation::{Versions, encode};
}
