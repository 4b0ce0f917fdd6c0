//! Numbers for people.

/// Returns a count with separators: `12,345`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a rate: `12,345/s`, with a decimal below ten.
#[must_use]
pub fn rate(per_second: f64) -> String {
    if per_second > 0.0 && per_second < 10.0 {
        format!("{per_second:.1}/s")
    } else {
        format!("{}/s", count(per_second.max(0.0).round() as u64))
    }
}

/// Returns a size: `2.3 KiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1_024.0 {
            return match unit {
                "B" => format!("{bytes} B"),
                unit if size < 10.0 && size.fract() > 0.05 => format!("{size:.1} {unit}"),
                unit => format!("{size:.0} {unit}"),
            };
        }
        size /= 1_024.0;
    }
    format!("{size:.1} TiB")
}

/// Returns a time: `0.4 s`, `3 ms`, `2 min`.
#[must_use]
pub fn seconds(seconds: f64) -> String {
    if seconds < 0.001 {
        "less than 1 ms".to_owned()
    } else if seconds < 0.1 {
        format!("{:.0} ms", seconds * 1_000.0)
    } else if seconds < 10.0 {
        format!("{seconds:.1} s")
    } else if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{:.0} min", seconds / 60.0)
    }
}

/// Returns a share: `12 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 1.0 {
        "less than 1 %".to_owned()
    } else {
        format!("{percent:.0} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            (count(0), count(999), count(1_234_567)),
            ("0".into(), "999".into(), "1,234,567".into())
        );
        assert_eq!(
            (rate(1_234.4), rate(3.25)),
            ("1,234/s".into(), "3.2/s".into())
        );
        assert_eq!(
            (bytes(212_992), bytes(8 << 20), bytes(2_304)),
            ("208 KiB".into(), "8 MiB".into(), "2.2 KiB".into())
        );
        assert_eq!(
            (seconds(0.4), seconds(0.0123), seconds(300.0)),
            ("0.4 s".into(), "12 ms".into(), "5 min".into())
        );
        assert_eq!(
            (percent(0.993), percent(0.002)),
            ("99 %".into(), "less than 1 %".into())
        );
    }
}
