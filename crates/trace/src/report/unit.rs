//! Amounts for people.

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Nanos,
    BitsPerSecond,
}

impl Unit {
    /// Its name in the page's data.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Nanos => "ns",
            Self::BitsPerSecond => "bits",
        }
    }
}

/// A value with its unit, for people.
pub(crate) fn amount(value: f64, unit: Unit) -> String {
    let (mut name, larger): (&str, &[&str]) = match unit {
        Unit::Bytes => ("B", &["kB", "MB", "GB", "TB"]),
        Unit::Nanos => ("ns", &["µs", "ms", "s"]),
        Unit::BitsPerSecond => ("bit/s", &["kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]),
    };
    let mut scaled = value;
    for next in larger {
        if scaled < 1e3 {
            break;
        }
        scaled /= 1e3;
        name = next;
    }
    let digits = usize::from(scaled < 10.0 && scaled.fract() > 0.001);
    format!("{scaled:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_largest_unit_below_a_thousand() {
        assert_eq!(amount(0.0, Unit::Bytes), "0 B");
        assert_eq!(amount(1_500.0, Unit::Bytes), "1.5 kB");
        assert_eq!(amount(20_000_000.0, Unit::Nanos), "20 ms");
        assert_eq!(amount(9.4e6, Unit::BitsPerSecond), "9.4 Mbit/s");
    }
}
