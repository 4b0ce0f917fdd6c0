//! One network path (RFC 9000 §8, §9, §13.4, §14).
