//! The table of findings in `../README.md`.

use clearway_testing::check_named_tests;

#[test]
fn tests_named_in_readme_exist() {
    let package = std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo");
    check_named_tests(&package, "## Findings", 12);
}
