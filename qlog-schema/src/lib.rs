//! The CDDL of qlog's drafts, and a check of JSON against one of its rules.

use cddl::validator::Validator as _;
use cddl::validator::json::JSONValidator;

const MAIN_SCHEMA: &str = include_str!("../drafts/main-schema.cddl");
const QUIC_EVENTS: &str = include_str!("../drafts/quic-events.cddl");
const EXTENSIONS: &str = include_str!("../extensions.cddl");

/// What has to change in a draft before its CDDL can be read.
struct Repair {
    before: &'static str,
    after: &'static str,
}

/// The repairs. Each text has to be there, so that a repair which a newer draft makes
/// unnecessary is noticed.
const REPAIRS: &[Repair] = &[
    // `time` is a type of CDDL's prelude (RFC 8610 §2.1.2): as a key it needs quotes.
    Repair {
        before: "    time: float64\n",
        after: "    \"time\": float64\n",
    },
    // A number without a fraction is a `float` in JSON too (RFC 8610 Appendix E), but not for
    // the crate `cddl`.
    Repair {
        before: "float64",
        after: "number",
    },
    Repair {
        before: "float32",
        after: "number",
    },
    // The crate does not unwrap a map within a map (RFC 8610 §3.7).
    Repair {
        before: "    ~LogFile\n",
        after: "    file_schema: text\n    serialization_format: text\n    ? title: text\n    \
                ? description: text\n",
    },
];

/// The rules of the drafts and of our extensions.
#[derive(Debug)]
pub struct Schema {
    text: String,
}

impl Schema {
    /// The drafts with their repairs, and with Clearway's extensions.
    ///
    /// # Panics
    /// If a text that is to be repaired is not there.
    #[must_use]
    pub fn new() -> Self {
        let mut text = format!("{MAIN_SCHEMA}\n{QUIC_EVENTS}\n{EXTENSIONS}");
        for Repair { before, after } in REPAIRS {
            assert!(text.contains(before), "the drafts have no {before:?}");
            text = text.replace(before, after);
        }
        Self { text }
    }

    /// A check against one rule.
    #[must_use]
    pub fn rule(&self, name: &str) -> Rule {
        Rule {
            // A validator begins with the first rule.
            text: format!("root = {name}\n{}", self.text),
        }
    }
}

impl Default for Schema {
    fn default() -> Self {
        Self::new()
    }
}

/// One rule, with those that it refers to.
#[derive(Debug)]
pub struct Rule {
    text: String,
}

impl Rule {
    /// Checks values, one result for each.
    ///
    /// # Panics
    /// If the schema is not valid CDDL.
    #[must_use]
    pub fn check(&self, values: &[serde_json::Value]) -> Vec<Result<(), String>> {
        let schema = cddl::cddl_from_str(&self.text, true).expect("valid CDDL");
        let check = |value: &serde_json::Value| {
            let mut validator = JSONValidator::new(&schema, value.clone(), None);
            validator.validate().map_err(|error| error.to_string())
        };
        values.iter().map(check).collect()
    }
}
