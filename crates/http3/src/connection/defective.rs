//! What a connection does with its defect (feature `defects`).

use clearway_quic::defects::Reported;

use super::Config;
use crate::defects::{Quirk, WRONG};
use crate::error::ConnectionError;

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
