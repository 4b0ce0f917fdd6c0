//! The table of a run, printed and kept in Markdown files.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, bail};

use super::test::Outcome;

/// Lines around the table in a file.
const TABLE: [&str; 2] = ["<!-- interop run: begin -->", "<!-- interop run: end -->"];

/// Lines around the summary in a file.
const SUMMARY: [&str; 2] = [
    "<!-- interop summary: begin -->",
    "<!-- interop summary: end -->",
];

/// What came of all runs of a test with one pair.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) last: Outcome,
    /// Runs, and how many of them passed.
    pub(crate) runs: u32,
    pub(crate) passed: u32,
}

/// The cell of a test that is not for this pair.
const LEFT_OUT: &str = "–";

impl Cell {
    fn text(&self) -> String {
        match &self.last {
            Outcome::Passed if self.runs > 1 => format!("pass ({} of {})", self.passed, self.runs),
            Outcome::Passed => "pass".to_owned(),
            Outcome::Measured(kbit) => format!("{kbit} kbit/s"),
            Outcome::Missed(kbit, _) => format!("FAIL ({kbit} kbit/s)"),
            Outcome::Unsupported => "unsupported".to_owned(),
            Outcome::Failed(_) if self.runs > 1 => {
                format!("FAIL ({} of {})", self.passed, self.runs)
            }
            Outcome::Failed(_) => "FAIL".to_owned(),
        }
    }
}

/// A column: client, then server.
type Pair = (String, String);

/// The table: tests by pairs.
pub(crate) struct Report {
    tests: Vec<&'static str>,
    pairs: Vec<Pair>,
    cells: BTreeMap<(String, Pair), String>,
    failures: Vec<String>,
}

