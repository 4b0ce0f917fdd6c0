//! A page with the results, which loads nothing.

use core::fmt::Write as _;

use crate::probe::Report;
use crate::run::{CaseResult, Verdict};

const STYLE: &str = "\
body{font:15px/1.45 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;\
color:#1b1b1f;background:#fff}table{border-collapse:collapse;width:100%}\
td,th{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid #ddd}\
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f5f5f7;padding:.5rem;margin:.3rem 0}\
summary{cursor:pointer}.as-expected{color:#176d2d}.permitted{color:#476a00}.deviation{color:#b3001b;\
font-weight:600}.unadvised{color:#8a5200}.not-applicable,.not-run{color:#666}\
@media(prefers-color-scheme:dark){body{color:#e6e6ea;background:#17171a}pre{background:#232327}\
td,th{border-color:#3a3a40}.as-expected{color:#6fd08c}.permitted{color:#b4d455}\
.deviation{color:#ff8a96}.unadvised{color:#f0b45c}.not-applicable,.not-run{color:#aaa}}";

/// Returns a self-contained page with every result.
#[must_use]
pub fn html(report: &Report) -> String {
    let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n");
    let _ = writeln!(out, "<title>Probe of {}</title>", escape(&report.url));
    let _ = writeln!(out, "<style>{STYLE}</style>");
    let _ = writeln!(out, "<h1>Probe of {}</h1>", escape(&report.url));
    let contact = &report.contact;
    let _ = writeln!(
        out,
        "<p>{}, status {} on an ordinary GET.</p>\n<p>",
        contact.address, contact.status
    );
    for verdict in Verdict::ALL {
        let count = report.count(verdict);
        if count > 0 {
            let class = class(verdict);
            let _ = write!(
                out,
                "<span class=\"{class}\">{count} {}</span> ",
                verdict.words()
            );
        }
    }
    out.push_str("</p>\n<table>\n<tr><th>Case<th>Source<th>Expected<th>Came<th>Verdict\n");
    for result in &report.results {
        row(&mut out, result);
    }
    out.push_str("</table>\n</html>\n");
    out
}

fn row(out: &mut String, result: &CaseResult) {
    let open = match result.verdict {
        Verdict::Deviation | Verdict::Unadvised | Verdict::Unsteady | Verdict::NotRun => " open",
        Verdict::AsExpected | Verdict::Permitted | Verdict::NotApplicable => "",
    };
    let _ = write!(
        out,
        "<tr id=\"{0}\"><td><details{open}><summary><code>{0}</code><br>{1}</summary><pre>{2}</pre>",
        escape(&result.name),
        escape(&result.title),
        escape(&result.script.join("\n")),
    );
    if !result.sent.is_empty() {
        let _ = write!(out, "<pre>{}</pre>", escape(&result.sent.join("\n")));
    }
    let _ = writeln!(
        out,
        "</details><td>{}<td>{}<td>{}<td class=\"{}\">{}",
        escape(&result.source),
        escape(&result.expected),
        escape(&result.came),
        class(result.verdict),
        result.verdict.words(),
    );
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::AsExpected => "as-expected",
        Verdict::Permitted => "permitted",
        Verdict::Unadvised => "unadvised",
        Verdict::Deviation => "deviation",
        Verdict::Unsteady => "unsteady",
        Verdict::NotApplicable => "not-applicable",
        Verdict::NotRun => "not-run",
    }
}

/// What a server sends ends up in the page, and must not become part of its markup.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_of_the_server_is_escaped() {
        assert_eq!(escape("<script>\"&"), "&lt;script&gt;&quot;&amp;");
    }
}
