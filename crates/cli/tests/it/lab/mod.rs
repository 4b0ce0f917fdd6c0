//! `clearway lab` through the built binary.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on has failed"
)]

use crate::common;
mod diagnoses;
mod hunts;
mod mistakes;
mod outputs;
mod replays;
mod runs;
mod shards;

use std::fs;
use std::path::PathBuf;

/// A directory of this test's own.
fn place(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("clearway-lab-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

const SMALL: &str = r#"
name = "small"
duration = "20s"
[network]
rtt = "20ms"
both = "rate=10M queue=25 loss=1%"
[[flows]]
traffic = "download"
bytes = "200kB"
[pass]
completes_within = "WITHIN"
"#;

fn small(dir: &str, within: &str) -> (PathBuf, String) {
    let dir = place(dir);
    let file = dir.join("small.toml");
    fs::write(&file, SMALL.replace("WITHIN", within)).unwrap();
    let name = file.to_str().unwrap().to_owned();
    (dir, name)
}
