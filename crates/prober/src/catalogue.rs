//! The built-in cases.

use crate::script::{Case, parse};

/// The files with the built-in cases, by what they are about.
const FILES: [(&str, &str); 10] = [
    ("frames.probe", include_str!("../scripts/frames.probe")),
    ("streams.probe", include_str!("../scripts/streams.probe")),
    (
        "connection_ids.probe",
        include_str!("../scripts/connection_ids.probe"),
    ),
    (
        "parameters.probe",
        include_str!("../scripts/parameters.probe"),
    ),
    ("packets.probe", include_str!("../scripts/packets.probe")),
    ("paths.probe", include_str!("../scripts/paths.probe")),
    ("tls.probe", include_str!("../scripts/tls.probe")),
    ("http3.probe", include_str!("../scripts/http3.probe")),
    ("messages.probe", include_str!("../scripts/messages.probe")),
    ("qpack.probe", include_str!("../scripts/qpack.probe")),
];

/// Returns the built-in cases, in the order in which they are reported.
///
/// # Panics
/// If a built-in file has an error, which a test rules out.
#[must_use]
pub fn builtin_cases() -> Vec<Case> {
    let parsed = FILES.iter().map(|(name, text)| match parse(text) {
        Ok(cases) => cases,
        Err(error) => panic!("{name}: {error}"),
    });
    parsed.flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::script::Layer;

    #[test]
    fn built_in_cases_are_valid_and_complete() {
        let cases = builtin_cases();
        let names: HashSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len(), "names are unique over all files");
        assert!(cases.len() >= 80, "{}", cases.len());
        for case in &cases {
            let name = &case.name;
            assert!(
                case.source.contains("RFC "),
                "{name}: source {:?}",
                case.source
            );
            assert!(
                case.source.contains('§'),
                "{name}: source {:?}",
                case.source
            );
            assert!(!case.title.is_empty() && !case.script.is_empty(), "{name}");
        }
        for layer in [Layer::Transport, Layer::Tls, Layer::Http3, Layer::Qpack] {
            assert!(cases.iter().any(|case| case.layer == layer), "{layer:?}");
        }
    }
}
