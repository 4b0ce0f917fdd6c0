//! What an earlier run left of a file.

use std::fs;
use std::io;
use std::path::Path;

use http::HeaderValue;
use http::header::{IF_RANGE, InvalidHeaderValue, RANGE};

use super::part::Beginning;

/// What is there of a file that `-C` goes on with.
#[derive(Debug)]
pub(super) enum Held {
    Nothing,
    /// A part, which says what content it is of.
    Beginning(Beginning),
    /// So many bytes under the file's own name, whole as far as one can know;
    /// nothing says of what content.
    Whole(u64),
}

impl Held {
    /// Looks for what is there of `url` for `path`. Blocks.
    ///
    /// # Errors
    /// If it is there and cannot be used.
    pub(super) fn find(path: &Path, url: &str) -> io::Result<Self> {
        if let Some(beginning) = Beginning::find(path, url)? {
            return Ok(Self::Beginning(beginning));
        }
        match fs::metadata(path) {
            Ok(found) if found.is_file() && found.len() > 0 => Ok(Self::Whole(found.len())),
            Ok(_) => Ok(Self::Nothing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Asks for what is missing only.
    ///
    /// # Errors
    /// If an entity tag cannot be sent back.
    pub(super) fn ask(&self, headers: &mut http::HeaderMap) -> Result<(), InvalidHeaderValue> {
        let first = match self {
            Self::Nothing => return Ok(()),
            Self::Beginning(beginning) => {
                let etag = HeaderValue::try_from(beginning.etag.as_str())?;
                headers.insert(IF_RANGE, etag);
                beginning.offset()
            }
            // Beyond its end, if it is whole: the refusal tells the length.
            Self::Whole(length) => *length,
        };
        headers.insert(RANGE, HeaderValue::try_from(format!("bytes={first}-"))?);
        Ok(())
    }
}
