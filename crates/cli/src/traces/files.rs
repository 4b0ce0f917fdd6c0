//! The trace files that arguments name.

use std::path::{Path, PathBuf};

use crate::failure::{Failure, Kind};

/// Maximum number of files of one command.
const MAX_FILES: usize = 10_000;

/// Endings of the names of traces, as stacks and capturing programs write them.
const ENDINGS: [&str; 12] = [
    ".sqlog",
    ".qlog",
    ".sqlog.gz",
    ".qlog.gz",
    ".sqlog.zst",
    ".qlog.zst",
    ".pcapng",
    ".pcap",
    ".pcapng.gz",
    ".pcap.gz",
    ".pcapng.zst",
    ".pcap.zst",
];

/// The files that these arguments name: files as they are, and the traces in directories, sorted
/// by name.
///
/// # Errors
/// If a directory cannot be read or has no traces, or there are too many.
pub(crate) fn files(arguments: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for argument in arguments {
        if argument.is_dir() {
            found.extend(in_directory(argument)?);
        } else {
            found.push(argument.clone());
        }
    }
    if found.len() > MAX_FILES {
        let message = format!(
            "{} traces are too many; the limit is {MAX_FILES}",
            found.len()
        );
        return Err(Failure::new(Kind::Arguments, message));
    }
    Ok(found)
}

fn in_directory(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let wrong = |error: std::io::Error| {
        Failure::caused(
            Kind::Arguments,
            format!("cannot read {}", dir.display()),
            &error,
        )
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let name = path.to_string_lossy();
        if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            found.push(path.clone());
        }
    }
    if found.is_empty() {
        let message = format!(
            "no traces in {}: expected files ending with .sqlog, .qlog, .pcapng or \
             .pcap, also with .gz or .zst",
            dir.display()
        );
        return Err(Failure::new(Kind::Arguments, message));
    }
    found.sort();
    Ok(found)
}
