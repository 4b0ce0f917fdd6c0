//! Escaping of foreign text.
//!
//! A close reason, a header field, a name in a URL or in a trace may contain anything, including
//! commands to a terminal and characters that reorder the line. All text from a peer or a file
//! passes through here before it is shown: escaped, on one line, and truncated. [`crate::terminal`]
//! escapes all output once more, in case this is forgotten somewhere.

use std::borrow::Cow;

/// Maximum length of a peer's text in a message, in characters.
pub(crate) const SHOWN: usize = 256;

/// Whether a terminal may interpret the character, or show the text around it differently: control
/// characters (C0, C1), marks that change the direction of writing, Unicode line separators, and
/// invisible characters.
pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// One line in which every character that [`is_unsafe`] is escaped as in Rust: `\n`, `\u{1b}`.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escape(text, |c| !is_unsafe(c))
}

/// The same for our own text, which may have several lines.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| c == '\n' || !is_unsafe(c))
}

fn escape(text: &str, is_fine: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&is_fine) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_fine(c) {
            escaped.push(c);
        } else {
            escaped.extend(c.escape_default());
        }
    }
    Cow::Owned(escaped)
}

/// One line of at most `most` characters, escapes not counted, which says how many were omitted.
pub(crate) fn short(text: &str, most: usize) -> Cow<'_, str> {
    let Some((end, _)) = text.char_indices().nth(most) else {
        return line(text);
    };
    let (shown, rest) = text.split_at(end);
    let left_out = rest.chars().count();
    Cow::Owned(format!("{}… ({left_out} more characters)", line(shown)))
}

/// The same for bytes; those that are not UTF-8 are written `\x9b`.
pub(crate) fn short_bytes(bytes: &[u8], most: usize) -> String {
    let mut shown = String::new();
    for chunk in bytes.utf8_chunks() {
        shown.push_str(&line(chunk.valid()));
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    match short(&shown, most) {
        Cow::Borrowed(_) => shown,
        Cow::Owned(cut) => cut,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_and_bidi_characters_are_escaped() {
        for (text, expected) in [
            ("plain é 漢 🦀", "plain é 漢 🦀"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("a\nb\r\tc\0\u{7f}", "a\\nb\\r\\tc\\u{0}\\u{7f}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
            ("\u{2066}\u{200b}\u{feff}", "\\u{2066}\\u{200b}\\u{feff}"),
            ("\u{e0041}", "\\u{e0041}"),
        ] {
            assert_eq!(line(text), expected);
        }
        assert_eq!(lines("a\nb\u{1b}"), "a\nb\\u{1b}");
    }

    #[test]
    fn truncated_text_gives_the_number_of_omitted_characters() {
        assert_eq!(short("12345", 5), "12345");
        assert_eq!(short("éé345", 2), "éé… (3 more characters)");
        assert_eq!(short_bytes(b"a\x9bb\xff\x1b", 99), "a\\x9bb\\xff\\u{1b}");
        assert_eq!(short_bytes(b"abc", 1), "a… (2 more characters)");
    }

    proptest! {
        #[test]
        fn escaped_text_never_contains_unsafe_characters(bytes: Vec<u8>, most in 0_usize..50) {
            let shown = short_bytes(&bytes, most);
            prop_assert!(!shown.chars().any(is_unsafe));
            let text = String::from_utf8_lossy(&bytes);
            prop_assert!(!line(&text).chars().any(is_unsafe));
        }
    }
}
