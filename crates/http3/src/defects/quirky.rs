//! The defect of a connection.

use clearway_quic::defects::{Check, Reported};

use super::Quirk;
use crate::connection::Config;
use crate::error::{Code, ConnectionError, ReceiveError, StreamError};
use crate::head::Request;
use crate::qpack::Field;

/// The defect of a server, shared by all its connections, and what came of it.
pub type Defects = clearway_quic::defects::Defects<Quirk>;

/// No peer expects it.
const WRONG: Code = Code::VERSION_FALLBACK;

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

impl Config {
    /// Forgives an error that the defect ignores; any other comes back.
    pub(crate) fn forgive<E: Reported>(&self, error: E) -> Result<(), E> {
        match &self.defects {
            Some(defects) => defects.forgive(error),
            None => Err(error),
        }
    }

    /// Fails if this connection has a defect.
    pub(crate) fn refuse_if(&self, quirk: Quirk) -> Result<(), ConnectionError> {
        self.refuse_when(quirk, || true)
    }

    /// Fails if this connection has a defect, and it makes a difference now.
    pub(crate) fn refuse_when(
        &self,
        quirk: Quirk,
        when: impl FnOnce() -> bool,
    ) -> Result<(), ConnectionError> {
        let defects = self.defects.as_ref();
        if defects.is_some_and(|it| it.is(quirk) && when() && it.has(quirk)) {
            let reason = "a defect refuses what is legal";
            return Err(ConnectionError::new(WRONG, reason));
        }
        Ok(())
    }

    /// Returns the largest field section that is accepted.
    pub(crate) fn section_limit(&self) -> u64 {
        let defects = self.defects.as_ref();
        match defects.is_some_and(|it| it.has(Quirk::IgnoresSectionLimit)) {
            true => u64::MAX,
            false => self.limits.max_field_section,
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
