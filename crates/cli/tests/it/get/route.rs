//! `--resolve` and `--connect-to`.

use std::fs;

use clearway::DevelopmentIdentity;

use crate::get::command::{expect, said};
use crate::web::{Site, TempDir};

/// The certificate is checked for the name in the URL, wherever the connection
/// goes.
#[test]
fn resolve_and_connect_to_redirect_the_connection() {
    let (dir, files) = (TempDir::new(), TempDir::new());
    dir.old_file("a", b"text");
    let identity = DevelopmentIdentity::generate(["shop.example"]).unwrap();
    let [chain, key] = ["chain", "key"].map(|name| files.text(name));
    fs::write(&chain, identity.certificate_pem()).unwrap();
    fs::write(&key, identity.key_pem()).unwrap();
    let site = Site::start(dir.path(), &["--cert", &chain, "--key", &key]);
    let port = site.url.rsplit(':').next().unwrap();
    let named = format!("https://shop.example:{port}/a");
    let other = "https://shop.example/a";
    for (url, option, value) in [
        (
            &named[..],
            "--resolve",
            format!("shop.example:{port}:127.0.0.1"),
        ),
        (&named, "--resolve", format!("*:{port}:[::1],127.0.0.1")),
        (
            &named,
            "--connect-to",
            "shop.example::localhost:".to_owned(),
        ),
        (
            other,
            "--connect-to",
            format!("shop.example:443:127.0.0.1:{port}"),
        ),
        (other, "--connect-to", format!(":::{port}")),
    ] {
        let mut arguments = vec![url, "--cacert", &chain, option, &value];
        if value.starts_with("::") {
            arguments.extend(["--resolve", "shop.example:*:127.0.0.1"]);
        }
        assert_eq!(expect(0, &arguments).stdout, b"text", "{arguments:?}");
    }
    // Another name for the same place is not what the certificate is for.
    let wrong = format!("https://wrong.example:{port}/a");
    let refused = expect(
        7,
        &[
            &wrong,
            "--cacert",
            &chain,
            "--resolve",
            "wrong.example:*:127.0.0.1",
        ],
    );
    assert!(said(&refused).contains("certificate"), "{}", said(&refused));
    for bad in ["shop.example", "a:b:127.0.0.1", "a:1:", "a:1:nowhere"] {
        let refused = expect(2, &[&named, "--resolve", bad]);
        assert!(said(&refused).contains("--resolve"), "{}", said(&refused));
    }
    for bad in ["a:1:b", "a:x:b:1", "a:1:b:65536"] {
        let refused = expect(2, &[&named, "--connect-to", bad]);
        assert!(
            said(&refused).contains("--connect-to"),
            "{}",
            said(&refused)
        );
    }
}
