//! Escaping of arbitrary text for HTML.

use core::fmt;

/// Displays text with all characters escaped that are special in HTML text and quoted attributes.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in self.0.split_inclusive(['&', '<', '>', '"', '\'']) {
            let mut letters = piece.chars();
            let entity = match letters.next_back() {
                Some('&') => "&amp;",
                Some('<') => "&lt;",
                Some('>') => "&gt;",
                Some('"') => "&quot;",
                Some('\'') => "&#39;",
                Some(_) | None => {
                    f.write_str(piece)?;
                    continue;
                }
            };
            f.write_str(letters.as_str())?;
            f.write_str(entity)?;
        }
        Ok(())
    }
}
