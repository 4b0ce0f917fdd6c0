//! Words of a line.

use super::ScriptError;

/// Splits a line into words. Quotes keep spaces together, `;` is a word of its own, and `#` at
/// the start of a word begins a comment. Quotes and escapes stay in the word, for
/// [`unquote`] to read.
pub(super) fn words(line: &str, number: usize) -> Result<Vec<String>, ScriptError> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if quoted => {
                word.push(c);
                word.extend(chars.next());
            }
            '"' => {
                quoted = !quoted;
                word.push(c);
            }
            '#' if !quoted && word.is_empty() => break,
            c if !quoted && (c.is_whitespace() || c == ';') => {
                if !word.is_empty() {
                    words.push(core::mem::take(&mut word));
                }
                if c == ';' {
                    words.push(";".to_owned());
                }
            }
            c => word.push(c),
        }
    }
    if quoted {
        let message = "missing closing quotation mark: end the text with \"";
        return Err(ScriptError::new(number, message));
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

/// Returns the bytes of a text in quotation marks, with the escapes `\" \\ \r \n \t \0 \xHH`.
/// Text without quotation marks is returned as it is.
pub(super) fn unquote(text: &str) -> Result<Vec<u8>, String> {
    let Some(inner) = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
    else {
        return Ok(text.as_bytes().to_vec());
    };
    let mut out = Vec::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            let mut buffer = [0; 4];
            out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        out.push(match chars.next() {
            Some('"') => b'"',
            Some('\\') => b'\\',
            Some('r') => b'\r',
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('0') => 0,
            Some('x') => {
                let digits: String = chars.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16).map_err(|_| {
                    format!("invalid escape \\x{digits}: expected two hexadecimal digits")
                })?
            }
            Some(_) | None => {
                return Err(format!(
                    "invalid escape in {text}: expected one of \\\" \\\\ \\r \\n \\t \\0 \\xHH"
                ));
            }
        });
    }
    Ok(out)
}
