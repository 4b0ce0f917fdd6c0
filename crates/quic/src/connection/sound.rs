//! Settings without the feature: no defects, and nothing to pay for them.

use super::config::Config;
use crate::defects::Quirk;
use crate::error::TransportError;

#[expect(
    clippy::unused_self,
    reason = "with the feature, they ask the defect of these settings"
)]
impl Config {
    #[inline(always)]
    pub(crate) fn forgive(&self, error: TransportError) -> Result<(), TransportError> {
        Err(error)
    }

    #[inline(always)]
    pub(crate) fn ignores_version(&self, _dcid: &[u8]) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn has(&self, _quirk: Quirk) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn shows(&self, _quirk: Quirk, _when: impl FnOnce() -> bool) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn refuse_if(&self, _quirk: Quirk) -> Result<(), TransportError> {
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn has_succumbed(&self) -> bool {
        false
    }
}