impl Report {
    pub(crate) fn new(tests: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            tests: tests.into_iter().collect(),
            pairs: Vec::new(),
            cells: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn add_pair(&mut self, client: &str, server: &str) {
        let pair = (client.to_owned(), server.to_owned());
        if !self.pairs.contains(&pair) {
            self.pairs.push(pair);
        }
    }

    /// Says that a test is not for this pair.
    pub(crate) fn leave_out(&mut self, test: &str, (client, server): (&str, &str)) {
        let pair = (client.to_owned(), server.to_owned());
        self.cells
            .insert((test.to_owned(), pair), LEFT_OUT.to_owned());
    }

    pub(crate) fn set(&mut self, test: &str, (client, server): (&str, &str), cell: &Cell) {
        let pair = (client.to_owned(), server.to_owned());
        self.cells.insert((test.to_owned(), pair), cell.text());
        let (passed, runs) = (cell.passed, cell.runs);
        let what = format!("{test}, {client} → {server}");
        match &cell.last {
            Outcome::Failed(why) => {
                let failure = format!("{what}, {passed} of {runs} passed: {why}");
                self.failures.push(failure);
            }
            Outcome::Missed(kbit, bar) => {
                let failure = format!("{what}: {kbit} kbit/s, expected {bar}");
                self.failures.push(failure);
            }
            Outcome::Passed | Outcome::Measured(_) | Outcome::Unsupported => {}
        }
    }

    /// Returns the number of failed cells.
    pub(crate) fn failed(&self) -> usize {
        self.failures.len()
    }

    /// Returns the table, and the reasons of failures, of this run.
    pub(crate) fn markdown(&self) -> String {
        let failures = self.failures.iter().map(|failure| format!("- {failure}\n"));
        let failures: String = failures.collect();
        if failures.is_empty() {
            self.table()
        } else {
            format!("{}\n{failures}", self.table())
        }
    }

    fn table(&self) -> String {
        let heads = self
            .pairs
            .iter()
            .map(|(client, server)| format!(" {client} → {server} |"));
        let heads: String = heads.collect();
        let mut out = format!(
            "| test |{heads}\n|---|{}\n",
            "---|".repeat(self.pairs.len())
        );
        for test in &self.tests {
            let cells: Vec<Option<&String>> = self
                .pairs
                .iter()
                .map(|pair| self.cells.get(&((*test).to_owned(), pair.clone())))
                .collect();
            if cells
                .iter()
                .all(|it| it.is_none_or(|cell| cell == LEFT_OUT))
            {
                continue;
            }
            let cells = cells
                .into_iter()
                .map(|cell| format!(" {} |", cell.map_or("not run", String::as_str)));
            out.push_str(&format!("| {test} |{}\n", cells.collect::<String>()));
        }
        out
    }

    /// Replaces the table between the markers of a file. What the table there says of cells that
    /// have not been run now stays. Returns all of it.
    pub(crate) fn update(&self, file: &Path) -> Result<Self> {
        let text = read(file)?;
        let [_, old, _] = split(&text, TABLE).with_context(|| file.display().to_string())?;
        let merged = self.merged_into(old);
        replace(file, &text, TABLE, &merged.table())?;
        Ok(merged)
    }

    /// Replaces the summary between the markers of a file.
    pub(crate) fn update_summary(&self, file: &Path) -> Result<()> {
        replace(file, &read(file)?, SUMMARY, &self.summary())
    }

    fn merged_into(&self, old: &str) -> Self {
        let mut merged = Self::new(self.tests.iter().copied());
        merged.read(old);
        for (client, server) in &self.pairs {
            merged.add_pair(client, server);
        }
        merged.cells.extend(self.cells.clone());
        merged
    }

    /// Returns a table with a row for each pair: how many tests passed, and how many the endpoints
    /// do not support.
    fn summary(&self) -> String {
        let mut out = "| client → server | passed | failed | unsupported | not run |\n\
                       |---|---|---|---|---|\n"
            .to_owned();
        for pair in &self.pairs {
            let (mut passed, mut unsupported, mut not_run) = (0, 0, 0);
            let mut failed = Vec::new();
            for test in &self.tests {
                match self.cells.get(&((*test).to_owned(), pair.clone())) {
                    None => not_run += 1,
                    Some(cell) if cell == LEFT_OUT => {}
                    Some(cell) if cell == "unsupported" => unsupported += 1,
                    Some(cell) if cell.starts_with("FAIL") => failed.push(*test),
                    Some(_) => passed += 1,
                }
            }
            let failed = match &failed[..] {
                [] => "0".to_owned(),
                failed => failed.join(", "),
            };
            let (client, server) = pair;
            out.push_str(&format!(
                "| {client} → {server} | {passed} | {failed} | {unsupported} | {not_run} |\n"
            ));
        }
        out
    }

    /// Reads the cells of a table.
    fn read(&mut self, table: &str) {
        let mut pairs: Vec<Option<Pair>> = Vec::new();
        for line in table.lines().filter(|line| line.starts_with('|')) {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let Some(test) = cells.next() else { continue };
            if test == "test" {
                let split = |head: &str| {
                    let (client, server) = head.split_once(" → ")?;
                    Some((client.to_owned(), server.to_owned()))
                };
                pairs = cells.map(split).collect();
                for (client, server) in pairs.iter().flatten() {
                    self.add_pair(client, server);
                }
                continue;
            }
            for (pair, cell) in pairs.iter().zip(cells) {
                if let Some(pair) = pair
                    && cell != "not run"
                    && self.tests.contains(&test)
                {
                    let at = (test.to_owned(), pair.clone());
                    self.cells.insert(at, cell.to_owned());
                }
            }
        }
    }
}

/// Checks that the files of the table and its summary can be updated.
pub(crate) fn check_files(table: Option<&Path>, summary: Option<&Path>) -> Result<()> {
    for (file, markers) in [(table, TABLE), (summary, SUMMARY)] {
        let Some(file) = file else { continue };
        split(&read(file)?, markers).with_context(|| file.display().to_string())?;
        let writable = fs::OpenOptions::new().append(true).open(file);
        writable.with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

/// Returns what is before, between and after the markers.
fn split<'a>(text: &'a str, [begin, end]: [&str; 2]) -> Result<[&'a str; 3]> {
    let Some((before, rest)) = text.split_once(begin) else {
        bail!("expected the line {begin:?}, found none");
    };
    let Some((between, after)) = rest.split_once(end) else {
        bail!("expected the line {end:?} after {begin:?}, found none");
    };
    Ok([before, between, after])
}

/// Replaces what is between the markers of a file.
fn replace(file: &Path, text: &str, markers: [&str; 2], between: &str) -> Result<()> {
    let replaced = replaced(text, markers, between);
    let replaced = replaced.with_context(|| file.display().to_string())?;
    fs::write(file, replaced).with_context(|| format!("writing {}", file.display()))
}

fn replaced(text: &str, markers: [&str; 2], between: &str) -> Result<String> {
    let [before, _, after] = split(text, markers)?;
    let [begin, end] = markers;
    Ok(format!("{before}{begin}\n{between}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::{super::test::Bar, *};

    /// All runs but those that failed passed.
    fn cell(last: Outcome, runs: u32, failed: u32) -> Cell {
        Cell {
            last,
            runs,
            passed: runs - failed,
        }
    }

    #[test]
    fn table_in_a_file_keeps_cells_that_were_not_run_now() {
        let mut first = Report::new(["one", "two"]);
        first.add_pair("a", "a");
        first.set("one", ("a", "a"), &cell(Outcome::Passed, 3, 0));
        first.set("two", ("a", "a"), &cell(Outcome::Measured(9500), 5, 0));
        let mut second = Report::new(["one", "two"]);
        second.add_pair("a", "b");
        let failed = cell(Outcome::Failed("no".to_owned()), 3, 1);
        second.set("two", ("a", "b"), &failed);
        let merged = second.merged_into(&first.table());
        assert_eq!(
            merged.table(),
            "| test | a → a | a → b |\n|---|---|---|\n| one | pass (3 of 3) | not run |\n\
             | two | 9500 kbit/s | FAIL (2 of 3) |\n"
        );
        assert_eq!(
            merged.summary().lines().skip(2).collect::<Vec<_>>(),
            ["| a → a | 2 | 0 | 0 | 0 |", "| a → b | 0 | two | 0 | 1 |"]
        );
        assert_eq!(second.failed(), 1);
        assert!(
            second
                .markdown()
                .contains("- two, a → b, 2 of 3 passed: no")
        );
        assert_eq!(second.merged_into(&merged.table()).table(), merged.table());
    }

    #[test]
    fn median_below_its_bar_is_a_failed_cell_with_its_figure() {
        let mut report = Report::new(["goodput"]);
        report.add_pair("a", "a");
        let bar = Bar {
            least: 9430,
            most: None,
        };
        report.set(
            "goodput",
            ("a", "a"),
            &cell(Outcome::Missed(9365, bar), 5, 0),
        );
        assert!(
            report
                .table()
                .ends_with("| goodput | FAIL (9365 kbit/s) |\n")
        );
        assert!(
            report
                .markdown()
                .contains("- goodput, a → a: 9365 kbit/s, expected at least 9430")
        );
        assert_eq!(report.failed(), 1);
        assert!(
            report
                .summary()
                .ends_with("| a → a | 0 | goodput | 0 | 0 |\n")
        );
    }

    #[test]
    fn test_for_other_pairs_is_neither_run_nor_missing() {
        let mut report = Report::new(["one", "two"]);
        report.add_pair("a", "b");
        report.leave_out("two", ("a", "b"));
        assert_eq!(report.table(), "| test | a → b |\n|---|---|\n");
        report.set("one", ("a", "b"), &cell(Outcome::Passed, 1, 0));
        let mut ours = Report::new(["one", "two"]);
        ours.add_pair("a", "a");
        ours.set("two", ("a", "a"), &cell(Outcome::Passed, 1, 0));
        let merged = ours.merged_into(&report.merged_into("").table());
        let again = report.merged_into(&merged.table());
        assert!(again.table().ends_with("| two | – | pass |\n"));
        assert!(
            again
                .summary()
                .ends_with("| a → b | 1 | 0 | 0 | 0 |\n| a → a | 1 | 0 | 0 | 1 |\n")
        );
    }

    #[test]
    fn files_without_markers_are_errors_with_their_names() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("table.md");
        let error = |file: &Path, summary: Option<&Path>| {
            let error = check_files(Some(file), summary).expect_err("an error");
            format!("{error:#}")
        };
        assert!(error(&file, None).contains("table.md"));
        fs::write(&file, "no markers").expect("written");
        assert!(error(&file, None).contains("table.md: expected the line"));
        fs::write(&file, TABLE.join("\n")).expect("written");
        check_files(Some(&file), None).expect("markers");
        assert!(error(&file, Some(&file)).contains("interop summary: begin"));
    }

    #[test]
    fn what_is_between_the_markers_is_replaced() {
        let [begin, end] = SUMMARY;
        let text = format!("Before\n{begin}\nold\n{end}\nAfter\n");
        let text = replaced(&text, SUMMARY, "new\n").expect("markers");
        assert_eq!(text, format!("Before\n{begin}\nnew\n{end}\nAfter\n"));
        for text in ["", begin, end] {
            assert!(replaced(text, SUMMARY, "new").is_err(), "{text:?}");
        }
    }
}
