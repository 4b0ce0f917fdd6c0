//! Writes what this host's kernel tells into a folder, for a test of the parsers on it:
//! `cargo run -p clearway-doctor --example capture -- FOLDER`.

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("which folder? it is made if it does not exist");
        std::process::exit(2);
    };
    save(std::path::Path::new(&folder))
}

#[cfg(target_os = "linux")]
fn save(folder: &std::path::Path) -> std::io::Result<()> {
    use clearway_doctor::source::{Capture, live::Live};
    Capture::save(&mut Live::default(), folder)
}

#[cfg(not(target_os = "linux"))]
fn save(_: &std::path::Path) -> std::io::Result<()> {
    Err(std::io::Error::other("this works on Linux only"))
}
