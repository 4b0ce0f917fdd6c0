//! Tokens by which clients identify, in files.

use std::path::Path;

use crate::failure::{Failure, Kind};

/// The shortest token, in characters: shorter ones can be guessed.
const SHORTEST: usize = 16;

/// Reads the tokens of the file that `option` names, one a line. Empty lines and those that begin with `#` are skipped.
///
/// # Errors
/// If the file cannot be read, or a token is too short or has other characters than printable
/// ASCII without spaces, or there is none.
pub(crate) fn read(option: &str, file: &Path) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let what = format!("{option}: cannot read {}", file.display());
        Failure::caused(Kind::Arguments, what, &error)
    })?;
    parse(&text).map_err(|why| {
        let message = format!("{option}: {}: {why}", file.display());
        Failure::new(Kind::Arguments, message)
    })
}

fn parse(text: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let token = line.trim();
        if token.is_empty() || token.starts_with('#') {
            continue;
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "line {number}: expected printable ASCII without spaces"
            ));
        }
        if token.len() < SHORTEST {
            return Err(format!(
                "line {number}: expected a token of at least {SHORTEST} characters, found {}",
                token.len()
            ));
        }
        tokens.push(token.to_owned());
    }
    if tokens.is_empty() {
        return Err(format!(
            "expected a token of at least {SHORTEST} characters, found none"
        ));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_lines_without_comments() {
        let text = "# for the office\n\n  0123456789abcdef \r\nanother-token-of-25-chars\n";
        let tokens = ["0123456789abcdef", "another-token-of-25-chars"];
        assert_eq!(parse(text).unwrap(), tokens);
    }

    #[test]
    fn short_or_unprintable_tokens_are_rejected() {
        for text in [
            "",
            "# only a comment\n",
            "0123456789abcde",
            "0123456789 abcdef",
            "0123456789abcdé",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(
            parse("0123456789abcdef\nshort")
                .unwrap_err()
                .starts_with("line 2")
        );
    }
}
