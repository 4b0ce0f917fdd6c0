//! Keys, TLS, tokens.
