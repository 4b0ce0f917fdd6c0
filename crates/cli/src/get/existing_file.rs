//! What an earlier run left of a file.

use std::fs;
use std::io;
use std::path::Path;

use http::HeaderValue;
use http::header::{IF_RANGE, InvalidHeaderValue, RANGE};

use super::part::ResumePoint;

/// The existing data that `-C` resumes from.
#[derive(Debug)]
pub(super) enum ExistingFile {
    Nothing,
    /// A partial file, with a description of its content.
    ResumePoint(ResumePoint),
    /// A file of this length under its final name, complete as far as one can know, without a
    /// description of its content.
    Whole(u64),
}

impl ExistingFile {
    /// Looks for existing data of `url` for `path`. Blocks.
    ///
    /// # Errors
    /// If it exists and cannot be used.
    pub(super) fn find(path: &Path, url: &str) -> io::Result<Self> {
        if let Some(beginning) = ResumePoint::find(path, url)? {
            return Ok(Self::ResumePoint(beginning));
        }
        match fs::metadata(path) {
            Ok(found) if found.is_file() && found.len() > 0 => Ok(Self::Whole(found.len())),
            Ok(_) => Ok(Self::Nothing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Sets the request headers that ask only for what is missing.
    ///
    /// # Errors
    /// If an entity tag cannot be sent back.
    pub(super) fn ask(&self, headers: &mut http::HeaderMap) -> Result<(), InvalidHeaderValue> {
        let first = match self {
            Self::Nothing => return Ok(()),
            Self::ResumePoint(beginning) => {
                let etag = HeaderValue::try_from(beginning.etag.as_str())?;
                headers.insert(IF_RANGE, etag);
                beginning.offset()
            }
            // A range beyond the end, if it is complete: the 416 response gives the length.
            Self::Whole(length) => *length,
        };
        headers.insert(RANGE, HeaderValue::try_from(format!("bytes={first}-"))?);
        Ok(())
    }
}
