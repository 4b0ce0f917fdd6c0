//! How a diagnosis is shown.

pub mod text;
pub mod words;
