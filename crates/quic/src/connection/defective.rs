//! What a connection or endpoint does with its defect (feature `defects`).

use super::config::Config;
use crate::defects::{Account, Check, Quirk, Reported};
use crate::error::{Code, TransportError};
use crate::wire::{Frame, Reader, TransportParameters};

/// The largest transport parameter that is not an extension that nobody knows.
const LARGEST_KNOWN: u64 = 0x20;
/// ECN counts that no server has sent enough for within a test.
const MANY_MARKS: u64 = 1_000;

impl Reported for TransportError {
    fn check(&self) -> Check {
        Check {
            code: self.code.0,
            frame: self.frame,
            reason: self.reason.to_string(),
        }
    }

    fn miscoded(self) -> Self {
        Self {
            code: Code::AEAD_LIMIT_REACHED,
            ..self
        }
    }
}

impl Config {
    /// Forgives an error that the defect ignores; any other comes back.
    pub(crate) fn forgive(&self, error: TransportError) -> Result<(), TransportError> {
        match &self.defects {
            Some(defects) => defects.forgive(error),
            None => Err(error),
        }
    }

    /// Returns whether this connection has a defect, which now makes a difference.
    pub(crate) fn has(&self, quirk: Quirk) -> bool {
        self.defects.as_ref().is_some_and(|it| it.has(quirk))
    }

    /// Returns whether this connection has a defect, and it makes a difference now.
    pub(crate) fn shows(&self, quirk: Quirk, when: impl FnOnce() -> bool) -> bool {
        let is = self.defects.as_ref().is_some_and(|it| it.is(quirk));
        is && when() && self.has(quirk)
    }

    /// Fails if this connection has a defect.
    pub(crate) fn refuse_if(&self, quirk: Quirk) -> Result<(), TransportError> {
        match self.has(quirk) {
            true => Err(TransportError::new(
                Code::AEAD_LIMIT_REACHED,
                "a defect refuses what is legal",
            )),
            false => Ok(()),
        }
    }

    /// Returns whether the server no longer serves anybody.
    pub(crate) fn has_succumbed(&self) -> bool {
        let Some(defects) = &self.defects else {
            return false;
        };
        let frames = defects.account().frames;
        [
            (Quirk::SuccumbsToPathChallenges, 300),
            (Quirk::SuccumbsToResets, 30),
            (Quirk::SuccumbsToPings, 1_000),
        ]
        .into_iter()
        .any(|(quirk, most)| defects.is(quirk) && frames > most && defects.has(quirk))
    }

    /// Looks at a frame with the defect's eyes. Returns whether to drop it.
    pub(crate) fn drops_frame(
        &self,
        frame: &Frame<'_>,
        peer: Option<&TransportParameters>,
    ) -> Result<bool, TransportError> {
        let Some(defects) = &self.defects else {
            return Ok(false);
        };
        // A statement of its own, which ends with the lock.
        let refusal = refusal(&mut defects.account(), frame, peer);
        if let Some(quirk) = refusal {
            self.refuse_if(quirk)?;
        }
        let exhausting = match frame {
            Frame::PathChallenge(_) => defects.is(Quirk::SuccumbsToPathChallenges),
            Frame::ResetStream { .. } => defects.is(Quirk::SuccumbsToResets),
            Frame::Ping => defects.is(Quirk::SuccumbsToPings),
            _ => false,
        };
        defects.account().count_frame(exhausting);
        Ok(match frame {
            Frame::PathChallenge(_) => self.has(Quirk::IgnoresPathChallenges),
            Frame::ApplicationClose { .. } => self.has(Quirk::IgnoresClose),
            _ => false,
        })
    }

    /// Returns whether a packet of an unknown version to this connection ID is not answered.
    pub(crate) fn ignores_version(&self, dcid: &[u8]) -> bool {
        self.has(Quirk::IgnoresUnknownVersions)
            || self.shows(Quirk::IgnoresVersionsWithoutIds, || dcid.is_empty())
            || self.shows(Quirk::IgnoresVersionsWithLongIds, || dcid.len() > 20)
    }

    /// Fails if there is a parameter that nobody knows, and the defect is that this is an error.
    pub(crate) fn check_parameters(&self, encoded: &[u8]) -> Result<(), TransportError> {
        let mut r = Reader::new(encoded);
        while let (Some(id), Some(_)) = (r.varint(), r.prefixed()) {
            if id > LARGEST_KNOWN {
                self.refuse_if(Quirk::RefusesUnknownParameters)?;
            }
        }
        Ok(())
    }
}

/// Returns the defect that takes a frame for an error.
fn refusal(
    account: &mut Account,
    frame: &Frame<'_>,
    peer: Option<&TransportParameters>,
) -> Option<Quirk> {
    match frame {
        Frame::NewConnectionId { sequence, .. } => {
            let known = !account.sequences.insert(*sequence);
            known.then_some(Quirk::RefusesRepeatedConnectionIds)
        }
        Frame::MaxStreams { limit, .. } => {
            let lower = *limit < peer?.initial_max_streams_uni;
            lower.then_some(Quirk::RefusesLowerMaxStreams)
        }
        Frame::MaxData(limit) => {
            let lower = *limit < peer?.initial_max_data;
            lower.then_some(Quirk::RefusesLowerMaxData)
        }
        Frame::DataBlocked { .. } | Frame::StreamsBlocked { .. } => Some(Quirk::RefusesBlocked),
        Frame::Stream {
            fin: false,
            data: [],
            ..
        } => Some(Quirk::RefusesEmptyStream),
        Frame::PathResponse(_) => Some(Quirk::RefusesPathResponse),
        Frame::Ack(ack) => {
            let ect0 = ack.ecn?.ect0;
            let before = core::mem::replace(&mut account.ect0, ect0);
            let lower = (ect0 < before).then_some(Quirk::RefusesLowerEcnCounts);
            let large = (ect0 >= MANY_MARKS).then_some(Quirk::RefusesLargeEcnCounts);
            large.or(lower)
        }
        _ => None,
    }
}
