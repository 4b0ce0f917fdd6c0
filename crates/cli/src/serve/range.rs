//! The range of a request (RFC 9110 §14).

/// The requested part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it: there is no valid range.
    Whole,
    /// From `first` to `last`, both in the file.
    Range { first: u64, last: u64 },
    /// A range beyond the end of the file.
    Unsatisfiable,
}

impl Part {
    /// The part that a `range` field requests of a file with `length` bytes. Several ranges, other
    /// units and invalid fields select the whole file, as §14.2 allows.
    pub(super) fn of(field: &str, length: u64) -> Self {
        Self::parse(field, length).unwrap_or(Self::Whole)
    }

    fn parse(field: &str, length: u64) -> Option<Self> {
        let (unit, set) = field.split_once('=')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        // A comma makes the last position invalid.
        let (first, last) = set.trim().split_once('-')?;
        if first.is_empty() {
            let suffix = position(last)?;
            return Some(match length.min(suffix) {
                0 => Self::Unsatisfiable,
                kept => Self::Range {
                    first: length - kept,
                    last: length - 1,
                },
            });
        }
        let first = position(first)?;
        let last = match last {
            "" => u64::MAX,
            last => position(last)?,
        };
        if last < first {
            return None;
        }
        Some(if first < length {
            let last = last.min(length - 1);
            Self::Range { first, last }
        } else {
            Self::Unsatisfiable
        })
    }
}

/// Digits only; a number beyond any file counts as the largest.
fn position(digits: &str) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_header_selects_part_of_ten_bytes() {
        let range = |first, last| Part::Range { first, last };
        for (field, part) in [
            ("bytes=0-0", range(0, 0)),
            ("bytes=2-5", range(2, 5)),
            ("Bytes=2-5", range(2, 5)),
            ("bytes=9-", range(9, 9)),
            ("bytes=3-99", range(3, 9)),
            ("bytes=3-99999999999999999999999", range(3, 9)),
            ("bytes=-4", range(6, 9)),
            ("bytes=-10", range(0, 9)),
            ("bytes=-11", range(0, 9)),
            ("bytes=0-9", range(0, 9)),
            ("bytes=10-", Part::Unsatisfiable),
            ("bytes=10-12", Part::Unsatisfiable),
            ("bytes=99999999999999999999999-", Part::Unsatisfiable),
            ("bytes=-0", Part::Unsatisfiable),
            ("bytes=5-2", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=0-1,", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("bytes=+1-2", Part::Whole),
            ("bytes=1 - 2", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("bytes 0-1", Part::Whole),
            ("", Part::Whole),
        ] {
            assert_eq!(Part::of(field, 10), part, "{field}");
        }
    }

    #[test]
    fn range_of_empty_file_is_unsatisfiable() {
        for field in ["bytes=0-", "bytes=0-0", "bytes=-1"] {
            assert_eq!(Part::of(field, 0), Part::Unsatisfiable, "{field}");
        }
    }
}
