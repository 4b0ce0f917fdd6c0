//! The tables in READMEs that name tests.

use std::path::Path;

/// Checks that the tests exist that a chapter of `tests/README.md` names in the last cells of its
/// tables, and that they are at least `least`. `package` is the folder of the crate, as
/// `CARGO_MANIFEST_DIR` names it when the test runs: clones may share what is compiled.
///
/// # Panics
/// If one does not exist, or too few are named.
pub fn check_named_tests(package: &str, chapter: &str, least: usize) {
    let package = Path::new(package);
    let sources = sources(package.parent().expect("the folder of the crates"));
    let readme = package.join("tests/README.md");
    let readme = std::fs::read_to_string(readme).expect("a README");
    let table = readme.split_once(chapter).expect("the chapter").1;
    let mut count = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let cell = row.rsplit(" | ").next().expect("a cell");
        for name in cell.split('`').skip(1).step_by(2) {
            let test = name.rsplit("::").next().expect("a name");
            // A sentence has words; what has none is a file, an event or a counter.
            if test.matches('_').count() >= 3 && !test.contains('/') {
                assert!(sources.contains(&format!("fn {test}(")), "no test {name}");
                count += 1;
            }
        }
    }
    assert!(count >= least, "only {count} tests are named");
}

/// All Rust sources below a folder, one after the other.
fn sources(folder: &Path) -> String {
    let mut folders = vec![folder.to_owned()];
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                text += &std::fs::read_to_string(path).expect("a source");
            }
        }
    }
    text
}
