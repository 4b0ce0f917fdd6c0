//! Which versions meet: as this workspace is locked.

/// The lock file that the build followed.
const LOCK: &str = include_str!("../../Cargo.lock");

/// The locked version of a package.
pub(crate) fn of(package: &str) -> &'static str {
    let name = format!("name = \"{package}\"");
    let mut lines = LOCK.lines().skip_while(|line| *line != name).skip(1);
    lines
        .next()
        .and_then(|line| line.strip_prefix("version = \""))
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_file_contains_both_stacks() {
        assert!(of("quinn-proto").starts_with("0.11."));
        assert!(of("noq-proto").starts_with("1."));
        assert_eq!(of("no-such-package"), "unknown");
    }
}
