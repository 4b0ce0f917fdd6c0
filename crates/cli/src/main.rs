//! The `clearway` command.
fn main() {}
