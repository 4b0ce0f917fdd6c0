//! Certificates.

use std::fs;
use std::time::Duration;

use clearway::http::Client;
use clearway::{ClientConfig, DevelopmentIdentity};
use rustix::process::Signal;

use crate::web::{Site, TempDir};

#[tokio::test]
async fn certificate_is_reloaded_on_sighup_and_on_change() {
    let dir = TempDir::new();
    dir.old_file("a", b"x");
    let [first, second, third] =
        [(); 3].map(|()| DevelopmentIdentity::generate(["localhost"]).unwrap());
    let files = TempDir::new();
    let write = |identity: &DevelopmentIdentity| {
        fs::write(files.join("chain"), identity.certificate_pem()).unwrap();
        fs::write(files.join("key"), identity.key_pem()).unwrap();
    };
    write(&first);
    let (chain, key) = (files.text("chain"), files.text("key"));
    let site = Site::start(dir.path(), &["--cert", &chain, "--key", &key]);
    let url = format!("{}/a", site.url);
    // A client that trusts nobody else.
    let accepted = async |identity: &DevelopmentIdentity| {
        let config = ClientConfig::with_fingerprint(identity.fingerprint());
        Client::new(config).unwrap().get(&url).await.is_ok()
    };
    assert!(accepted(&first).await && !accepted(&second).await);
    write(&second);
    site.signal(Signal::HUP);
    while !accepted(&second).await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // What does not fit is not used; what comes next is, without a signal.
    fs::write(files.join("key"), third.key_pem()).unwrap();
    site.signal(Signal::HUP);
    assert!(accepted(&second).await);
    write(&third);
    while !accepted(&third).await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(site.stop().success());
}
