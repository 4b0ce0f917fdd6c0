//! Reading a file of cases, line by line.

use super::error::unknown;
use super::expected::Expected;
use super::expression::Expression;
use super::lexer::words;
use super::setup::{Mark, Need, Setup};
use super::steps::{ConnectUntil, FrameSpec, Item, RawDatagram, SendOptions, Step, WaitFor};
use super::{Case, Layer, MAX_DATAGRAM, MAX_ROUNDS, Requirement, ScriptError};
use crate::wire::packet::Level;

/// Most cases in a file, and most steps in a case.
const MAX_CASES: usize = 10_000;
const MAX_STEPS: usize = 1_000;

const KEYWORDS: [&str; 25] = [
    "case",
    "title",
    "source",
    "layer",
    "should",
    "intrusive",
    "needs",
    "alpn",
    "parameter",
    "hello",
    "version",
    "initial-size",
    "token",
    "early-data",
    "connect",
    "http3",
    "send",
    "stream",
    "datagram",
    "wait",
    "rebind",
    "update-keys",
    "ecn",
    "acks",
    "repeat",
];

/// Reads the cases of a file.
///
/// # Errors
/// The first line that is not understood, with what was expected there; two cases with the same
/// name; a case without what every case needs.
pub fn parse(text: &str) -> Result<Vec<Case>, ScriptError> {
    let mut cases: Vec<Case> = Vec::new();
    let mut current: Option<Builder> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let words = words(line, number)?;
        let Some((keyword, rest)) = words.split_first() else {
            continue;
        };
        if keyword == "case" {
            finish(&mut cases, current.take())?;
            current = Some(Builder::new(rest, number)?);
            continue;
        }
        let Some(builder) = &mut current else {
            let message = format!("unexpected {keyword:?}: a file begins with `case NAME`");
            return Err(ScriptError::new(number, message));
        };
        builder
            .line(keyword, rest, line)
            .map_err(|message| ScriptError::new(number, message))?;
        builder.case.script.push(line.trim().to_owned());
    }
    finish(&mut cases, current)?;
    Ok(cases)
}

fn finish(cases: &mut Vec<Case>, builder: Option<Builder>) -> Result<(), ScriptError> {
    let Some(builder) = builder else {
        return Ok(());
    };
    let line = builder.line;
    let case = builder.finish()?;
    if cases.iter().any(|other| other.name == case.name) {
        let message = format!("second case named {:?}: choose another name", case.name);
        return Err(ScriptError::new(line, message));
    }
    if cases.len() == MAX_CASES {
        let message = format!("more than {MAX_CASES} cases: use several files");
        return Err(ScriptError::new(line, message));
    }
    cases.push(case);
    Ok(())
}

/// A case that is being read.
struct Builder {
    line: usize,
    case: Case,
    /// The steps of open `repeat` blocks, outermost first.
    open: Vec<(Expression, Vec<Step>)>,
    steps: usize,
}

impl Builder {
    fn new(words: &[String], line: usize) -> Result<Self, ScriptError> {
        let plain = |name: &str| {
            let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !name.is_empty() && name.chars().all(part)
        };
        let [name] = words else {
            return Err(ScriptError::new(line, "expected one name: `case NAME`"));
        };
        if !plain(name) {
            let message =
                format!("invalid name {name:?}: expected lower-case letters, digits and hyphens");
            return Err(ScriptError::new(line, message));
        }
        Ok(Self {
            line,
            case: Case {
                name: name.clone(),
                title: String::new(),
                source: String::new(),
                layer: Layer::Transport,
                requirement: Requirement::Must,
                intrusive: false,
                script: Vec::new(),
                setup: Setup::default(),
                needs: Vec::new(),
                steps: Vec::new(),
                expected: Vec::new(),
            },
            open: Vec::new(),
            steps: 0,
        })
    }

    fn finish(mut self) -> Result<Case, ScriptError> {
        let error = |message: &str| Err(ScriptError::new(self.line, message));
        if !self.open.is_empty() {
            return error("`repeat` without `end`: add `end` behind the repeated steps");
        }
        if self.case.expected.is_empty() {
            return error("case without `expect`: add what a correct server does");
        }
        if self.case.steps.is_empty() {
            return error("case without steps: add at least `connect`");
        }
        if self.case.title.is_empty() {
            self.case.title = self.case.name.replace('-', " ");
        }
        // What describes a case is no part of what it does.
        self.case.script.retain(|line| {
            let word = line.split_whitespace().next().unwrap_or_default();
            !matches!(
                word,
                "title" | "source" | "layer" | "should" | "intrusive" | "needs" | "expect"
            )
        });
        Ok(self.case)
    }

