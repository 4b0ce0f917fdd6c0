//! The matrix as text.

use std::{collections::BTreeSet, fmt};

use crate::verdict::Verdict;

/// A table with a row per case and a column per pair of programs.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// `client → server`, in the order of each row's cells.
    pub(crate) pairs: Vec<String>,
    /// One row per case.
    pub(crate) rows: Vec<(String, Vec<Verdict>)>,
}

impl Table {
    /// Returns the number of failed cells.
    pub(crate) fn failures(&self) -> usize {
        let cells = self.rows.iter().flat_map(|(_, cells)| cells);
        cells
            .filter(|cell| matches!(cell, Verdict::Fail(_)))
            .count()
    }
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Unproven(_) => "unproven",
        Verdict::Fail(_) => "FAIL",
        Verdict::Unsupported(_) => "unsupported",
        Verdict::NotRun(_) => "not run",
    }
}

/// The width of a pair's column, in characters.
fn width(pair: &str) -> usize {
    pair.chars().count().max("unsupported".len()) + 2
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.rows.iter().map(|(case, _)| case.len());
        let first = names.max().unwrap_or(0) + 2;
        write!(f, "{:first$}", "")?;
        for pair in &self.pairs {
            write!(f, "{pair:0$}", width(pair))?;
        }
        writeln!(f)?;
        for (case, cells) in &self.rows {
            write!(f, "{case:first$}")?;
            for (cell, pair) in cells.iter().zip(&self.pairs) {
                write!(f, "{:1$}", word(cell), width(pair))?;
            }
            writeln!(f)?;
        }
        // A missing program is the same for all its cells.
        let mut missing = BTreeSet::new();
        for (case, cells) in &self.rows {
            for (cell, pair) in cells.iter().zip(&self.pairs) {
                match cell {
                    Verdict::Pass => {}
                    Verdict::Unproven(why) | Verdict::Fail(why) | Verdict::Unsupported(why) => {
                        writeln!(f, "{}: {case}, {pair}: {why}", word(cell))?;
                    }
                    Verdict::NotRun(why) => _ = missing.insert(why),
                }
            }
        }
        for why in missing {
            writeln!(f, "not run: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_reasons_follow() {
        let table = Table {
            pairs: vec!["a → b".into(), "b → a".into()],
            rows: vec![
                (
                    "retry".into(),
                    vec![Verdict::Pass, Verdict::Fail("why".into())],
                ),
                (
                    "zero-rtt".into(),
                    vec![Verdict::Unproven("so".into()), Verdict::Pass],
                ),
            ],
        };
        let expected = concat!(
            "          a → b        b → a        \n",
            "retry     pass         FAIL         \n",
            "zero-rtt  unproven     pass         \n",
            "FAIL: retry, b → a: why\n",
            "unproven: zero-rtt, a → b: so\n",
        );
        assert_eq!(table.to_string(), expected);
        assert_eq!(table.failures(), 1);
    }
}
