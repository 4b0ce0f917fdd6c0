//! The secret file.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use crate::get::command::{said, start};
use crate::get::faulty_server::wait_for;
use crate::web::{Site, TempDir};

#[test]
fn secret_file_is_created_once_and_private() {
    let (dir, files) = (TempDir::new(), TempDir::new());
    let secret = files.text("secret");
    let mut keys = Vec::new();
    for _ in 0..2 {
        let site = Site::start(dir.path(), &["--secret", &secret]);
        assert!(site.stop().success());
        keys.push(fs::read(&secret).unwrap());
        let mode = fs::metadata(&secret).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(files.names(), ["secret"]);
    }
    assert_eq!(keys[0], keys[1]);
    assert_eq!(keys[0].len(), 32);
    assert!(keys[0].iter().any(|byte| *byte != keys[0][0]), "random");
}

#[test]
fn invalid_secret_file_is_rejected() {
    let (dir, files) = (TempDir::new(), TempDir::new());
    let write = |name: &str, content: &[u8], mode: u32| {
        fs::write(files.join(name), content).unwrap();
        fs::set_permissions(files.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    write("good", &[7; 32], 0o600);
    write("readable", &[7; 32], 0o640);
    write("writable", &[7; 32], 0o602);
    write("empty", b"", 0o600);
    write("short", &[7; 31], 0o600);
    write("long", &[7; 33], 0o600);
    symlink("good", files.join("link")).unwrap();
    symlink("nothing", files.join("dangling")).unwrap();
    fs::create_dir(files.join("directory")).unwrap();
    let before = files.names();
    for (name, why) in [
        ("readable", "its mode is 640"),
        ("writable", "its mode is 602"),
        ("empty", "expected a key of 32 bytes, found 0"),
        ("short", "found 31"),
        ("long", "found 33"),
        ("link", "symbolic link"),
        ("dangling", "symbolic link"),
        ("directory", "not a regular file"),
        ("none/secret", "No such file or directory"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .arg("serve")
            .arg(dir.path())
            .args(["--listen", "127.0.0.1:0", "--secret", &files.text(name)])
            .output()
            .unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {text}");
        let last = text.lines().last().unwrap();
        assert!(last.contains(why) && last.contains("--secret"), "{text}");
    }
    assert_eq!(files.names(), before);
    assert_eq!(fs::read(files.join("good")).unwrap(), [7; 32]);
}

#[test]
fn restarted_server_with_its_secret_resets_a_waiting_download() {
    let (dir, files, out) = (TempDir::new(), TempDir::new(), TempDir::new());
    let large = fs::File::create(dir.join("large")).unwrap();
    large.set_len(1 << 40).unwrap();
    let secret = files.text("secret");
    let options = ["--secret", &secret];
    let mut site = Site::start(dir.path(), &options);
    let url = format!("{}/large", site.url);
    // The part of a terabyte that is here soon is not kept long.
    let child = start(&["-k", "-o", &out.text("file"), &url]);
    wait_for(&out.join("file.part"), 1_000_000);
    site.child.kill().unwrap();
    site.child.wait().unwrap();
    let address = url.strip_prefix("https://localhost").unwrap();
    let address = format!("127.0.0.1{}", address.strip_suffix("/large").unwrap());
    let again = Site::start_at(&address, dir.path(), &options);
    let output = child.wait_with_output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(10), "{text}");
    // Rather than waiting for the idle timeout.
    assert!(
        text.contains("the server lost the connection's state"),
        "{text}"
    );
    assert!(text.contains("stateless reset"), "{text}");
    assert!(again.stop().success());
}
