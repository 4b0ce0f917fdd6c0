//! The table of findings in `../README.md`.

/// All Rust sources of the workspace's crates, one after the other.
fn sources() -> String {
    // Asked when the test runs: clones may share what is compiled.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo");
    let crates = std::path::Path::new(&here).parent();
    let mut folders = vec![crates.expect("the folder of the crates").to_owned()];
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

#[test]
fn tests_named_in_readme_exist() {
    let sources = sources();
    let readme = include_str!("../README.md");
    let findings = readme.split_once("## Findings").expect("a chapter").1;
    let mut count = 0;
    for row in findings.lines().filter(|line| line.starts_with("| ")) {
        let cell = row.rsplit(" | ").next().expect("a cell");
        for name in cell.split('`').skip(1).step_by(2) {
            let test = name.rsplit("::").next().expect("a name");
            // A sentence has words; what has none is a file or an event.
            if test.matches('_').count() >= 3 && !test.contains('/') {
                assert!(sources.contains(&format!("fn {test}(")), "no test {name}");
                count += 1;
            }
        }
    }
    assert!(count >= 30, "only {count} tests are named");
}
