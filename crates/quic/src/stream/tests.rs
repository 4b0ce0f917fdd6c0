//! Whole-stream tests.
