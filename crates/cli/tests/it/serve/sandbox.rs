//! Uploaded documents that browsers would run.

use crate::serve::client::{client, get};
use crate::web::{Site, TempDir};

#[tokio::test]
async fn documents_of_a_writable_server_are_sandboxed() {
    let dir = TempDir::new();
    let documents = [
        "a.html", "a.htm", "a.xhtml", "a.svg", "a.xml", "a.mathml", "a.xsl", "a.rss",
    ];
    let others = ["a.txt", "a.png", "a.css", "a.js", "a.pdf", "a", "a.bin"];
    for name in documents.iter().chain(&others) {
        dir.old_file(name, b"<script>alert(1)</script>");
    }
    dir.old_file("index.html", b"<p>");
    let client = client();
    for (options, sandboxed) in [(&["--writable"][..], true), (&[], false)] {
        let site = Site::start(dir.path(), options);
        for name in documents.iter().chain(&others).chain(&[""]) {
            let url = format!("{}/{name}", site.url);
            for range in [&[][..], &[("range", "bytes=0-2")]] {
                let (_, fields, _) = get(&client, &url, range).await;
                let policy = fields.get("content-security-policy");
                let policy = policy.map(|policy| policy.to_str().unwrap());
                let expected = sandboxed && !others.contains(name);
                assert_eq!(
                    policy,
                    expected.then_some("sandbox"),
                    "{name:?} {options:?}"
                );
                assert_eq!(fields["x-content-type-options"], "nosniff");
            }
        }
    }
}
