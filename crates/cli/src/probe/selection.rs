//! Which cases run.

use std::fs;
use std::path::Path;

use clearway_prober::{Case, builtin_cases, import, parse};

use super::Args;
use crate::failure::{Failure, Kind};

/// Largest script or recording.
const MAX_FILE: u64 = 16 << 20;

/// Returns the cases that the options name.
///
/// # Errors
/// If a file cannot be read or has an error, or there is no case left.
pub(super) fn cases(args: &Args) -> Result<Vec<Case>, Failure> {
    let mut cases = Vec::new();
    for file in &args.script {
        let parsed = parse(&read(file)?).map_err(|error| invalid(file, &error))?;
        if parsed.is_empty() {
            let message = format!("{} has no case: begin one with `case NAME`", file.display());
            return Err(Failure::new(Kind::Arguments, message));
        }
        cases.extend(parsed);
    }
    for file in &args.h3i {
        let expect: Vec<_> = args.expect.iter().map(String::as_str).collect();
        let recorded = import::h3i(&case_name(file), &read(file)?, &expect);
        cases.push(recorded.map_err(|error| invalid(file, &error))?);
    }
    if args.script.is_empty() && args.h3i.is_empty() {
        cases = builtin_cases();
    }
    if !args.case.is_empty() {
        let is_known = |glob: &&String| cases.iter().any(|case| matches(glob, &case.name));
        if let Some(glob) = args.case.iter().find(|glob| !is_known(glob)) {
            let message = format!("no case is named {glob}: `clearway probe --list` prints all");
            return Err(Failure::new(Kind::Arguments, message));
        }
        cases.retain(|case| args.case.iter().any(|glob| matches(glob, &case.name)));
    }
    if !args.intrusive && !args.list {
        cases.retain(|case| !case.intrusive);
        if cases.is_empty() {
            let message =
                "every chosen case floods the server or makes it amplify: add --intrusive";
            return Err(Failure::new(Kind::Arguments, message));
        }
    }
    Ok(cases)
}

fn read(file: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        Failure::caused(
            Kind::Arguments,
            format!("cannot read {}", file.display()),
            &error,
        )
    };
    let size = fs::metadata(file).map_err(failed)?.len();
    if size > MAX_FILE {
        let message = format!("{} is larger than {MAX_FILE} bytes", file.display());
        return Err(Failure::new(Kind::Arguments, message));
    }
    fs::read_to_string(file).map_err(failed)
}

fn invalid(file: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::new(Kind::Arguments, format!("{}: {error}", file.display()))
}

/// Returns a file's name as the name of a case.
fn case_name(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() => c.to_ascii_lowercase(),
        _ => '-',
    };
    match stem.is_empty() {
        true => "recorded".to_owned(),
        false => stem.chars().map(plain).collect(),
    }
}

/// Returns whether a name matches a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("tls-alpn-missing", "tls-alpn-missing", true),
            ("tls-alpn", "tls-alpn-missing", false),
            ("tls-*", "tls-alpn-missing", true),
            ("*-missing", "tls-alpn-missing", true),
            ("*alpn*", "tls-alpn-missing", true),
            ("t*n*g", "tls-alpn-missing", true),
            ("*", "", true),
            ("a*a", "a", false),
            ("*missing-*", "tls-alpn-missing", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn file_name_becomes_a_case_name() {
        assert_eq!(
            case_name(Path::new("/a/My Recording_1.sqlog")),
            "my-recording-1"
        );
        assert_eq!(case_name(Path::new("/")), "recorded");
    }
}
