//! Sizes in bytes.

use core::fmt;
use core::str::FromStr;

use super::{SpecError, Unit, parse_with_unit, write_with_unit};

/// A number of bytes: `10MB`, `64KiB`, `1.5G` or `1200`.
///
/// `kB`, `MB` and `GB` are powers of 1,000 (the `B` may be left out, and `k` may be upper
/// case), `KiB`, `MiB` and `GiB` powers of 1,024. Without a unit the number is bytes. Digits
/// may be grouped by underscores: `1_200`. Every size in Clearway's options and scenario files
/// is read by this type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

const EXPECTED: &str = "bytes such as 10MB, 64KiB or 1200 (units: B, kB, MB, GB, KiB, MiB, GiB)";

/// Largest first, as [`write_with_unit`] needs the decimal ones.
const DECIMAL: [Unit; 4] = [
    Unit {
        names: &["GB", "G"],
        size: 1_000_000_000,
    },
    Unit {
        names: &["MB", "M"],
        size: 1_000_000,
    },
    Unit {
        names: &["KB", "kB", "K", "k"],
        size: 1_000,
    },
    Unit {
        names: &["B"],
        size: 1,
    },
];
const BINARY: [Unit; 3] = [
    Unit {
        names: &["GiB"],
        size: 1 << 30,
    },
    Unit {
        names: &["MiB"],
        size: 1 << 20,
    },
    Unit {
        names: &["KiB"],
        size: 1 << 10,
    },
];
const NO_UNIT: Unit = Unit {
    names: &[""],
    size: 1,
};

impl ByteSize {
    /// Parses a size that must name its unit, for places where a bare number counts
    /// something else, such as packets. The error is the problem alone: the caller knows
    /// what else it accepts.
    pub(crate) fn parse_with_unit(text: &str) -> Result<Self, String> {
        let [gb, mb, kb, b] = DECIMAL;
        let [gib, mib, kib] = BINARY;
        parse(text, &[gb, mb, kb, b, gib, mib, kib])
    }
}

impl FromStr for ByteSize {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let [gb, mb, kb, b] = DECIMAL;
        let [gib, mib, kib] = BINARY;
        parse(text, &[gb, mb, kb, b, gib, mib, kib, NO_UNIT])
            .map_err(|problem| SpecError::new("size", text, problem, EXPECTED))
    }
}

/// Drops underscores between digits, then reads number and unit.
fn parse(text: &str, units: &[Unit]) -> Result<ByteSize, String> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.starts_with('_') {
        return Err("does not start with a number".to_owned());
    }
    parse_with_unit(&format!("{}{unit}", number.replace('_', "")), units).map(ByteSize)
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_unit(f, self.0, &DECIMAL)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_parse_exactly() {
        for (text, bytes) in [
            ("0", 0),
            ("1200", 1_200),
            ("1_200", 1_200),
            ("10MB", 10_000_000),
            ("64KiB", 65_536),
            ("1.5KiB", 1_536),
            ("3GiB", 3 << 30),
            ("1.5G", 1_500_000_000),
            ("2K", 2_000),
            (" 2 kB ", 2_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn invalid_size_error_gives_the_problem_and_the_accepted_forms() {
        let message = |text: &str| text.parse::<ByteSize>().unwrap_err().to_string();
        assert_eq!(
            message("10 apples"),
            "invalid size \"10 apples\": unknown unit \"apples\"; expected bytes such as 10MB, \
             64KiB or 1200 (units: B, kB, MB, GB, KiB, MiB, GiB)"
        );
        for (text, problem) in [
            ("", "value is empty"),
            ("MB", "does not start with a number"),
            ("_1", "does not start with a number"),
            ("-1", "must not be negative"),
            ("1.0005kB", "too many decimal places"),
            ("0.3KiB", "too many decimal places"),
            ("1.2.3", "more than one decimal point"),
            ("20000000000GB", "value is too large"),
        ] {
            let error = message(text);
            assert!(
                error.contains(&format!(": {problem}; expected bytes")),
                "{error}"
            );
        }
    }

    #[test]
    fn size_without_unit_is_rejected_where_a_unit_is_required() {
        assert_eq!(ByteSize::parse_with_unit("64KiB"), Ok(ByteSize(65_536)));
        assert_eq!(
            ByteSize::parse_with_unit("150"),
            Err("missing unit".to_owned())
        );
    }

    proptest! {
        #[test]
        fn displayed_size_parses_to_the_same_value(bytes: u64) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
    }
}
