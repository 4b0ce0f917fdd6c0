//! What is sent.

use std::fs;

use crate::command::{expect, said};
use crate::web::{Site, TempDir, pattern};

#[test]
fn uploads_arrive() {
    let (site_dir, here) = (TempDir::new(), TempDir::new());
    let content = pattern(3_000_000);
    here.old_file("up load", &content);
    let site = Site::start(site_dir.path(), &["--writable"]);
    let (file, root) = (here.text("up load"), format!("{}/", site.url));
    let output = expect(0, &["-T", &file, &root, "-k"]);
    assert!(fs::read(site_dir.join("up load")).unwrap() == content);
    let text = said(&output);
    assert!(text.starts_with("3000000 bytes sent, "), "{text}");
    assert!(text.ends_with("(our record)\n"), "{text}");
    let named = format!("{}/named", site.url);
    let data = format!("@{file}");
    expect(0, &["-d", &data, "-X", "PUT", &named, "-k"]);
    assert!(fs::read(site_dir.join("named")).unwrap() == content);
    expect(0, &["-d", "a=b", "-X", "PUT", &named, "-k"]);
    assert_eq!(fs::read(site_dir.join("named")).unwrap(), b"a=b");
    let refused = expect(9, &["-d", "a=b", &named, "-k"]);
    assert!(said(&refused).contains("405 Method Not Allowed"));
}
