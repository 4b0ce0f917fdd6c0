//! Traces: one event schema, its writers, readers and detectors.
