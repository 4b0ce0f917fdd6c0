//! The page of a directory without an index.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::fs::FileType;

use super::super::root::Root;

/// The Content-Security-Policy: styles only.
pub(in crate::serve) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

const STYLE: &str = "body{font-family:sans-serif;margin:2em}td{padding:.1em 1em .1em 0}\
                     td+td{text-align:right;font-variant-numeric:tabular-nums}";

/// Everything but what a path segment may contain unencoded (RFC 3986 §2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The page up to its first line.
pub(super) fn begin(page: &mut String, path: &Path) {
    let title = escaped(&format!("/{}", path.display()));
    // Writing to a String cannot fail.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n<table>\n"
    );
    if !path.as_os_str().is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td></tr>\n");
    }
}

/// The size of a directory entry; `None` inside for a directory; `None` for entries that are gone,
/// may not be read, or lead outside.
pub(super) fn size(
    root: &Root,
    directory: &OwnedFd,
    path: &Path,
    name: &[u8],
) -> Option<Option<u64>> {
    let stat = root.stat_entry(directory, path, OsStr::from_bytes(name));
    let stat = stat.ok()?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Some(Some(u64::try_from(stat.st_size).ok()?)),
        FileType::Directory => Some(None),
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => None,
    }
}

/// One entry.
pub(super) fn line(page: &mut String, name: &[u8], size: Option<u64>) {
    let slash = if size.is_some() { "" } else { "/" };
    let size = size.map_or_else(String::new, |size| size.to_string());
    let _ = writeln!(
        page,
        "<tr><td><a href=\"{}{slash}\">{}{slash}</a></td><td>{size}</td></tr>",
        percent_encode(name, ENCODED),
        escaped(&String::from_utf8_lossy(name)),
    );
}

/// The end of the page, with a note if there are more entries than `listed`.
pub(super) fn end(page: &mut String, listed: Option<usize>) {
    page.push_str("</table>");
    if let Some(listed) = listed {
        let _ = write!(
            page,
            "\n<p>This directory has more entries than the {listed} that are listed.</p>"
        );
    }
    page.push_str("</body></html>\n");
}

/// Text with markup characters escaped.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_file_names_is_escaped() {
        let mut page = String::new();
        begin(&mut page, Path::new("a\"b"));
        line(&mut page, b"a&b <i>.txt", Some(11));
        line(&mut page, b"javascript:alert(1)", None);
        end(&mut page, None);
        assert!(page.contains("<a href=\"../\">"), "{page}");
        assert!(page.contains("<h1>/a&quot;b</h1>"), "{page}");
        let rows: Vec<_> = page.lines().filter(|line| line.contains("<a ")).collect();
        assert_eq!(
            rows[1..],
            [
                "<tr><td><a href=\"a%26b%20%3Ci%3E.txt\">a&amp;b &lt;i&gt;.txt</a></td>\
                 <td>11</td></tr>",
                "<tr><td><a href=\"javascript%3Aalert%281%29/\">javascript:alert(1)/</a></td>\
                 <td></td></tr>",
            ]
        );
    }
}
