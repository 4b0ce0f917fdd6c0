//! Settings without the feature `defects`: no defects, and nothing to pay for them.

use super::Config;
use crate::defects::Quirk;
use crate::error::ConnectionError;

#[expect(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    reason = "with the feature, they ask the defect of these settings"
)]
impl Config {
    #[inline(always)]
    pub(crate) fn forgive<E>(&self, error: E) -> Result<(), E> {
        Err(error)
    }

    #[inline(always)]
    pub(crate) fn refuse_if(&self, _quirk: Quirk) -> Result<(), ConnectionError> {
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn refuse_when(
        &self,
        _quirk: Quirk,
        _when: impl FnOnce() -> bool,
    ) -> Result<(), ConnectionError> {
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn section_limit(&self) -> u64 {
        self.limits.max_field_section
    }
}
