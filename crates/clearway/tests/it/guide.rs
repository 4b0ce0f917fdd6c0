//! The guide agrees with the code.

use std::fs;
use std::path::Path;

use clearway::Limit;

/// A file of the repository.
fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn breakdown_page_lists_every_limit_and_no_other() {
    let page = text("docs/guide/breakdown.md");
    let listed: Vec<&str> = page
        .lines()
        .skip_while(|line| !line.starts_with("| printed |"))
        .skip(2)
        .map_while(|line| line.strip_prefix("| ")?.split(" | ").nth(1))
        .map(|name| name.trim_matches('`'))
        .collect();
    let limits = Limit::ALL.map(|limit| format!("{limit:?}"));
    let sorted = |mut names: Vec<String>| {
        names.sort_unstable();
        names
    };
    let listed = listed.into_iter().map(str::to_owned).collect();
    assert_eq!(sorted(listed), sorted(limits.to_vec()));
}

#[test]
fn first_server_in_the_guide_and_readme_matches_the_example() {
    let example = text("crates/clearway/examples/hello_server.rs");
    let code = example.find("use axum").map(|at| &example[at..]);
    let code = code.expect("it begins with what it uses");
    for page in ["README.md", "docs/guide/first-server.md"] {
        assert!(
            text(page).contains(code),
            "{page} shows another server than examples/hello_server.rs"
        );
    }
}