    fn line(&mut self, keyword: &str, rest: &[String], line: &str) -> Result<(), String> {
        let case = &mut self.case;
        let text = || {
            let text = line.trim().trim_start_matches(keyword).trim();
            text.to_owned()
        };
        match keyword {
            "title" => case.title = text(),
            "source" => case.source = text(),
            "layer" => case.layer = one_of("layer", rest, &Layer::NAMES)?,
            "should" => case.requirement = Requirement::Should,
            "intrusive" => case.intrusive = true,
            "needs" => case.needs.push(Need::parse(rest)?),
            "expect" => case.expected.push(Expected::parse(rest)?),
            "alpn" => case.setup.alpn(rest)?,
            "parameter" => case.setup.parameter(rest)?,
            "hello" => case.setup.hello(rest)?,
            "token" => case.setup.token(rest)?,
            "version" => case.setup.version = at_most(u32::MAX.into(), rest)? as u32,
            "initial-size" => case.setup.initial_size = at_most(MAX_DATAGRAM, rest)? as usize,
            "early-data" => case.setup.early_data = true,
            "repeat" => {
                let [count] = rest else {
                    return Err("expected one number: `repeat 10`".into());
                };
                let count = Expression::parse(count)?;
                if matches!(count, Expression::Number(count) if count > MAX_ROUNDS) {
                    return Err(format!("a case repeats steps at most {MAX_ROUNDS} times"));
                }
                self.open.push((count, Vec::new()));
            }
            "end" => {
                let (count, steps) = self.open.pop().ok_or("`end` without `repeat`: remove it")?;
                self.push(Step::Repeat(count, steps))?;
            }
            keyword => {
                let step = step(keyword, rest)?;
                self.push(step)?;
            }
        }
        Ok(())
    }

    fn push(&mut self, step: Step) -> Result<(), String> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(format!(
                "more than {MAX_STEPS} steps in a case: use `repeat`"
            ));
        }
        match self.open.last_mut() {
            Some((_, steps)) => steps.push(step),
            None => self.case.steps.push(step),
        }
        Ok(())
    }
}

fn step(keyword: &str, rest: &[String]) -> Result<Step, String> {
    let plain = |step| match rest {
        [] => Ok(step),
        [word, ..] => Err(format!("unexpected {word:?} behind {keyword}: remove it")),
    };
    match keyword {
        "connect" => match rest {
            [] => Ok(Step::Connect(ConnectUntil::Confirmed)),
            rest => one_of(
                "point of the handshake",
                rest,
                &[
                    ("hello", ConnectUntil::Hello),
                    ("keys", ConnectUntil::Keys),
                    ("complete", ConnectUntil::Complete),
                    ("confirmed", ConnectUntil::Confirmed),
                ],
            )
            .map(Step::Connect),
        },
        "http3" => plain(Step::Http3),
        "rebind" => plain(Step::Rebind),
        "update-keys" => plain(Step::UpdateKeys),
        "ecn" => one_of("codepoint", rest, &Mark::NAMES).map(Step::Ecn),
        "acks" => one_of("state", rest, &[("off", false), ("on", true)]).map(Step::Acks),
        "wait" => WaitFor::parse(rest).map(Step::Wait),
        "datagram" => RawDatagram::parse(rest).map(Step::Datagram),
        "send" => send(rest),
        "stream" => stream(rest),
        other => Err(unknown(
            "keyword",
            other,
            KEYWORDS.into_iter().chain(["expect", "end"]),
        )),
    }
}

/// Reads `LEVEL [option …]: FRAME ; FRAME`.
fn send(words: &[String]) -> Result<Step, String> {
    let (head, body) = at_colon(words)?;
    let (level, options) = head
        .split_first()
        .ok_or("missing packet type: expected `send 1rtt: PING`")?;
    let level = one_of("packet type", core::slice::from_ref(level), &Level::NAMES)?;
    let frames = parts(body)
        .map(FrameSpec::parse)
        .collect::<Result<_, _>>()?;
    Ok(Step::Send(level, SendOptions::parse(options)?, frames))
}

/// Reads `NAME: ITEM ; ITEM`.
fn stream(words: &[String]) -> Result<Step, String> {
    let (head, body) = at_colon(words)?;
    let [name] = head.as_slice() else {
        return Err("expected one stream: `stream request: FIN`".into());
    };
    let items = parts(body).map(Item::parse).collect::<Result<_, _>>()?;
    Ok(Step::Stream {
        name: name.clone(),
        items,
    })
}

/// Splits at the first word that ends in a colon.
fn at_colon(words: &[String]) -> Result<(Vec<String>, &[String]), String> {
    let at = words.iter().position(|word| word.ends_with(':')).ok_or(
        "missing colon: expected `send LEVEL: FRAME ; FRAME` or `stream NAME: ITEM ; ITEM`",
    )?;
    let (head, body) = words.split_at(at + 1);
    let mut head = head.to_vec();
    if let Some(last) = head.last_mut() {
        last.pop();
    }
    head.retain(|word| !word.is_empty());
    Ok((head, body))
}

fn parts(words: &[String]) -> impl Iterator<Item = &[String]> {
    let parts = words.split(|word| word == ";");
    parts.filter(|part| !part.is_empty())
}

fn one_of<T: Copy>(what: &str, words: &[String], known: &[(&str, T)]) -> Result<T, String> {
    let names = || known.iter().map(|(name, _)| *name);
    let [word] = words else {
        let names: Vec<_> = names().collect();
        return Err(format!("expected one {what}: {}", names.join(", ")));
    };
    let found = known.iter().find(|(name, _)| name == word);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| unknown(what, word, names()))
}

/// Reads one number, and checks it.
fn at_most(limit: u64, words: &[String]) -> Result<u64, String> {
    match constant(words)? {
        number if number > limit => Err(format!("{number} is above the limit of {limit}")),
        number => Ok(number),
    }
}

fn constant(words: &[String]) -> Result<u64, String> {
    match words {
        [word] => match Expression::parse(word)? {
            Expression::Number(number) => Ok(number),
            _ => Err(format!(
                "invalid number {word:?}: variables are not known yet"
            )),
        },
        _ => Err("expected one number".into()),
    }
}
