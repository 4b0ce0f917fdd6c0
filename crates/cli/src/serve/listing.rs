//! The page of a directory without an index.

use std::ffi::{CStr, OsStr};
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use super::place::UPLOAD_PREFIX;
use super::root::Root;

/// What the page may do: look as it looks.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

const STYLE: &str = "body{font-family:sans-serif;margin:2em}td{padding:.1em 1em .1em 0}\
                     td+td{text-align:right;font-variant-numeric:tabular-nums}";

/// Everything but what a path segment may contain unencoded (RFC 3986 §2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// One line of the page.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    name: Vec<u8>,
    /// Bytes; `None` of a directory.
    size: Option<u64>,
}

/// The page of a directory, which is at `path`.
///
/// # Errors
/// If it cannot be read.
pub(super) fn page(root: &Root, directory: &OwnedFd, path: &Path) -> Result<String, Errno> {
    let mut items = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        items.extend(item(root, directory, path, entry.file_name()));
    }
    items.sort();
    Ok(render(path, &items))
}

/// What may be fetched, and no other.
fn item(root: &Root, directory: &OwnedFd, path: &Path, name: &CStr) -> Option<Item> {
    let bytes = name.to_bytes();
    if matches!(bytes, b"." | b"..") || bytes.starts_with(UPLOAD_PREFIX.as_bytes()) {
        return None;
    }
    let whole = path.join(OsStr::from_bytes(bytes));
    let stat = root.stat_entry(directory, &whole, name).ok()?;
    let size = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Some(u64::try_from(stat.st_size).ok()?),
        FileType::Directory => None,
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => return None,
    };
    let name = bytes.to_vec();
    Some(Item { name, size })
}

fn render(path: &Path, items: &[Item]) -> String {
    let title = escaped(&format!("/{}", path.display()));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n<table>\n"
    );
    if !path.as_os_str().is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td></tr>\n");
    }
    for Item { name, size } in items {
        let slash = if size.is_some() { "" } else { "/" };
        let size = size.map_or_else(String::new, |size| size.to_string());
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "<tr><td><a href=\"{}{slash}\">{}{slash}</a></td><td>{size}</td></tr>",
            percent_encode(name, ENCODED),
            escaped(&String::from_utf8_lossy(name)),
        );
    }
    page.push_str("</table></body></html>\n");
    page
}

/// Text that is no markup.
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
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::root::Found;
    use super::*;
    use crate::serve::test_dir::TestDir;

    #[test]
    fn names_are_sorted_escaped_and_none_leads_outside() {
        let dir = TestDir::new();
        for name in ["b", "a&b <i>.txt", "javascript:alert(1)", ".hidden", "50%"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        fs::write(dir.path().join(format!("{UPLOAD_PREFIX}1")), "half").unwrap();
        fs::create_dir(dir.path().join("c")).unwrap();
        symlink("b", dir.path().join("d")).unwrap();
        symlink("/etc/passwd", dir.path().join("e")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let Ok(Found::Directory(directory)) = root.find(Path::new("")) else {
            panic!("no directory");
        };
        let page = page(&root, &directory, Path::new("")).unwrap();
        let rows: Vec<_> = page.lines().filter(|line| line.contains("<a ")).collect();
        assert_eq!(
            rows,
            [
                "<tr><td><a href=\".hidden\">.hidden</a></td><td>7</td></tr>",
                "<tr><td><a href=\"50%25\">50%</a></td><td>3</td></tr>",
                "<tr><td><a href=\"a%26b%20%3Ci%3E.txt\">a&amp;b &lt;i&gt;.txt</a></td>\
                 <td>11</td></tr>",
                "<tr><td><a href=\"b\">b</a></td><td>1</td></tr>",
                "<tr><td><a href=\"c/\">c/</a></td><td></td></tr>",
                "<tr><td><a href=\"d\">d</a></td><td>1</td></tr>",
                "<tr><td><a href=\"javascript%3Aalert%281%29\">javascript:alert(1)</a></td>\
                 <td>19</td></tr>",
            ]
        );
    }

    #[test]
    fn below_there_is_a_way_up() {
        let page = render(Path::new("a\"b"), &[]);
        assert!(page.contains("<a href=\"../\">"), "{page}");
        assert!(page.contains("<h1>/a&quot;b</h1>"), "{page}");
    }
}
