//! The errors that a defect can ignore, and what stands for them.

use clearway_quic::defects::{Check, Reported};

use super::Quirk;
use crate::error::{Code, ConnectionError, ReceiveError, StreamError};
use crate::head::Request;
use crate::qpack::Field;

/// The defect of a server, shared by all its connections, and what came of it.
pub type Defects = clearway_quic::defects::Defects<Quirk>;

/// No peer expects it.
pub(crate) const WRONG: Code = Code::VERSION_FALLBACK;

impl Reported for ConnectionError {
    fn check(&self) -> Check {
        Check {
            code: self.code.0,
            frame: None,
            reason: self.reason.to_string(),
        }
    }

    fn miscoded(self) -> Self {
        Self {
            code: WRONG,
            ..self
        }
    }
}

impl Reported for StreamError {
    fn check(&self) -> Check {
        Check {
            code: self.code.0,
            frame: None,
            reason: self.reason.to_owned(),
        }
    }

    fn miscoded(self) -> Self {
        Self {
            code: WRONG,
            ..self
        }
    }
}

impl Reported for ReceiveError {
    fn check(&self) -> Check {
        match self {
            Self::Stream(error) => error.check(),
            Self::Connection(error) => error.check(),
        }
    }

    fn miscoded(self) -> Self {
        match self {
            Self::Stream(error) => Self::Stream(error.miscoded()),
            Self::Connection(error) => Self::Connection(error.miscoded()),
        }
    }
}

/// Returns what a malformed request is taken for if the check of it is off.
pub(crate) fn harmless_request() -> Request {
    Request::get("localhost", "/")
}

/// Returns what a field section that cannot be decoded is taken for if the check of it is off.
pub(crate) fn harmless_section() -> Vec<Field> {
    let field = |name: &'static str, value: &'static str| Field {
        name: name.into(),
        value: value.into(),
        sensitive: false,
    };
    vec![
        field(":method", "GET"),
        field(":scheme", "https"),
        field(":authority", "localhost"),
        field(":path", "/"),
    ]
}
